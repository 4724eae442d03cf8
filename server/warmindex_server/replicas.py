"""When each replica was last heard from. A matter of this server's clock, never of the index."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from warmindex.event import CacheEvent, Cause
from warmindex.index import Applied
from warmindex.record import Conditional, Record, Report, UsedNumber

# A replica is known by its tenant and its name, in this order.
ReplicaKey: TypeAlias = tuple[str, str]


class Heard:
    """Notes each replica's last sign of life; a listener of the store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at_s: dict[ReplicaKey, float] = {}
        self._under_way: Counter[ReplicaKey] = Counter()

    def applied(self, record: Record, applied: Applied) -> None:  # noqa: ARG002 - any verdict counts
        """A record of the producer's own is a sign of life; one that a server made is not."""
        if isinstance(record, Conditional):
            record = record.record
        if (isinstance(record, CacheEvent) and record.cause is Cause.NONE) or isinstance(
            record, UsedNumber | Report
        ):
            self.note((record.tenant_id, record.replica_id))

    def note(self, key: ReplicaKey) -> None:
        """The replica has just been heard from."""
        self._at_s[key] = self._clock()

    @contextmanager
    def during(self, keys: Collection[ReplicaKey]) -> Iterator[None]:
        """What the replicas sent is being worked on: they are heard from for as long.

        A producer waits for its answer before it goes on, so a slow journal must not be
        taken for a silent producer.
        """
        self._under_way.update(keys)
        try:
            yield
        finally:
            now_s = self._clock()
            for key in keys:
                self._at_s[key] = now_s
                self._under_way[key] -= 1
                if not self._under_way[key]:
                    del self._under_way[key]

    def last_s(self, key: ReplicaKey) -> float | None:
        """When the replica was heard from, by the clock; None if never since the start."""
        return self._clock() if key in self._under_way else self._at_s.get(key)

    def ago_s(self, key: ReplicaKey) -> float | None:
        """Seconds since the replica was heard from; None if it never was since the start."""
        last_s = self.last_s(key)
        return None if last_s is None else max(0.0, self._clock() - last_s)
