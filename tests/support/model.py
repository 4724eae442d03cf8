"""What an index must answer, in the plainest way: one dictionary of entries.

`PlainIndex` takes the records that `warmindex.index.Index` takes and answers what it
answers. It knows no bits, groups, sweeps or caches, walks over everything it has for every
question, and so is slow and easily seen to be right. Whatever claims to hold an index (the
real one, a server, a server after a crash) is held against it.

    PlainIndex   entries     (partition, content hash) -> Entry; an entry has a hold, or is not
                 producers   (tenant, model, replica)  -> Numbering
                 leases      (tenant, replica)         -> generation and ttl

What can be asked of it is in `support.questions`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from warmindex.event import EMPTY_DOCUMENT, CacheEvent, Cause, EventType, PartitionKey, Tier
from warmindex.index import Outcome
from warmindex.record import Conditional, Lease, Report, UsedNumber

if TYPE_CHECKING:
    from warmindex.event import Document
    from warmindex.record import Record


class Place(NamedTuple):
    """Where an entry is."""

    key: PartitionKey
    content_hash: bytes


class Hold(NamedTuple):
    """Who holds an entry, and where; in the order in which holds are listed."""

    replica_id: str
    tier: Tier


class Entry(NamedTuple):
    """What there is under one content hash in one partition."""

    holds: frozenset[Hold] = frozenset()
    vector: bytes | None = None
    document: Document | None = None
    token_count: int = 0


class Effect(NamedTuple):
    """What a record changed in one partition and tier, as a watcher is told."""

    type: EventType
    hash_scheme: str
    adapter_id: str
    tier: Tier
    content_hashes: frozenset[bytes]


class Verdict(NamedTuple):
    """What becomes of one record."""

    outcome: Outcome
    resync_required: bool = False
    holds_added: int = 0
    holds_removed: int = 0
    vectors_replaced: int = 0
    current_epoch: int = 0
    effects: tuple[Effect, ...] = ()


@dataclass(slots=True)
class Numbering:
    """What is known of one producer."""

    epoch: int = 0
    sequence: int = 0
    resync_required: bool = False
    changed_revision: int = 0


NOTHING = Entry()


class PlainIndex:
    """The index as a dictionary; see the module's text."""

    def __init__(self) -> None:
        self.revision = 0
        self.entries: dict[Place, Entry] = {}
        self.producers: defaultdict[tuple[str, str, str], Numbering] = defaultdict(Numbering)
        self.leases: dict[tuple[str, str], tuple[int, int]] = {}

    def apply(self, revision: int, record: Record) -> Verdict:
        """Apply one record, and say what became of it."""
        self.revision = revision
        match record:
            case CacheEvent():
                return self._apply_event(record)
            case UsedNumber():
                producer = self._producer(record)
                self._number(producer, record)
                return Verdict(Outcome.REFUSED, producer.resync_required)
            case Lease():
                return self._apply_lease(record)
            case Report():
                return self._apply_report(record)
            case Conditional():
                if self._still_holds(record):
                    return self.apply(revision, record.record)
                return Verdict(Outcome.OVERTAKEN)

    def held_by(self, tenant_id: str, model_id: str, replica_id: str) -> set[tuple[Place, Tier]]:
        """All that a producer holds."""
        return {
            (place, hold.tier)
            for place, entry in self.entries.items()
            for hold in entry.holds
            if (place.key.tenant_id, place.key.model_id) == (tenant_id, model_id)
            and hold.replica_id == replica_id
        }

    def dimensions(self, key: PartitionKey) -> int:
        """The width of a partition's vectors; 0 if it has none."""
        widths = {
            len(entry.vector) // 4
            for place, entry in self.entries.items()
            if place.key == key and entry.vector
        }
        assert len(widths) <= 1, f"vectors of widths {widths} in {key}"
        return max(widths, default=0)

    # ---- records -----------------------------------------------------------------------

    def _apply_event(self, event: CacheEvent) -> Verdict:
        producer = self._producer(event)
        if event.epoch:
            refused = self._number(producer, event)
            if refused is not None:
                return refused
        verdict = self._change(event)
        if event.type is EventType.ALL_CLEARED:
            if event.cause is Cause.NONE:
                producer.resync_required = False
            elif verdict.holds_removed:
                producer.resync_required = True
        return verdict._replace(resync_required=producer.resync_required)

    def _apply_lease(self, lease: Lease) -> Verdict:
        key = (lease.tenant_id, lease.replica_id)
        there = key in self.leases
        if lease.ttl_ms:
            self.leases[key] = (self.revision, lease.ttl_ms)
            return Verdict(Outcome.APPLIED)
        self.leases.pop(key, None)
        return Verdict(Outcome.APPLIED if there else Outcome.UNCHANGED)

    def _apply_report(self, report: Report) -> Verdict:
        producer = self._producer(report)
        if 0 < report.epoch < producer.epoch:
            return Verdict(Outcome.FENCED, current_epoch=producer.epoch)
        if 0 < report.epoch == producer.epoch and report.sequence < producer.sequence:
            return Verdict(Outcome.OVERTAKEN)
        if not self._one_width(report):
            return Verdict(Outcome.REFUSED)
        parts = [self._change(event) for event in report.changes]
        if report.epoch:
            producer.epoch, producer.sequence = report.epoch, report.sequence
        producer.resync_required = False
        effects = tuple(effect for part in parts for effect in part.effects)
        return Verdict(
            Outcome.APPLIED if effects else Outcome.UNCHANGED,
            holds_added=sum(part.holds_added for part in parts),
            holds_removed=sum(part.holds_removed for part in parts),
            vectors_replaced=sum(part.vectors_replaced for part in parts),
            effects=effects,
        )

    def _still_holds(self, conditional: Conditional) -> bool:
        record = conditional.record
        if conditional.lease_generation is not None:
            lease = self.leases.get((record.tenant_id, record.replica_id))
            if lease is None or lease[0] != conditional.lease_generation:
                return False
        if conditional.unchanged_since is None or isinstance(record, Lease):
            return True
        return self._producer(record).changed_revision <= conditional.unchanged_since

    # ---- numbering ---------------------------------------------------------------------

    def _producer(self, record: CacheEvent | UsedNumber | Report) -> Numbering:
        return self.producers[record.tenant_id, record.model_id, record.replica_id]

    def _number(self, producer: Numbering, record: CacheEvent | UsedNumber) -> Verdict | None:
        """Use a number up; the verdict where it cannot be used."""
        if record.epoch < producer.epoch:
            return Verdict(Outcome.FENCED, current_epoch=producer.epoch)
        new_life = record.epoch > producer.epoch
        if not new_life and record.sequence <= producer.sequence:
            return Verdict(Outcome.DUPLICATE, producer.resync_required)
        if record.sequence != (1 if new_life else producer.sequence + 1):
            producer.resync_required = True
        elif new_life:
            held = self.held_by(record.tenant_id, record.model_id, record.replica_id)
            producer.resync_required = bool(held)
        producer.epoch, producer.sequence = record.epoch, record.sequence
        return None

    # ---- content -----------------------------------------------------------------------

    def _change(self, event: CacheEvent) -> Verdict:
        if event.type is EventType.EMBEDDED:
            if not self._fits(event):
                return Verdict(Outcome.REFUSED)
            verdict = self._embed(event)
        else:
            verdict = self._remove(event)
        if verdict.effects:
            self._producer(event).changed_revision = self.revision
        return verdict

    def _fits(self, event: CacheEvent) -> bool:
        width = self.dimensions(partition_of(event))
        return event.embeddings is None or width in (0, event.embeddings.shape[1])

    def _one_width(self, report: Report) -> bool:
        """Whether every vector of a report fits what is there and the others of the report."""
        widths = defaultdict(set)
        for event in report.changes:
            if event.embeddings is not None:
                widths[partition_of(event)].add(event.embeddings.shape[1])
        return all(
            len(found) == 1 and self.dimensions(key) in (0, *found) for key, found in widths.items()
        )

    def _embed(self, event: CacheEvent) -> Verdict:
        hold = Hold(event.replica_id, event.tier)
        changed, added, replaced = set(), 0, 0
        for position, content_hash in enumerate(event.content_hashes):
            place = Place(partition_of(event), content_hash)
            before = self.entries.get(place, NOTHING)
            after = Entry(before.holds | {hold}, *before[1:])
            if event.embeddings is not None:
                after = after._replace(vector=event.embeddings[position].tobytes())
            if event.documents and event.documents[position] != EMPTY_DOCUMENT:
                after = after._replace(document=event.documents[position])
            if event.token_count:
                after = after._replace(token_count=event.token_count)
            self.entries[place] = after
            if after != before:
                changed.add(content_hash)
            added += hold not in before.holds
            replaced += before.vector not in (None, after.vector)
        if not changed:
            return Verdict(Outcome.UNCHANGED)
        effect = Effect(
            event.type, event.hash_scheme, event.adapter_id, event.tier, frozenset(changed)
        )
        return Verdict(
            Outcome.APPLIED, holds_added=added, vectors_replaced=replaced, effects=(effect,)
        )

    def _remove(self, event: CacheEvent) -> Verdict:
        gone: defaultdict[tuple[str, str, Tier], set[bytes]] = defaultdict(set)
        for place, entry in list(self.entries.items()):
            removed = {hold for hold in entry.holds if removes(event, place, hold)}
            for hold in removed:
                gone[place.key.hash_scheme, place.key.adapter_id, hold.tier].add(place.content_hash)
            if entry.holds - removed:
                self.entries[place] = entry._replace(holds=entry.holds - removed)
            else:
                del self.entries[place]
        if not gone:
            return Verdict(Outcome.UNCHANGED)
        effects = tuple(Effect(event.type, *where, frozenset(what)) for where, what in gone.items())
        if event.type is EventType.ALL_CLEARED:
            effects = (Effect(event.type, "", "", Tier.UNSPECIFIED, frozenset()),)
        holds = sum(map(len, gone.values()))
        return Verdict(Outcome.APPLIED, holds_removed=holds, effects=effects)


def partition_of(event: CacheEvent) -> PartitionKey:
    """The partition that an EMBEDDED is for."""
    return PartitionKey(event.tenant_id, event.model_id, event.hash_scheme, event.adapter_id)


def removes(event: CacheEvent, place: Place, hold: Hold) -> bool:
    """Whether an EVICTED or ALL_CLEARED takes a hold: the rules 2 and 3."""
    key = place.key
    if (event.tenant_id, event.model_id) != (key.tenant_id, key.model_id):
        return False
    if event.replica_id != hold.replica_id:
        return False
    if event.type is EventType.ALL_CLEARED:
        return True
    everywhere = not event.adapter_id and not event.adapter_scoped
    every_scheme = not event.hash_scheme and not event.adapter_scoped
    return (
        place.content_hash in event.content_hashes
        and event.tier in (Tier.UNSPECIFIED, hold.tier)
        and (everywhere or event.adapter_id == key.adapter_id)
        and (every_scheme or event.hash_scheme == key.hash_scheme)
    )
