"""Which replicas have a lease on the present stream, and which are still to get one. Pure.

A lease is set with the first message that goes out after its replica was named, and every
message of the stream renews it. A replica that another life of it has taken over gets none:
this one must not keep that one's holds alive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice

from warmindex import limits
from warmindex.record import Lease

from warmindex_subscriber.publisher.replica import Replica


class Leases:
    """The leases of one stream after the other; none at all where `ttl_s` is 0."""

    def __init__(self, tenant_id: str, ttl_s: float) -> None:
        self._tenant_id = tenant_id
        self._ttl_ms = round(ttl_s * 1000)
        self._told: set[str] = set()
        self._held: set[str] = set()
        # Of each message under way: for whom it has set leases.
        self._messages: deque[list[str]] = deque()

    def holds(self, replica_id: str) -> bool:
        """Whether the server has confirmed the replica's lease, or needs not."""
        return not self._ttl_ms or replica_id in self._held

    def wanting(self, replicas: Collection[Replica]) -> bool:
        """Whether `next` would give any."""
        return any(self._fresh(replicas))

    def next(self, replicas: Collection[Replica]) -> list[Lease]:
        """The leases to send with the next message: for those that have none on this stream.

        A message takes so many; more of them go with the one after it.
        """
        fresh = list(islice(self._fresh(replicas), limits.LEASES_PER_MESSAGE_MAX))
        self._told.update(fresh)
        self._messages.append(fresh)
        return [
            Lease(replica_id=each, tenant_id=self._tenant_id, ttl_ms=self._ttl_ms) for each in fresh
        ]

    def _fresh(self, replicas: Collection[Replica]) -> Iterator[str]:
        if not self._ttl_ms or len(self._told) == len(replicas):
            return
        for replica in replicas:
            if replica.replica_id not in self._told and not replica.fenced:
                yield replica.replica_id

    def answered(self) -> None:
        """The oldest message has been answered."""
        self._held.update(self._messages.popleft())

    def disconnected(self) -> None:
        """The stream has ended, and with it what renewed its leases."""
        self._told.clear()
        self._held.clear()
        self._messages.clear()
