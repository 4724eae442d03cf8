"""Holds that begin and end -> few `CacheEvent`s, in order.

Engines say little at a time: one block removed, sixty-four stored. What concerns one
partition and tier is put together into one event while it is of one kind; what concerns
different ones touches different holds, so that their order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from warmindex import limits
from warmindex.event import CacheEvent, EventType, Tier

from warmindex_subscriber.kv.ledger import Partition


class Producer(NamedTuple):
    """Whose events they are."""

    tenant_id: str
    model_id: str
    replica_id: str


class _Run:
    """Keys of one partition and tier that go into one event."""

    __slots__ = ("keys", "type")

    def __init__(self, kind: EventType) -> None:
        self.type = kind
        self.keys: list[bytes] = []


class Outbox:
    """Collects what becomes of one replica's holds, until it is taken."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._closed: list[CacheEvent] = []
        self._open: dict[tuple[Partition, Tier], _Run] = {}
        # The engine's clock at the newest batch: informative, in events that are made now.
        self.timestamp_us = 0

    def __len__(self) -> int:
        """The number of events that `take` would give."""
        return len(self._closed) + len(self._open)

    def began(self, partition: Partition, tier: Tier, keys: Sequence[bytes]) -> None:
        """The replica now holds the keys."""
        run = self._run(partition, tier, EventType.EMBEDDED)
        run.keys.extend(keys)
        if len(run.keys) >= limits.CONTENT_HASHES_MAX:
            self._close((partition, tier), self._open.pop((partition, tier)))

    def ended(self, partition: Partition, tier: Tier, key: bytes) -> None:
        """The replica no longer holds the key."""
        run = self._run(partition, tier, EventType.EVICTED)
        run.keys.append(key)
        if len(run.keys) >= limits.CONTENT_HASHES_MAX:
            self._close((partition, tier), self._open.pop((partition, tier)))

    def cleared(self) -> None:
        """The replica holds nothing any more."""
        self._close_all()
        self._closed.append(self._event(EventType.ALL_CLEARED))

    def drop(self) -> None:
        """Forget what was not taken: a report says it all anew."""
        self._closed = []
        self._open = {}

    @property
    def full(self) -> bool:
        """Whether there are events to which nothing can be added."""
        return bool(self._closed)

    def take_full(self) -> list[CacheEvent]:
        """Those alone."""
        events, self._closed = self._closed, []
        return events

    def take(self) -> list[CacheEvent]:
        """All events since the last time, in order."""
        self._close_all()
        return self.take_full()

    def _run(self, partition: Partition, tier: Tier, kind: EventType) -> _Run:
        place = (partition, tier)
        run = self._open.get(place)
        if run is None or run.type is not kind:
            if run is not None:
                self._close(place, run)
            run = self._open[place] = _Run(kind)
        return run

    def _close_all(self) -> None:
        for place, run in self._open.items():
            self._close(place, run)
        self._open = {}

    def _close(self, place: tuple[Partition, Tier], run: _Run) -> None:
        partition, tier = place
        for start in range(0, len(run.keys), limits.CONTENT_HASHES_MAX):
            keys = run.keys[start : start + limits.CONTENT_HASHES_MAX]
            self._closed.append(self._event(run.type, partition, tier, keys))

    def _event(
        self,
        kind: EventType,
        partition: Partition | None = None,
        tier: Tier = Tier.UNSPECIFIED,
        keys: Sequence[bytes] = (),
    ) -> CacheEvent:
        producer = self._producer
        embedded = partition is not None and kind is EventType.EMBEDDED
        return CacheEvent(
            type=kind,
            replica_id=producer.replica_id,
            model_id=producer.model_id,
            tenant_id=producer.tenant_id,
            content_hashes=keys,
            timestamp_us=self.timestamp_us,
            adapter_id="" if partition is None else partition.adapter_id,
            # The empty adapter is the base model's partition here, never all of them.
            adapter_scoped=partition is not None,
            hash_scheme="" if partition is None else partition.hash_scheme,
            token_count=partition.block_tokens if partition is not None and embedded else 0,
            tier=tier,
        )


class Entries:
    """All that a replica holds, as EMBEDDED events: made anew each time they are iterated."""

    def __init__(
        self,
        producer: Producer,
        holds: Callable[[], Iterator[tuple[Partition, Tier, bytes]]],
    ) -> None:
        self._producer = producer
        self._holds = holds

    def __iter__(self) -> Iterator[CacheEvent]:
        """The events, in no particular order, few of them in memory at a time."""
        outbox = Outbox(self._producer)
        for partition, tier, key in self._holds():
            outbox.began(partition, tier, (key,))
            if outbox.full:
                yield from outbox.take_full()
        yield from outbox.take()
