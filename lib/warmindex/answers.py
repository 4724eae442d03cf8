"""What the index answers, in the domain's words: plain values without a stub in sight."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from warmindex.errors import Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmindex.event import Document, FloatMatrix, PartitionKey, Tier
    from warmindex.index.change import Outcome
    from warmindex.index.route import Match
    from warmindex.index.route import Reason as RouteReason


class KeyState(IntEnum):
    """What a partition knows of one key. The numbers are the contract's."""

    FOUND = 1
    ABSENT = 2
    CLAIMED = 3
    PENDING = 4
    DEFERRED = 5

    @classmethod
    def of(cls, number: int) -> KeyState:
        """The state of a number; one that a newer server knows is read as ABSENT."""
        return _STATES.get(number, cls.ABSENT)


_STATES = {int(state): state for state in KeyState}


class Embeddings(NamedTuple):
    """The answer to one fetch: a state per hash asked for.

    `vectors` is float32 of shape (number of FOUND, dimensions), in the order asked for.
    """

    states: list[KeyState]
    vectors: FloatMatrix
    revision: int
    history_id: str


class PublishResult(NamedTuple):
    """What became of one event."""

    outcome: Outcome
    revision: int
    holds_changed: int
    resync_required: bool
    error: str
    reason: Reason
    current_epoch: int
    history_id: str


class ReportResult(NamedTuple):
    """What a report changed."""

    revision: int
    holds_added: int
    holds_removed: int


class SearchHit(NamedTuple):
    """One ranked document.

    `score` is 0 to 1, higher is better. `distance` is the cosine distance (0 the same, 2
    opposite), None where the meaning arm did not rank it; `lexical_score` the BM25 score,
    None where the words arm did not.
    """

    content_hash: bytes
    document: Document
    score: float
    distance: float | None
    lexical_score: float | None


class RouteAnswer(NamedTuple):
    """Replicas by the length of their run, longest first, and why."""

    matches: Sequence[Match]
    reason: RouteReason
    revision: int
    replicas_in_scope: int


class ServerInfo(NamedTuple):
    """Who answers; `journal` is "memory", "sqlite" or "redis"."""

    version: str
    history_id: str
    revision: int
    journal: str
    entries: int


class PartitionView(NamedTuple):
    """One partition's size."""

    key: PartitionKey
    entries: int
    embeddings: int
    dimensions: int
    replicas: int
    memory_bytes: int


class ReplicaView(NamedTuple):
    """One replica in one model; times are None where there are none."""

    replica_id: str
    model_id: str
    holds: int
    epoch: int
    sequence: int
    resync_required: bool
    lease_remaining_s: float | None
    heard_ago_s: float | None


class EntryView(NamedTuple):
    """One content hash in one partition."""

    partition: PartitionKey
    holds: Sequence[tuple[str, Tier]]
    document: Document | None
    dimensions: int
