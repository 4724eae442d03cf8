"""When each replica was last heard from. A matter of the servers' clocks, never of the index.

Servers that share a journal tell each other: what one has heard itself and the others cannot
know from the journal is its news.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import TypeAlias

from warmindex.event import CacheEvent, Cause
from warmindex.index import Applied
from warmindex.record import Conditional, Record, Report, UsedNumber

# A replica is known by its tenant and its name, in this order.
ReplicaKey: TypeAlias = tuple[str, str]


class During:
    """Entered while something of some replicas is worked on; every publish makes one."""

    __slots__ = ("_heard", "_keys")

    def __init__(self, heard: Heard, keys: Collection[ReplicaKey]) -> None:
        self._heard = heard
        self._keys = keys

    def __enter__(self) -> None:
        self._heard.begin(self._keys)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._heard.end(self._keys)


class Heard:
    """Notes each replica's last sign of life; a listener of the store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at_s: dict[ReplicaKey, float] = {}
        self._under_way: dict[ReplicaKey, int] = {}
        self._news: set[ReplicaKey] | None = None

    def applied(self, record: Record, applied: Applied) -> None:  # noqa: ARG002 - any verdict counts
        """A record of the producer's own is a sign of life; one that a server made is not."""
        if isinstance(record, Conditional):
            record = record.record
        if (isinstance(record, CacheEvent) and record.cause is Cause.NONE) or isinstance(
            record, UsedNumber | Report
        ):
            self._at_s[record.tenant_id, record.replica_id] = self._clock()

    def note(self, key: ReplicaKey) -> None:
        """The replica has just been heard from, here."""
        self._at_s[key] = self._clock()
        if self._news is not None:
            self._news.add(key)

    def note_at(self, key: ReplicaKey, at_s: float) -> None:
        """Another server has heard from the replica, at a time on this one's clock."""
        if at_s > self._at_s.get(key, float("-inf")):
            self._at_s[key] = at_s

    def during(self, keys: Collection[ReplicaKey]) -> During:
        """What the replicas sent is being worked on: they are heard from for as long.

        A producer waits for its answer before it goes on, so a slow journal must not be
        taken for a silent producer.
        """
        return During(self, keys)

    def begin(self, keys: Iterable[ReplicaKey]) -> None:
        """Work on what these sent begins; `during` calls this."""
        under_way = self._under_way
        for key in keys:
            under_way[key] = under_way.get(key, 0) + 1

    def end(self, keys: Iterable[ReplicaKey]) -> None:
        """That work has ended; `during` calls this."""
        under_way = self._under_way
        for key in keys:
            self.note(key)
            left = under_way.pop(key) - 1
            if left:
                under_way[key] = left

    def last_s(self, key: ReplicaKey) -> float | None:
        """When the replica was heard from, by the clock; None if never since the start."""
        return self._clock() if key in self._under_way else self._at_s.get(key)

    def ago_s(self, key: ReplicaKey) -> float | None:
        """Seconds since the replica was heard from; None if it never was since the start."""
        last_s = self.last_s(key)
        return None if last_s is None else max(0.0, self._clock() - last_s)

    # ---- between servers ---------------------------------------------------------------

    def share(self) -> None:
        """Collect news from now on: somebody takes them."""
        self._news = set()

    def take_news(self) -> set[ReplicaKey]:
        """Who was heard from here since this was last asked, and who is just being heard."""
        news, self._news = self._news or set(), set()
        return news | self._under_way.keys()

    def give_back_news(self, keys: Collection[ReplicaKey]) -> None:
        """Nobody could be told."""
        if self._news is not None:
            self._news.update(keys)
