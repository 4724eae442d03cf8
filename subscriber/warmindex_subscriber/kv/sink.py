"""Where a sidecar's events go: the seam between the engine's side and the publisher's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from warmindex.event import CacheEvent


class EventSink(Protocol):
    """Takes the events of any number of replicas and sees that they arrive, in order.

    Events carry neither epoch nor sequence: numbering, batching, retries and the lease of
    every replica that it has seen are the sink's. Per replica the calls never overlap.
    """

    async def publish(self, events: Sequence[CacheEvent]) -> None:
        """Accept events of one replica, in order; wait while there is no room for them.

        Returns once they are accepted, not once they are acknowledged. It must not wait for
        ever where a resync of the replica is wanted: the report that follows covers all
        that is still queued for it, so that may be dropped.
        """

    async def report(self, replica_id: str, entries: Iterable[CacheEvent]) -> None:
        """Replace all that the index has of the replica by `entries`, in one step.

        It supersedes everything published for the replica before. `entries` are EMBEDDED
        events; they can be iterated again for another attempt, until the call returns.
        """


# Called by the sink, from the event loop's thread, when the index asks for all that a
# replica holds (a gap in its numbers, a lost lease, another history). It returns at once;
# a `report` of that replica follows.
ResyncWanted: TypeAlias = Callable[[str], None]

# Opens a sink for the replicas named; leaving the context flushes it.
SinkFactory: TypeAlias = Callable[
    [Sequence[str], ResyncWanted], AbstractAsyncContextManager[EventSink]
]
