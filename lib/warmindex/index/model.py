"""One (tenant, model): the frame within which replicas hold, number and clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmindex.event import Tier
from warmindex.index.change import Change
from warmindex.index.eviction import reached
from warmindex.index.holders import Holders, each_bit
from warmindex.index.producers import Producer
from warmindex.index.scope import Scope
from warmindex.index.versions import Versions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from warmindex.event import CacheEvent
    from warmindex.index.partition import Partition

# 2048 entries are taken out in about a millisecond: no reader waits longer for a sweep.
SWEEP_STEP_ENTRIES: Final = 2048

_DONE: Final = object()


class Model:
    """The scopes of one (tenant, model), its holders and its producers."""

    __slots__ = ("_sweep", "_versions", "holders", "producers", "schemes")

    def __init__(self, versions: Versions | None = None) -> None:
        self._versions = versions or Versions()
        self.holders = Holders()
        self.producers: dict[str, Producer] = {}
        self.schemes: dict[str, Scope] = {}
        self._sweep: Iterator[None] | None = None

    def producer(self, replica_id: str) -> Producer:
        """The replica's numbering, made if it is not known."""
        producer = self.producers.get(replica_id)
        if producer is None:
            producer = self.producers[replica_id] = Producer()
        return producer

    def width_conflict(self, event: CacheEvent) -> int:
        """The width of the partition's vectors where the event's differ from it; else 0."""
        if event.embeddings is None:
            return 0
        scope = self.schemes.get(event.hash_scheme)
        partition = scope.partitions.get(event.adapter_id) if scope else None
        if partition is None or partition.vectors is None:
            return 0
        if partition.vectors.dimensions == event.embeddings.shape[1]:
            return 0
        return partition.dimensions_live(self.holders.live, self.holders.retired)

    def report_conflict(self, events: Iterable[CacheEvent]) -> tuple[CacheEvent, int] | None:
        """The first event whose vectors fit neither the partition nor those before it, and
        the width that they should have.
        """
        widths: dict[tuple[str, str], int] = {}
        for event in events:
            if event.embeddings is None:
                continue
            given = event.embeddings.shape[1]
            width = widths.setdefault((event.hash_scheme, event.adapter_id), given)
            if width == given:
                width = self.width_conflict(event)
            if width and width != given:
                return event, width
        return None

    # ---- the three types ---------------------------------------------------------------

    def embedded(self, event: CacheEvent) -> tuple[int, list[Change], int]:
        """Apply an EMBEDDED; the holds added, the change, and the vectors replaced."""
        hashes = event.content_hashes
        scope = self.schemes.get(event.hash_scheme)
        if scope is None:
            scope = self.schemes[event.hash_scheme] = Scope(self._versions)
        partition = scope.partition(event.adapter_id)
        holders = self.holders
        bit = holders.bit_of(event.replica_id, event.tier)
        added, fresh = partition.add(hashes, bit, holders.live)
        holders.added(bit, len(added))
        if added:
            scope.added(bit, len(added))
        retold = partition.put_tokens(hashes, fresh, event.token_count)
        if event.embeddings is None and not event.documents and not retold:
            if not added:
                return 0, [], 0
            change = Change(event, event.hash_scheme, event.adapter_id, event.tier, added)
            return len(added), [change], 0
        changed: set[bytes] = {*added, *retold}
        replaced = _put_payload(partition, event, changed)
        if not changed:
            return 0, [], 0
        return len(added), [_change_of(event, changed)], replaced

    def evicted(self, event: CacheEvent) -> tuple[int, list[Change]]:
        """Apply an EVICTED; the holds removed, and a change per partition and tier.

        Partitions in which the replica holds nothing are passed over, so the cost goes with
        the number of hashes and of adapters, never with that of entries.
        """
        holders = self.holders
        bits = holders.bits_of(event.replica_id, event.tier)
        if not bits:
            return 0, []
        tiers = {bit: holders.name_of(bit)[1] for bit in each_bit(bits)}
        changes: list[Change] = []
        for scheme, adapter_id, scope, partition in reached(self.schemes, event):
            if partition.holds.keys().isdisjoint(tiers):
                continue
            removed = partition.remove(event.content_hashes, bits, holders.live)
            for bit, group in removed.items():
                changes.append(Change(event, scheme, adapter_id, tiers[bit], group))
                scope.removed(bit, len(group))
                holders.removed(bit, len(group))
            self._drop_if_empty(scheme, adapter_id, partition)
        return sum(len(change.content_hashes) for change in changes), changes

    def cleared(self, event: CacheEvent) -> tuple[int, list[Change]]:
        """Apply an ALL_CLEARED; the holds removed, and the change."""
        bits = self.holders.bits_of(event.replica_id)
        holds = self.holders.retire(event.replica_id)
        if not holds:
            return 0, []
        for scope in self.schemes.values():
            scope.retire(bits)
        return holds, [Change(event, "", "", Tier.UNSPECIFIED, ())]

    # ---- reclaiming --------------------------------------------------------------------

    def sweep_step(self) -> bool:
        """Take retired bits off some entries; whether there is more to do."""
        if self._sweep is None:
            if not self.holders.waiting:
                return False
            self._sweep = self._sweep_all(self.holders.begin_sweep())
        if next(self._sweep, _DONE) is _DONE:
            self._sweep = None
        return self.holders.retired

    def _sweep_all(self, retired: int) -> Iterator[None]:
        for scheme, scope in list(self.schemes.items()):
            for adapter_id, partition in list(scope.partitions.items()):
                # What comes in from now on has no retired bits, so a list taken once will do.
                hashes = list(partition.entries) if partition.has_bits(retired) else []
                while hashes:
                    # The list is the last to have them: shorter with each step, it frees
                    # the keys that go a few at a time.
                    some = hashes[-SWEEP_STEP_ENTRIES:]
                    del hashes[-SWEEP_STEP_ENTRIES:]
                    partition.sweep(some, retired)
                    yield
                partition.drop_holders(retired)
                self._drop_if_empty(scheme, adapter_id, partition)
        self.holders.end_sweep()

    def _drop_if_empty(self, scheme: str, adapter_id: str, partition: Partition) -> None:
        scope = self.schemes.get(scheme)
        if partition.entries or scope is None or scope.partitions.get(adapter_id) is not partition:
            return
        del scope.partitions[adapter_id]
        if not scope.partitions:
            del self.schemes[scheme]


def _put_payload(partition: Partition, event: CacheEvent, changed: set[bytes]) -> int:
    """Keep an event's vectors and documents; the number of vectors that replaced others."""
    hashes = event.content_hashes
    positions: Sequence[int]
    replaced = 0
    if event.embeddings is not None:
        positions, replaced = partition.put_vectors(hashes, event.embeddings)
        changed.update([hashes[position] for position in positions])
    if event.documents:
        positions = partition.put_documents(hashes, event.documents)
        changed.update([hashes[position] for position in positions])
    return replaced


def _change_of(event: CacheEvent, changed: set[bytes]) -> Change:
    hashes: Sequence[bytes] = event.content_hashes
    positions = None
    if len(changed) < len(hashes):
        positions = [place for place, content_hash in enumerate(hashes) if content_hash in changed]
        hashes = [hashes[position] for position in positions]
    return Change(event, event.hash_scheme, event.adapter_id, event.tier, hashes, positions)
