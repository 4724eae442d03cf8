"""The replicas that one publisher speaks for: what is published of them, and what is learned.

Mostly it is one. A publisher's batches name a data-parallel rank, and each rank is a replica
with blocks of its own. Pure: what comes of a batch is collected until it is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warmindex.event import CacheEvent

from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import Batch
from warmindex_subscriber.kv.outbox import Entries, Outbox, Producer
from warmindex_subscriber.kv.residence import Output, Residence


class _Nowhere:
    """Where holds go that are learned and not published."""

    def began(self, *_: object) -> None:
        """Say nothing."""

    def ended(self, *_: object) -> None:
        """Say nothing."""

    def cleared(self) -> None:
        """Say nothing."""


_NOWHERE: Final[Output] = _Nowhere()


class Replicas:
    """One residence per replica, and a second set of them while a replay is learned.

    `replica_of_rank` names the replica of the rank that a batch names, or of None.
    """

    def __init__(
        self,
        tenant_id: str,
        model_id: str,
        replica_of_rank: Callable[[int | None], str],
        new_residence: Callable[[], Residence],
    ) -> None:
        self._tenant_id = tenant_id
        self._model_id = model_id
        self._replica_of_rank = replica_of_rank
        self._new_residence = new_residence
        self._published: dict[str, Residence] = {}
        self._learned: dict[str, Residence] = {}
        self._outboxes: dict[str, Outbox] = {}

    @property
    def replica_ids(self) -> list[str]:
        """Those of which anything is published."""
        return list(self._published)

    def deliver(self, batch: Batch) -> None:
        """Apply a batch to what is published."""
        replica_id = self._replica_of_rank(batch.rank)
        residence = self._published.get(replica_id)
        if residence is None:
            residence = self._published[replica_id] = self._new_residence()
            # Nobody knows what the index has of it from an earlier life of this process.
            self._outbox(replica_id).cleared()
        outbox = self._outbox(replica_id)
        outbox.timestamp_us = batch.timestamp_us
        residence.apply(batch.events, outbox)

    def clear(self) -> None:
        """Nothing is held any more."""
        for replica_id, residence in self._published.items():
            residence.clear(self._outbox(replica_id))

    def learn(self, batch: Batch) -> None:
        """Apply a batch to what is learned."""
        replica_id = self._replica_of_rank(batch.rank)
        residence = self._learned.get(replica_id)
        if residence is None:
            residence = self._learned[replica_id] = self._new_residence()
        residence.apply(batch.events, _NOWHERE)

    def forget(self) -> None:
        """What was learned is void."""
        self._learned = {}

    def adopt(self) -> list[str]:
        """Put what was learned in the place of what is published; the replicas to report."""
        learned, self._learned = self._learned, {}
        for replica_id in (*self._published, self._replica_of_rank(None)):
            learned.setdefault(replica_id, self._new_residence())
        for outbox in self._outboxes.values():
            # The reports say it all.
            outbox.drop()
        self._published = learned
        return list(learned)

    def entries(self, replica_id: str) -> Entries:
        """All that is published of the replica. What waits in its outbox is part of it."""
        residence = self._published.get(replica_id)
        if residence is None:
            residence = self._published[replica_id] = self._new_residence()
        self._outbox(replica_id).drop()
        return Entries(self._producer(replica_id), residence.holds)

    def take(self) -> list[list[CacheEvent]]:
        """What came of it all since the last time, one list per replica."""
        taken = [outbox.take() for outbox in self._outboxes.values()]
        return [events for events in taken if events]

    def _outbox(self, replica_id: str) -> Outbox:
        outbox = self._outboxes.get(replica_id)
        if outbox is None:
            outbox = self._outboxes[replica_id] = Outbox(self._producer(replica_id))
        return outbox

    def _producer(self, replica_id: str) -> Producer:
        return Producer(self._tenant_id, self._model_id, replica_id)


def residence_factory(
    adapters: Adapters, counters: Counters, native_scheme: str | None
) -> Callable[[], Residence]:
    """What makes the residences of one engine."""

    def new_residence() -> Residence:
        return Residence(adapters, counters, native_scheme)

    return new_residence
