"""The index: a pure function of the journal's records.

    record --apply--> Applied (verdict, changes)          queries read what is there

Same records in the same order give the same state, on every server and after every
restart. There is no clock, no I/O and no chance in here, and applying never raises: what
does not fit the state (another width, a number that was used, a report that was overtaken)
is a record that changes nothing, and is answered so.

State, from the outside in:

    Index       leases; models by (tenant, model)
      Model     holders (bits), producers (numbers), scopes by hash scheme
        Scope     partitions by adapter
          Partition   entries, vectors, documents, token counts
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warmindex.errors import InvalidError, Reason
from warmindex.event import CacheEvent, EventType, PartitionKey
from warmindex.hashing import chain_block_size
from warmindex.index.change import Applied, Outcome
from warmindex.index.model import Model
from warmindex.index.partition import Fetched
from warmindex.index.producers import (
    Standing,
    advance,
    after_clear,
    after_report,
    judge,
)
from warmindex.index.reports import judged, sum_of
from warmindex.index.search import search
from warmindex.index.verdicts import not_in_order, other_width, overtaken
from warmindex.index.versions import Versions
from warmindex.limits import SEARCH_LIMIT_DEFAULT
from warmindex.record import Conditional, Lease, LeaseState, Report, UsedNumber

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from warmindex.index.change import Change
    from warmindex.index.partition import Alive, Partition
    from warmindex.index.producers import Producer
    from warmindex.index.search import Hit, SearchOptions
    from warmindex.record import Record, SnapshotPart


class Query(NamedTuple):
    """What is searched for: by meaning, by words, or by both.

    `embedding` is float32 of shape (dimensions,). `allowed`, where not None, limits the
    answer to these hashes.
    """

    embedding: NDArray[np.float32] | None = None
    text: str = ""
    keywords: Sequence[str] = ()
    allowed: Collection[bytes] | None = None
    limit: int = SEARCH_LIMIT_DEFAULT
    max_distance: float = 1.0

    @property
    def has_words(self) -> bool:
        """Whether there is anything for the words arm."""
        return bool(self.text or self.keywords)


class Index:
    """What the records so far add up to; `revision` is the last one's."""

    def __init__(self, revision: int = 0) -> None:
        self.revision = revision
        self.models: dict[tuple[str, str], Model] = {}
        self.leases: dict[tuple[str, str], LeaseState] = {}
        self.versions = Versions()
        self._to_sweep: set[tuple[str, str]] = set()

    # ---- applying ----------------------------------------------------------------------

    def apply(self, revision: int, record: Record) -> Applied:
        """Apply one record; revisions must rise."""
        self.revision = revision
        if isinstance(record, CacheEvent):
            return self._apply_event(revision, record)
        if isinstance(record, Conditional):
            return self._apply_conditional(revision, record)
        if isinstance(record, UsedNumber):
            return self._apply_used_number(revision, record)
        if isinstance(record, Lease):
            return self._apply_lease(revision, record)
        return self._apply_report(revision, record)

    def apply_in_steps(self, revision: int, record: Record) -> Iterator[Applied | None]:
        """The same, a little at a time where it is a report; the verdict comes last.

        For a report so large that applying it at once would hold up everybody else (see
        `is_large`). Nothing else may be applied in between. Until the last step `revision` is
        the last record's, and queries meet the report half applied.
        """
        report = record.record if isinstance(record, Conditional) else record
        holds = not isinstance(record, Conditional) or self._still_holds(record)
        if isinstance(report, Report) and holds:
            yield from self._report_steps(revision, report)
        else:
            yield self.apply(revision, record)

    def _apply_event(self, revision: int, event: CacheEvent) -> Applied:
        model = self.models.get((event.tenant_id, event.model_id))
        if model is None:
            if event.type is not EventType.EMBEDDED and not event.epoch:
                return Applied(Outcome.UNCHANGED, revision)
            model = self._model(event.tenant_id, event.model_id)
        producer = model.producer(event.replica_id)
        self.versions.keep_numbers(producer)
        standing = None
        had_holds = False
        if event.epoch:
            standing, applies = judge(producer, event.epoch, event.sequence)
            if not applies:
                return not_in_order(revision, producer, standing)
            had_holds = standing is Standing.NEW_LIFE and bool(
                model.holders.holds_of(event.replica_id)
            )
        applied = self._change_holds(revision, model, event)
        if applied.changes:
            producer.changed_revision = revision
        if standing is not None:
            advance(producer, event.epoch, event.sequence, standing, had_holds)
        if event.type is EventType.ALL_CLEARED:
            after_clear(producer, event, applied.holds_removed)
        if producer.resync_required:
            return applied._replace(resync_required=True)
        return applied

    def _change_holds(self, revision: int, model: Model, event: CacheEvent) -> Applied:
        added = removed = replaced = 0
        changes: list[Change]
        if event.type is EventType.EMBEDDED:
            width = model.width_conflict(event)
            if width:
                return other_width(revision, event, width)
            added, changes, replaced = model.embedded(event)
        elif event.type is EventType.EVICTED:
            removed, changes = model.evicted(event)
        else:
            removed, changes = model.cleared(event)
            if removed:
                self._to_sweep.add((event.tenant_id, event.model_id))
        if not changes:
            return Applied(Outcome.UNCHANGED, revision)
        return Applied(
            Outcome.APPLIED, revision, added, removed, False, changes, vectors_replaced=replaced
        )

    def _apply_used_number(self, revision: int, used: UsedNumber) -> Applied:
        model = self._model(used.tenant_id, used.model_id)
        producer = model.producer(used.replica_id)
        self.versions.keep_numbers(producer)
        standing, applies = judge(producer, used.epoch, used.sequence)
        if applies:
            had_holds = bool(model.holders.holds_of(used.replica_id))
            advance(producer, used.epoch, used.sequence, standing, had_holds)
        return Applied(Outcome.REFUSED, revision, resync_required=producer.resync_required)

    def _apply_conditional(self, revision: int, conditional: Conditional) -> Applied:
        if not self._still_holds(conditional):
            return overtaken(revision)
        return self.apply(revision, conditional.record)

    def _still_holds(self, conditional: Conditional) -> bool:
        """Whether what a record was judged on is still so."""
        record = conditional.record
        if conditional.lease_generation is not None:
            lease = self.leases.get((record.tenant_id, record.replica_id))
            if lease is None or lease.generation != conditional.lease_generation:
                return False
        if conditional.unchanged_since is None or isinstance(record, Lease):
            return True
        producer = self.producer(record.tenant_id, record.model_id, record.replica_id)
        return producer is None or producer.changed_revision <= conditional.unchanged_since

    def _apply_lease(self, revision: int, lease: Lease) -> Applied:
        key = (lease.tenant_id, lease.replica_id)
        if lease.ttl_ms:
            self.leases[key] = LeaseState(
                replica_id=lease.replica_id,
                tenant_id=lease.tenant_id,
                ttl_ms=lease.ttl_ms,
                generation=revision,
            )
            return Applied(Outcome.APPLIED, revision)
        gone = self.leases.pop(key, None)
        return Applied(Outcome.APPLIED if gone else Outcome.UNCHANGED, revision)

    def _apply_report(self, revision: int, report: Report) -> Applied:
        *_, applied = self._report_steps(revision, report)
        assert applied is not None  # noqa: S101 - the last step has the verdict
        return applied

    def _report_steps(self, revision: int, report: Report) -> Iterator[Applied | None]:
        """A step for each event, and the verdict with the last one."""
        model = self._model(report.tenant_id, report.model_id)
        producer = model.producer(report.replica_id)
        parts = []
        applied = judged(revision, model, producer, report)
        if applied is None:
            for event in report.changes:
                parts.append(self._change_holds(revision, model, event))
                yield None
            applied = sum_of(revision, parts)
            self.versions.keep_numbers(producer)
            after_report(producer, report)
            if applied.changes:
                producer.changed_revision = revision
        self.revision = revision
        yield applied

    def _model(self, tenant_id: str, model_id: str) -> Model:
        key = (tenant_id, model_id)
        model = self.models.get(key)
        if model is None:
            model = self.models[key] = Model(self.versions)
        return model

    @property
    def reclaimable(self) -> bool:
        """Whether clears have retired something that still takes memory."""
        return bool(self._to_sweep)

    def reclaim_step(self) -> bool:
        """Give back a little of what clears have retired; whether there is more to do."""
        key = next(iter(self._to_sweep), None)
        if key is not None and not self.models[key].sweep_step():
            self._to_sweep.discard(key)
        return bool(self._to_sweep)

    # ---- restoring ---------------------------------------------------------------------

    def restore(self, state: SnapshotPart) -> None:
        """Take over a part of a snapshot; all of them must come before the next record."""
        if isinstance(state, CacheEvent):
            self._change_holds(self.revision, self._model(state.tenant_id, state.model_id), state)
            return
        if isinstance(state, LeaseState):
            self.leases[state.tenant_id, state.replica_id] = state
            return
        producer = self._model(state.tenant_id, state.model_id).producer(state.replica_id)
        producer.epoch = state.epoch
        producer.sequence = state.sequence
        producer.resync_required = state.resync_required
        producer.changed_revision = state.changed_revision

    # ---- looking -----------------------------------------------------------------------

    def partition(self, key: PartitionKey) -> Partition | None:
        """The partition that a key addresses, or None; it may hold retired entries only."""
        model = self.models.get((key.tenant_id, key.model_id))
        scope = model.schemes.get(key.hash_scheme) if model else None
        return scope.partitions.get(key.adapter_id) if scope else None

    def fetch(self, key: PartitionKey, hashes: Sequence[bytes], bytes_max: int) -> Fetched:
        """The vectors that a partition has for some hashes, as many as fit into `bytes_max`."""
        partition = self.partition(key)
        if partition is None:
            return Fetched([False] * len(hashes), 0, 0, ())
        return partition.fetch(hashes, bytes_max, self._alive(key, partition))

    def search(self, key: PartitionKey, query: Query, options: SearchOptions) -> list[Hit]:
        """The best documents of a partition; InvalidError where the query has another width."""
        partition = self.partition(key)
        if partition is None:
            return []
        alive = self._alive(key, partition)
        width = partition.dimensions_live(
            self.models[key.tenant_id, key.model_id].holders.live, alive is not None
        )
        if query.embedding is not None and width and width != len(query.embedding):
            raise InvalidError(
                f"query_embedding.dimensions is {len(query.embedding)}, the partition's vectors "
                f"have {width}: embed the query with the model of the partition",
                field="query_embedding.dimensions",
                reason=Reason.DIMENSIONS_MISMATCH,
            )
        return search(
            partition.vectors if width else None,
            partition.words() if query.has_words else None,
            query=query.embedding if width else None,
            query_text=query.text,
            keywords=query.keywords,
            allowed=query.allowed,
            limit=query.limit,
            max_distance=query.max_distance,
            alive=alive,
            options=options,
        )

    def chain_schemes(self, key: PartitionKey) -> list[str]:
        """The model's schemes of the kind xxh3-chain/N, whatever the key's own scheme."""
        model = self.models.get((key.tenant_id, key.model_id))
        return [name for name in model.schemes if chain_block_size(name)] if model else []

    def _alive(self, key: PartitionKey, partition: Partition) -> Alive | None:
        holders = self.models[key.tenant_id, key.model_id].holders
        return partition.alive(holders.live) if holders.retired else None

    def producer(self, tenant_id: str, model_id: str, replica_id: str) -> Producer | None:
        """What is known of a producer's numbering."""
        model = self.models.get((tenant_id, model_id))
        return model.producers.get(replica_id) if model else None

    def models_of(self, tenant_id: str) -> Iterable[tuple[str, Model]]:
        """The tenant's models in which anything is held, by name."""
        return sorted(
            (
                (name, model)
                for (tenant, name), model in self.models.items()
                if tenant == tenant_id and not model.holders.empty
            ),
            key=lambda item: item[0],
        )
