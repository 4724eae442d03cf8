"""A source beside a publisher: it knows what it holds, and reports when it is asked.

What it has said is kept in the plain model, without any loss; whatever happens on the way, the
index must come to the same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from support.model import Hold, Place, PlainIndex
from support.watching import LIVE, Watcher
from warmindex.client import IndexClient
from warmindex.event import CacheEvent, EventType, Tier
from warmindex_subscriber.publisher import Publisher, PublisherOptions

MODEL = "acme/llm"
SCHEME = "own"
# Longer than any test's story takes; a test that gets here has failed.
WAIT_S_MAX = 60.0
TIERS = (Tier.DEVICE, Tier.HOST)
ADAPTERS = ("", "sql-lora")


def event_of(
    replica_id: str, kind: EventType, keys: Sequence[int] = (), **fields: Any
) -> CacheEvent:
    """An event of a source."""
    given: dict[str, Any] = {"type": kind, "replica_id": replica_id, "model_id": MODEL}
    if kind is not EventType.ALL_CLEARED:
        given |= {
            "hash_scheme": SCHEME,
            "content_hashes": [key.to_bytes(4, "big") for key in keys],
            "adapter_scoped": kind is EventType.EVICTED,
        }
    return CacheEvent(**{**given, **fields})


class Source:
    """Says random things for its replicas through a publisher."""

    def __init__(self, *replica_ids: str, seed: int = 0) -> None:
        self.replica_ids = replica_ids
        self.random = random.Random(seed)
        self.truth = PlainIndex()
        self.publisher: Publisher | None = None
        self.reported: list[str] = []
        self._wanted: set[str] = set()
        self._new_wish = asyncio.Event()
        # The calls for one replica never overlap.
        self._calling = asyncio.Lock()

    @asynccontextmanager
    async def publishing(self, servers: str, **options: Any) -> AsyncIterator[Publisher]:
        """Publish to an index, and report when it asks."""
        options = {"lease_s": 0, "flush_s": WAIT_S_MAX, **options}
        async with (
            IndexClient(servers) as client,
            Publisher(
                client,
                model_id=MODEL,
                resync_wanted=self.wish,
                options=PublisherOptions(**options),
            ) as publisher,
        ):
            self.publisher = publisher
            reporting = asyncio.create_task(self._report_when_asked())
            try:
                yield publisher
            finally:
                reporting.cancel()
                with suppress(asyncio.CancelledError):
                    await reporting

    def wish(self, replica_id: str) -> None:
        """The index wants a report."""
        self._wanted.add(replica_id)
        self._new_wish.set()

    async def say(self, *events: CacheEvent) -> None:
        """Publish events, and remember that they were said."""
        assert self.publisher is not None
        async with self._calling:
            for event in events:
                self.truth.apply(self.truth.revision + 1, event)
            await self.publisher.publish(events)

    async def say_something(self, count: int = 1) -> None:
        """Publish random events."""
        for _ in range(count):
            await self.say(self.something())

    def something(self) -> CacheEvent:
        """A random event: mostly new holds, some evictions, now and then a clear."""
        replica_id = self.random.choice(self.replica_ids)
        kinds = (EventType.EMBEDDED, EventType.EVICTED, EventType.ALL_CLEARED)
        (kind,) = self.random.choices(kinds, (70, 29, 1))
        if kind is EventType.ALL_CLEARED:
            return event_of(replica_id, kind)
        keys = self.random.sample(range(200), self.random.randint(1, 20))
        where = {"adapter_id": self.random.choice(ADAPTERS), "tier": self.random.choice(TIERS)}
        return event_of(replica_id, kind, keys, **where)

    def entries(self, replica_id: str) -> Iterator[CacheEvent]:
        """All that a replica holds, as a report lists it."""
        held = self.truth.held_by("", MODEL, replica_id)
        for adapter_id in ADAPTERS:
            for tier in TIERS:
                keys = [
                    int.from_bytes(place.content_hash, "big")
                    for place, where in held
                    if place.key.adapter_id == adapter_id and where == tier
                ]
                if keys:
                    fields = {"adapter_id": adapter_id, "tier": tier}
                    yield event_of(replica_id, EventType.EMBEDDED, sorted(keys), **fields)

    async def report(self, replica_id: str) -> None:
        """Report what a replica holds."""
        assert self.publisher is not None
        async with self._calling:
            self._wanted.discard(replica_id)
            await self.publisher.report(replica_id, _Again(lambda: self.entries(replica_id)))
            self.reported.append(replica_id)

    async def _report_when_asked(self) -> None:
        while True:
            await self._new_wish.wait()
            self._new_wish.clear()
            for replica_id in sorted(self._wanted):
                await self.report(replica_id)

    @property
    def holds(self) -> dict[Place, frozenset[Hold]]:
        """What the index should come to."""
        return {place: entry.holds for place, entry in self.truth.entries.items()}

    async def settled(self) -> None:
        """Wait until everything is answered and nothing is owed."""
        assert self.publisher is not None
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                assert await self.publisher.flush(WAIT_S_MAX)
                if not self._wanted and not self._calling.locked():
                    return
                await asyncio.sleep(0.01)


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so, looking again and again."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not true():  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.01)


class _Again:
    """Entries that can be gone through again, for another attempt."""

    def __init__(self, make: Callable[[], Iterator[CacheEvent]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[CacheEvent]:
        return self._make()


async def holds_in(address: str) -> dict[Place, frozenset[Hold]]:
    """Who holds what on a server, as its watchers are told."""
    async with Watcher(address) as watcher:
        await watcher.bookmark(LIVE)
        return {place: entry[0] for place, entry in watcher.content().items()}


async def until_same(source: Source, address: str) -> None:
    """Wait until a server has what the source holds."""
    await source.settled()
    async with asyncio.timeout(WAIT_S_MAX):
        while (found := await holds_in(address)) != source.holds:
            await asyncio.sleep(0.05)
            await source.settled()
    assert found == source.holds
