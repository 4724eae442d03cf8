"""What a journal records, and what a snapshot is made of.

The index is a pure function of its records: whatever depends on its state is decided when a
record is applied. That goes for conditions too. What a server does by itself (a lease that
ran out, a report, an idle entry) was judged on a state that may have changed before its
record comes first in the journal; `Conditional` carries what it was judged on, and where
that no longer holds the record is a no-op, on every server alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from warmindex.errors import required
from warmindex.event import CacheEvent, check_number, check_producer


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedNumber:
    """A producer's number whose event was invalid: used up, and nothing else changed."""

    replica_id: str
    model_id: str
    tenant_id: str = ""
    epoch: int
    sequence: int

    def __post_init__(self) -> None:
        """Validate."""
        check_producer(self.tenant_id, self.model_id, self.replica_id)
        check_number(self.epoch, self.sequence)
        if not self.epoch:
            raise required("event.epoch", "without a number there is none to use up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """All that a replica holds in a tenant is tied to its being heard from.

    `ttl_ms` is how long the holds outlive the last sign of life; 0 ends the lease. The
    revision of the record that set it is the lease's generation.
    """

    replica_id: str
    tenant_id: str = ""
    ttl_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a full report changes, as the difference to what the index held.

    `changes` are EMBEDDED events for what was missing and EVICTED ones (cause REPORT,
    `adapter_scoped`, one scheme and tier each) for what the report does not list. All are
    the producer's own and carry no numbers. `epoch` 0 leaves the numbering alone.
    """

    replica_id: str
    model_id: str
    tenant_id: str = ""
    epoch: int = 0
    sequence: int = 0
    changes: tuple[CacheEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional:
    """A record that applies only while what it was judged on still holds.

    `lease_generation`, where not None, must be the generation of the lease of
    (`tenant_id`, `replica_id`). `unchanged_since`, where not None, is a revision after which
    no record may have changed what that replica holds in the record's model.
    """

    record: CacheEvent | Lease | Report
    lease_generation: int | None = None
    unchanged_since: int | None = None


Record: TypeAlias = CacheEvent | UsedNumber | Lease | Report | Conditional


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A producer's numbering in a snapshot: as it stood at the snapshot's revision."""

    replica_id: str
    model_id: str
    tenant_id: str = ""
    epoch: int = 0
    sequence: int = 0
    resync_required: bool = False
    changed_revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """A lease in a snapshot."""

    replica_id: str
    tenant_id: str = ""
    ttl_ms: int
    generation: int


SnapshotPart: TypeAlias = CacheEvent | ProducerState | LeaseState
