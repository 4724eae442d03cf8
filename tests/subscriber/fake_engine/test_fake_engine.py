"""The engine without a model: an honest cache, chats that share, events that a sidecar follows."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import signal
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kv_payloads import Model
from support.kv_publisher import PATIENCE_S, RecordingSink
from warmindex_subscriber.fake_engine import command
from warmindex_subscriber.fake_engine.cache import Change, Engine, Removed, Stored
from warmindex_subscriber.fake_engine.publisher import Endpoints, EventPublisher
from warmindex_subscriber.fake_engine.shapes import Shape, Writer
from warmindex_subscriber.fake_engine.traffic import Traffic
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import decode_batch
from warmindex_subscriber.kv.ranks import publishers
from warmindex_subscriber.kv.replicas import Replicas, residence_factory
from warmindex_subscriber.kv.sidecar import Sidecar, SidecarOptions

ADAPTERS = ("sql-lora", "chat-lora")


def held(changes: Sequence[Change], before: set[int] = frozenset()) -> set[int]:  # type: ignore[assignment]
    """What is held after changes, by the changes alone."""
    blocks = set(before)
    for change in changes:
        if isinstance(change, Stored):
            assert not blocks & set(change.hashes)
            assert change.parent is None or change.parent in blocks
            blocks |= set(change.hashes)
        elif isinstance(change, Removed):
            assert blocks >= set(change.hashes)
            blocks -= set(change.hashes)
        else:
            blocks = set()
    return blocks


class TestCache:
    def test_a_prompt_that_was_served_is_found(self):
        """Whole blocks of it, and as far as another one shares them."""
        engine = Engine(block_tokens=4)
        assert engine.serve_prompt(range(10)) == 0
        assert engine.serve_prompt(range(10)) == 2
        assert engine.serve_prompt([*range(4), 99, 99, 99, 99]) == 1
        assert engine.serve_prompt([99, *range(10)]) == 0

    def test_the_answer_is_found_in_the_next_turn(self):
        """And does not count in its own."""
        engine = Engine(block_tokens=4)
        assert engine.serve_prompt(range(8), answer=range(8, 12)) == 0
        assert engine.serve_prompt(range(16)) == 3
        assert engine.serve_prompt(range(8), answer=range(8, 12)) == 2

    def test_adapters_share_nothing(self):
        """The same tokens, another hash."""
        engine = Engine(block_tokens=4)
        engine.serve_prompt(range(8))
        assert engine.serve_prompt(range(8), "sql-lora") == 0
        assert len(engine) == 4

    def test_a_new_life_has_other_hashes(self):
        """As engines have that seed theirs."""
        engine = Engine(block_tokens=4)
        engine.serve_prompt(range(8))
        before = engine.hashes
        engine.restart()
        assert engine.take_changes() == []
        engine.serve_prompt(range(8))
        assert not engine.hashes & before

    @given(st.integers(0, 2**32), st.integers(1, 40))
    @settings(max_examples=100, deadline=None)
    def test_changes_say_what_is_held_and_no_child_outlives_its_parent(self, seed: int, room: int):
        """Whatever is served, in however little room."""
        rng = random.Random(seed)
        engine = Engine(block_tokens=2, blocks_max=room)
        known: set[int] = set()
        parents: dict[int, int | None] = {}
        for _ in range(30):
            tokens = [rng.randrange(2) for _ in range(rng.randrange(14))]
            engine.serve_prompt(tokens, rng.choice(["", "a"]))
            if rng.random() < 0.03:
                engine.clear()
            changes = engine.take_changes()
            for change in changes:
                if isinstance(change, Stored):
                    parents |= zip(change.hashes, [change.parent, *change.hashes], strict=False)
            known = held(changes, known)
            assert known == engine.hashes
            assert len(engine) <= room
            assert all(parents[block] in known for block in known if parents[block] is not None)


class TestTraffic:
    def test_the_same_seed_makes_the_same_prompts(self):
        """And another one others, of the same applications."""
        first, again, other = (
            [traffic.next() for _ in range(50)]
            for traffic in (Traffic(seed=1), Traffic(seed=1), Traffic(seed=2))
        )
        assert first == again
        assert [p.tokens for p in first] != [p.tokens for p in other]
        assert {tuple(p.tokens[:100]) for p in first} & {tuple(p.tokens[:100]) for p in other}

    def test_a_turn_begins_with_all_that_was_said_before(self):
        """Prompt and answer of the turn before it."""
        said: dict[int, list[int]] = {}
        turns = 0
        for prompt in itertools.islice(Traffic(seed=3), 300):
            if prompt.conversation in said:
                before = said[prompt.conversation]
                assert prompt.tokens[: len(before)] == before
                turns += 1
            said[prompt.conversation] = [*prompt.tokens, *prompt.answer]
        assert turns > 100

    def test_chats_find_what_they_share(self):
        """With room enough most of a prompt is there, with little room less."""
        rates = []
        for room in (200, 100_000):
            engine, hits, blocks = Engine(blocks_max=room), 0, 0
            for prompt in itertools.islice(Traffic(seed=4, adapters=("", *ADAPTERS)), 400):
                hits += engine.serve_prompt(prompt.tokens, prompt.adapter, prompt.answer)
                blocks += len(prompt.tokens) // engine.block_tokens
            rates.append(hits / blocks)
        assert rates[0] < 0.5 < rates[1]


@pytest.mark.parametrize(
    ("shape", "names"),
    # An adapter of SGLang's has no number.
    [(shape, True) for shape in Shape] + [(Shape.VLLM, False), (Shape.VLLM_ARRAYS, False)],
)
def test_every_shape_is_followed_to_the_block(shape: Shape, names: bool):
    """A sidecar that reads it holds as many blocks as the engine, and has no complaint."""
    engine = Engine(blocks_max=500)
    writer = Writer(shape, adapters=ADAPTERS, names=names)
    counters, index = Counters(), Model()
    adapters = Adapters() if names else Adapters({1: "sql-lora", 2: "chat-lora"})
    replicas = Replicas("", "m", lambda _: "pod", residence_factory(adapters, counters, None))
    for prompt in itertools.islice(Traffic(seed=5, adapters=("", *ADAPTERS)), 100):
        engine.serve_prompt(prompt.tokens, prompt.adapter, prompt.answer)
        events = writer.events(engine.take_changes())
        batch = decode_batch(msgspec.msgpack.encode([1.5, events, 0]))
        assert (batch.malformed, batch.unknown) == (0, 0)
        replicas.deliver(batch)
    for events in replicas.take():
        index.take(events)
    assert len(index.holds) == len(engine) == 500
    assert {hold[1] for hold in index.holds} <= {"", *ADAPTERS}
    assert set(counters.seen()) == {"stored", "removed"}


async def test_a_sidecar_follows_it_through_loss_and_restarts():
    """After whatever happened, what the sink holds is what the engine holds."""
    engine, sink = Engine(blocks_max=300), RecordingSink()
    publisher = EventPublisher(Endpoints("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"))
    writer = Writer(adapters=ADAPTERS)
    live, replay = publisher.endpoints
    assert replay is not None
    options = SidecarOptions(
        replica_id="pod", model_id="m", publishers=publishers([0], [live], [replay])
    )
    sidecar = Sidecar(options, sink)
    running = asyncio.ensure_future(sidecar.run())

    async def serve(count: int) -> None:
        for prompt in itertools.islice(traffic, count):
            engine.serve_prompt(prompt.tokens, prompt.adapter, prompt.answer)
            publisher.publish(writer.events(engine.take_changes()))
            publisher.answer_replays()
            await asyncio.sleep(0.002)

    async def agree() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(sink.index.holds) != len(engine):
                publisher.publish([])
                publisher.answer_replays()
                await asyncio.sleep(0.05)

    traffic = iter(Traffic(seed=6, adapters=("", *ADAPTERS)))
    try:
        await serve(20)
        await agree()
        publisher.lose(3)
        await serve(10)
        await agree()
        assert sidecar.counters.gaps_filled >= 1
        engine.restart()
        publisher.restart()
        await serve(10)
        await agree()
        engine.clear()
        await serve(5)
        await agree()
        publisher.skip()
        await serve(5)
        async with asyncio.timeout(PATIENCE_S):
            while not sidecar.counters.replay_holes:
                publisher.answer_replays()
                await asyncio.sleep(0.02)
        sidecar.stop()
        await running
    finally:
        running.cancel()
        publisher.close()


class TestCommand:
    def arguments(self, *flags: str) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        command.add_to(parser.add_subparsers())
        endpoints = ["--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0"]
        return parser.parse_args(["fake-engine", *endpoints, *flags])

    async def test_it_says_where_it_publishes_and_ends_after_its_prompts(self, capsys):
        """With all that can go wrong on the way."""
        flags = ["--prompts", "30", "--rate", "0", "--adapters", "a,b", "--blocks", "50"]
        often = ["--lose-every", "7", "--clear-every", "11", "--restart-every", "13"]
        arguments = self.arguments(*flags, *often)
        await asyncio.wait_for(arguments.run(arguments), PATIENCE_S)
        assert capsys.readouterr().out.startswith("publishing on tcp://127.0.0.1:")

    async def test_signals_restart_it_and_lose_a_batch(self, caplog):
        """On demand, while it runs."""
        caplog.set_level("INFO")
        arguments = self.arguments("--rate", "100", "--shape", "sglang")
        running = asyncio.ensure_future(arguments.run(arguments))
        await asyncio.sleep(0.3)
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR1)
        async with asyncio.timeout(PATIENCE_S):
            while "restarted" not in caplog.text:  # noqa: ASYNC110 - the log sets no event
                await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
