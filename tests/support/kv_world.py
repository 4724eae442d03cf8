"""An engine, the lossy way from it, and a sidecar's pure parts at the other end, without sockets.

What the world can do to a publisher: lose live batches, lose a batch for ever (a failed
encoding uses its number up), forget its replay buffer, answer a replay late, in part, or never,
lose the connection, restart. The tests decide what happens when.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import xxhash
from support.kv_payloads import Model, cleared, encode, removed, stored
from warmindex.event import Tier
from warmindex.hashing import chain_hashes
from warmindex_subscriber.kv.actions import (
    Action,
    Adopt,
    Clear,
    Deliver,
    Forget,
    Learn,
    StartReplay,
    StopReplay,
)
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import decode_batch
from warmindex_subscriber.kv.framing import Frame
from warmindex_subscriber.kv.order import Order, State
from warmindex_subscriber.kv.replicas import Replicas, residence_factory

BLOCK_TOKENS = 2
SCHEME = f"xxh3-chain/{BLOCK_TOKENS}"
ADAPTERS = ("", "sql-lora", "chat-lora")


@dataclass
class Block:
    """A block of the engine's: its hash, its parent's, and the key that the index has of it."""

    parent: int | None
    tokens: tuple[int, ...]
    adapter: str
    key: bytes
    mediums: set[str] = field(default_factory=set)


class PlainEngine:
    """The truth: blocks held, batches said."""

    def __init__(self, seed: int, buffer_batches: int) -> None:
        self._random = random.Random(seed)
        self._buffer_batches = buffer_batches
        self.live: deque[Frame] = deque()
        # Without a subscriber a batch goes nowhere but into the buffer.
        self.heard = True
        self.life = 0
        self.life_of_payload: dict[bytes, int] = {}
        self.restart()

    def restart(self) -> None:
        """A new life: nothing held, numbers from 0. What is under way stays under way."""
        self.life += 1
        self.blocks: dict[int, Block] = {}
        self.buffer: deque[Frame] = deque(maxlen=self._buffer_batches)
        self._sequence = 0

    @property
    def holds(self) -> set[tuple[str, bytes, int]]:
        """What an index may claim: (adapter, key, tier)."""
        tiers = {"GPU": Tier.DEVICE, "CPU": Tier.HOST}
        return {
            (block.adapter, block.key, tiers[medium])
            for block in self.blocks.values()
            for medium in block.mediums
        }

    def publish(self, *, lost_for_ever: bool = False) -> None:
        """A batch of a few random events; empty ones too."""
        kinds = [self._store, self._store, self._store, self._remove, self._offload, self._clear]
        events = []
        for _ in range(self._random.randrange(4)):
            kind = self._random.choices(kinds, (4, 4, 4, 6, 3, 0.3))[0]
            events += kind()
        self._send(events, lost_for_ever=lost_for_ever)

    def say_nothing(self) -> None:
        """An empty batch: whoever lost the last one learns of it."""
        self._send([])

    def _send(self, events: list[object], *, lost_for_ever: bool = False) -> None:
        frame = Frame(self._sequence, encode(*events, rank=None))
        self._sequence += 1
        self.life_of_payload[frame.payload] = self.life
        if lost_for_ever:
            return
        self.buffer.append(frame)
        if self.heard:
            self.live.append(frame)

    def _store(self) -> list[object]:
        parents = [h for h, block in self.blocks.items() if "GPU" in block.mediums]
        parent = self._random.choice([None, *parents])
        adapter = self.blocks[parent].adapter if parent else self._random.choice(ADAPTERS)
        tokens = tuple(self._random.randrange(3) for _ in range(BLOCK_TOKENS))
        above = self.blocks[parent].key if parent else None
        key = chain_hashes(tokens, BLOCK_TOKENS, above)[0]
        engine_hash = xxhash.xxh3_64_intdigest(key + adapter.encode())
        block = self.blocks.setdefault(engine_hash, Block(parent, tokens, adapter, key))
        block.mediums.add("GPU")
        name = {"lora_name": adapter} if adapter else {}
        return [
            stored(
                [engine_hash],
                list(tokens),
                parent_block_hash=parent,
                block_size=BLOCK_TOKENS,
                **name,
            )
        ]

    def _offload(self) -> list[object]:
        """Copy a block to the host, said as the device's was."""
        device = [h for h, block in self.blocks.items() if "GPU" in block.mediums]
        if not device:
            return []
        engine_hash = self._random.choice(device)
        block = self.blocks[engine_hash]
        if block.parent is not None and block.parent not in self.blocks:
            return []
        block.mediums.add("CPU")
        return [
            stored(
                [engine_hash],
                list(block.tokens),
                parent_block_hash=block.parent,
                block_size=BLOCK_TOKENS,
                medium="CPU",
                lora_name=block.adapter or None,
            )
        ]

    def _remove(self) -> list[object]:
        """Evict a leaf, from one of its places."""
        parents = {block.parent for block in self.blocks.values()}
        leaves = [h for h in self.blocks if h not in parents]
        if not leaves:
            return []
        engine_hash = self._random.choice(leaves)
        mediums = self.blocks[engine_hash].mediums
        medium = self._random.choice(sorted(mediums))
        mediums.remove(medium)
        if not mediums:
            del self.blocks[engine_hash]
        return [removed(engine_hash, medium=medium)]

    def _clear(self) -> list[object]:
        self.blocks.clear()
        return [cleared()]


