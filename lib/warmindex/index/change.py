"""What a record did: the verdict on it, and the changes that watchers are told.

A change is the effect of an event in one partition and tier. It refers to the event that
caused it and to the positions that changed, so that it costs nothing until someone watches.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from warmindex.errors import Reason
from warmindex.event import CacheEvent, EventType, Tier

if TYPE_CHECKING:
    from collections.abc import Sequence


class Outcome(IntEnum):
    """The verdict on one record; 1 to 6 are the contract's numbers."""

    APPLIED = 1
    UNCHANGED = 2
    DUPLICATE = 3
    REFUSED = 4
    FENCED = 5
    LIMITED = 6
    # What the record was judged on no longer holds. Never on the wire.
    OVERTAKEN = 100


class Change(NamedTuple):
    """One effect: `content_hashes` of `event` changed in one partition and tier.

    `positions` are their places in the event, for its vectors and documents; None on EVICTED
    and where they are all of them.
    """

    event: CacheEvent
    hash_scheme: str
    adapter_id: str
    tier: Tier
    content_hashes: Sequence[bytes]
    positions: Sequence[int] | None = None

    def as_event(self) -> CacheEvent:
        """The effect as an event of its own: without a number, and scoped to its adapter."""
        event, positions = self.event, self.positions
        embeddings, documents = event.embeddings, event.documents
        if positions is not None:
            picked = list(positions)
            embeddings = embeddings[picked] if embeddings is not None else None
            documents = [documents[position] for position in picked] if documents else ()
        return CacheEvent(
            type=event.type,
            replica_id=event.replica_id,
            model_id=event.model_id,
            tenant_id=event.tenant_id,
            content_hashes=self.content_hashes,
            timestamp_us=event.timestamp_us,
            adapter_id=self.adapter_id,
            adapter_scoped=event.type is EventType.EVICTED,
            hash_scheme=self.hash_scheme,
            embeddings=embeddings,
            documents=documents,
            token_count=event.token_count,
            tier=self.tier,
            cause=event.cause,
        )


class Applied(NamedTuple):
    """What became of one record.

    `vectors_replaced` counts vectors that took the place of others under the same key: a
    backend that is not what its identity says.
    """

    outcome: Outcome
    revision: int
    holds_added: int = 0
    holds_removed: int = 0
    resync_required: bool = False
    changes: Sequence[Change] = ()
    error: str = ""
    reason: Reason = Reason.UNSPECIFIED
    current_epoch: int = 0
    vectors_replaced: int = 0
