"""The leases of one PublishEvents stream: every message of it renews all that it has set."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from warmindex import limits
from warmindex.errors import InvalidError, Reason, required
from warmindex.event import check_replica
from warmindex.record import Lease
from warmindex.wire import seconds_from_wire

from warmindex_server.access import allow_tenant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmindex.event import CacheEvent
    from warmindex.record import UsedNumber
    from warmindex.v1 import index_service_pb2 as pb

    from warmindex_server.leases.keeper import LeaseKeeper
    from warmindex_server.replicas import Heard, ReplicaKey


class Told(NamedTuple):
    """Whose leases a message sets, and whose of the stream's were late when it came."""

    keys: set[ReplicaKey]
    late: set[ReplicaKey]


class StreamLeases:
    """What a stream has set so far."""

    def __init__(self, keeper: LeaseKeeper, heard: Heard) -> None:
        self._keeper = keeper
        self._heard = heard
        self._set: dict[ReplicaKey, Lease] = {}

    def take(self, messages: Sequence[pb.ReplicaLease]) -> Told:
        """Take in the leases of a message.

        Raises InvalidError, and has taken none, where one of them is bad.
        """
        told = _leases_from_wire(messages)
        self._set.update(told)
        return Told(set(told), self._keeper.late(self._set))

    def renewed(self) -> AbstractContextManager[None]:
        """A message is worked on: whoever the stream stands for is heard from."""
        return self._heard.during(list(self._set))

    def to_journal(self, told: Told, events: Iterable[CacheEvent | UsedNumber]) -> list[Lease]:
        """The leases to journal with a message: the stream's, and those of whose events it has."""
        first = self._keeper.to_set(self._set, told.keys, told.late) if self._set else []
        others = {(event.tenant_id, event.replica_id) for event in events} - self._set.keys()
        return first + self._keeper.to_renew(others)

    @property
    def resync_required(self) -> bool:
        """Whether one of the stream's producers owes a report."""
        return self._keeper.resync_required(self._set)


def _leases_from_wire(messages: Sequence[pb.ReplicaLease]) -> dict[ReplicaKey, Lease]:
    if len(messages) > limits.LEASES_PER_MESSAGE_MAX:
        raise InvalidError(
            f"leases has {len(messages)} leases; at most {limits.LEASES_PER_MESSAGE_MAX} go "
            "into one message: send several",
            field="leases",
            reason=Reason.TOO_MANY,
        )
    return dict(_each_lease(messages))


def _each_lease(messages: Iterable[pb.ReplicaLease]) -> Iterable[tuple[ReplicaKey, Lease]]:
    for position, message in enumerate(messages):
        where = f"leases[{position}]"
        allow_tenant(message.tenant_id, f"{where}.tenant_id")
        check_replica(message.tenant_id, message.replica_id, where)
        if not message.HasField("ttl"):
            raise required(f"{where}.ttl", "it says how long the holds outlive the last message")
        ttl_s = seconds_from_wire(
            message.ttl,
            f"{where}.ttl",
            minimum_s=limits.LEASE_TTL_S_MIN,
            maximum_s=limits.LEASE_TTL_S_MAX,
        )
        lease = Lease(
            replica_id=message.replica_id,
            tenant_id=message.tenant_id,
            ttl_ms=round(ttl_s * 1000),
        )
        yield (message.tenant_id, message.replica_id), lease