class World:
    """Engine, channel and sidecar. `index` is what the sink's index would hold."""

    def __init__(self, *, seed: int = 0, has_replay: bool = True, buffer_batches: int = 8) -> None:
        self.engine = PlainEngine(seed, buffer_batches)
        self.has_replay = has_replay
        self.index = Model()
        self.now = 100.0
        self.coincidence = False
        self._received: Frame | None = None
        self.attach()

    def attach(self) -> None:
        """A sidecar starts, knowing nothing; the index keeps what its last life published."""
        self.counters = Counters()
        self.order = Order(self.counters, has_replay=self.has_replay)
        self.replicas = Replicas(
            "", "acme/m", lambda _: "pod", residence_factory(Adapters(), self.counters, None)
        )
        self.asked: int | None = None
        self.answers: deque[Frame | None] | None = None
        self.connected = self.engine.heard = True
        self.engine.live.clear()
        self.perform(self.order.start(self.now))

    @property
    def claims(self) -> set[tuple[str, bytes, int]]:
        return {(adapter, key, tier) for _, adapter, _, tier, key in self.index.holds}

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Deliver):
                self.replicas.deliver(decode_batch(action.payload))
            elif isinstance(action, Learn):
                self.replicas.learn(decode_batch(action.payload))
            elif isinstance(action, StartReplay):
                self.asked, self.answers = action.start, None
            else:
                self._perform_rare(action)
        for events in self.replicas.take():
            self.index.take(events)

    def _perform_rare(self, action: Action) -> None:
        if isinstance(action, Clear):
            self.replicas.clear()
        elif isinstance(action, Forget):
            self.replicas.forget()
        elif isinstance(action, Adopt):
            for replica in self.replicas.adopt():
                self.index.drop(replica)
                self.index.take(list(self.replicas.entries(replica)))
        elif isinstance(action, StopReplay):
            self.asked = self.answers = None

    def deliver(self, count: int = 1) -> None:
        for _ in range(min(count, len(self.engine.live))):
            frame = self.engine.live.popleft()
            self._note_coincidence(frame, self.order.state is State.LIVE)
            before, self._received = self._received, frame
            if before is not None and before.sequence + 1 == frame.sequence:
                lives = self.engine.life_of_payload
                self.coincidence |= lives[before.payload] != lives[frame.payload]
            self.perform(self.order.live(frame, self.now))

    def _note_coincidence(self, frame: Frame, believed: bool) -> None:
        """A batch that goes on where another life of the engine has ended looks like its own."""
        life_of = self.engine.life_of_payload
        life = life_of[frame.payload]
        known = life_of.get(self.order._delivered.last_payload, life)
        if believed and known != life:
            self.coincidence |= frame.sequence == self.order._delivered.next

    def lose(self, count: int = 1) -> None:
        for _ in range(min(count, len(self.engine.live))):
            self.engine.live.popleft()

    def answer_replay(self) -> None:
        """The engine answers what it was asked, from the buffer that it has now."""
        if self.asked is not None and self.connected:
            frames = [frame for frame in self.engine.buffer if frame.sequence >= self.asked]
            self.answers, self.asked = deque([*frames, None]), None

    def cut_replay(self) -> None:
        """The rest of the answer is lost."""
        if self.answers:
            self.answers = deque(list(self.answers)[: len(self.answers) // 2])

    def receive_replay(self, count: int = 1) -> None:
        for _ in range(count):
            if not self.answers:
                return
            frame = self.answers.popleft()
            if frame is None:
                self.perform(self.order.replay_ended(self.now))
            else:
                filling = self.order.state is State.FILLING and not self.order._same_life
                self._note_coincidence(frame, filling)
                self.perform(self.order.replayed(frame, self.now))

    def disconnect(self) -> None:
        """What was sent and not received is lost; so is the replay."""
        if self.connected:
            self.connected = self.engine.heard = False
            self.asked = self.answers = None
            self.perform(self.order.disconnected(self.now))

    def connect(self) -> None:
        if not self.connected:
            self.connected = self.engine.heard = True
            self.engine.live.clear()
            self.perform(self.order.connected(self.now))

    def restart_unseen(self) -> None:
        """The engine restarts behind a proxy, which keeps the connection and what is in it."""
        if self.connected:
            self.engine.restart()

    def restart(self, *, late_batches: bool) -> None:
        """The engine restarts. Batches that had arrived may be looked at after the disconnect."""
        self.disconnect()
        if not late_batches:
            self.engine.live.clear()
        self.engine.restart()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.order.tick(self.now))

    def settle(self, *, quiet: bool = False) -> None:
        """From now on nothing is lost: let everything come to rest.

        Not `quiet`, the engine goes on sending, and so shows what was lost at the end.
        """
        self.connect()
        for _ in range(40):
            if not quiet:
                self.engine.say_nothing()
            self.answer_replay()
            self.receive_replay(10**6)
            self.deliver(10**6)
            self.answer_replay()
            self.receive_replay(10**6)
            self.wait(2.5)
        self.answer_replay()
        self.receive_replay(10**6)
        assert self.order.state is State.LIVE
