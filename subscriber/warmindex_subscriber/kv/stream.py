"""One publisher of an engine, from its sockets to the sink.

    sockets -> framing -> order -> decode -> residence -> outbox -> sink

A turn takes what has arrived, at most `FRAMES_PER_TURN_MAX` of it, and hands on what it comes
to. The next turn begins when the sink has accepted that: where the index falls behind, the
sockets' queues fill, and what they drop is a gap like any other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from warmindex.event import CacheEvent, EventType

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
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import Batch, decode_batch
from warmindex_subscriber.kv.framing import ReplayEnd, parse_live, parse_replay, topic_matches
from warmindex_subscriber.kv.models import AdapterVersions
from warmindex_subscriber.kv.order import Order
from warmindex_subscriber.kv.replicas import Replicas
from warmindex_subscriber.kv.sink import EventSink
from warmindex_subscriber.kv.sockets import Sockets

_log = logging.getLogger(__name__)

# 64 batches of 64 blocks fill one event; a turn of them takes a few milliseconds.
FRAMES_PER_TURN_MAX: Final = 64
# How late a deadline, a resync or the end may be noticed where nothing arrives.
TICK_S: Final = 0.2


class Stream:
    """The batches of one publisher, in order; see the module. `name` is for the log.

    `clear_at_end`: whoever ends it takes the engine down with it.
    """

    def __init__(
        self,
        name: str,
        sockets: Sockets,
        order: Order,
        replicas: Replicas,
        sink: EventSink,
        counters: Counters,
        topic: bytes = b"",
        versions: AdapterVersions | None = None,
        *,
        clear_at_end: bool = False,
    ) -> None:
        self._name = name
        self._sockets = sockets
        self._order = order
        self._replicas = replicas
        self._sink = sink
        self._counters = counters
        self._topic = topic
        self._versions = versions
        self._resync_wanted: set[str] = set()
        self._stopping = False
        self._clear_at_end = clear_at_end

    @property
    def replica_ids(self) -> list[str]:
        """The replicas that it speaks for, as far as is known."""
        return self._replicas.replica_ids

    def resync(self, replica_id: str) -> None:
        """Report all that the replica holds, soon."""
        self._resync_wanted.add(replica_id)

    def stop(self, *, clear: bool = False) -> None:
        """End `run`, soon; with `clear`, having published that nothing is held any more."""
        self._stopping = True
        self._clear_at_end |= clear

    async def run(self) -> None:
        """Follow the publisher until `stop`."""
        try:
            await self._perform(self._order.start(time.monotonic()))
            while not self._stopping:
                await self._sockets.wait(TICK_S)
                await self._turn()
                # Waiting may not have yielded, and others want to live too.
                await asyncio.sleep(0)
        finally:
            self._sockets.close()
            if self._clear_at_end:
                self._replicas.clear()
                await self._publish()

    async def _turn(self) -> None:
        # Received first, looked at last: what came over a new connection is then known to
        # have come over a new connection.
        live = self._sockets.live(FRAMES_PER_TURN_MAX)
        replay, run = self._sockets.replay(FRAMES_PER_TURN_MAX), self._sockets.replay_run
        for connected in self._sockets.connections():
            if connected and self._order.lost:
                # Batches of the connection that was lost, or hardly of the new one; a replay
                # brings again what is worth it.
                live = []
                self._sockets.discard_live()
            await self._connection(connected)
        for parts in replay:
            if self._sockets.replay_run != run:
                break
            await self._perform(self._replayed(parts))
        for parts in live:
            await self._perform(self._live(parts))
        await self._perform(self._order.tick(time.monotonic()))
        await self._publish()
        wanted, self._resync_wanted = self._resync_wanted, set()
        for replica_id in sorted(wanted):
            await self._report(replica_id)

    async def _connection(self, connected: bool) -> None:
        now = time.monotonic()
        _log.info("%s: %s", self._name, "connected" if connected else "disconnected")
        order = self._order
        await self._perform(order.connected(now) if connected else order.disconnected(now))

    def _live(self, parts: list[bytes]) -> list[Action]:
        parsed = parse_live(parts)
        if parsed is None:
            self._counters.frames_malformed += 1
            return []
        topic, frame = parsed
        if not topic_matches(self._topic, topic):
            self._counters.frames_other_topic += 1
            return []
        self._counters.frames += 1
        return self._order.live(frame, time.monotonic())

    def _replayed(self, parts: list[bytes]) -> list[Action]:
        parsed = parse_replay(parts)
        now = time.monotonic()
        if parsed is None:
            self._counters.frames_malformed += 1
            return []
        if isinstance(parsed, ReplayEnd):
            return self._order.replay_ended(now)
        return self._order.replayed(parsed, now)

    async def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            if type(action) is Deliver:
                self._replicas.deliver(await self._decode(action.payload))
            elif type(action) is Learn:
                self._replicas.learn(await self._decode(action.payload))
            else:
                await self._perform_rare(action)

    async def _perform_rare(self, action: Action) -> None:
        if isinstance(action, Clear):
            _log.warning("%s: cleared: %s", self._name, action.reason)
            self._replicas.clear()
        elif isinstance(action, Forget):
            self._replicas.forget()
        elif isinstance(action, Adopt):
            for replica_id in self._replicas.adopt():
                await self._report(replica_id)
        elif isinstance(action, StartReplay):
            self._sockets.start_replay(action.start)
        elif isinstance(action, StopReplay):
            self._sockets.stop_replay()

    async def _decode(self, payload: bytes) -> Batch:
        batch = decode_batch(payload)
        if batch.undecodable:
            self._counters.batches_undecodable += 1
        self._counters.malformed += batch.malformed
        self._counters.unknown += batch.unknown
        if self._versions is not None:
            await self._versions.ensure(batch.events)
        return batch

    async def _publish(self) -> None:
        for events in self._replicas.take():
            self._count(events)
            await self._sink.publish(events)

    def _count(self, events: list[CacheEvent]) -> None:
        for event in events:
            if event.type is EventType.EMBEDDED:
                self._counters.entries_published += len(event.content_hashes)
            elif event.type is EventType.EVICTED:
                self._counters.entries_evicted += len(event.content_hashes)

    async def _report(self, replica_id: str) -> None:
        self._counters.reports += 1
        await self._sink.report(replica_id, self._replicas.entries(replica_id))
