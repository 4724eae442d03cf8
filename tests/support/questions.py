"""What can be asked of an index, asked of the plain model and of the real one.

The answers have the index's own types, so that they compare as they are. `same_answers`
asks everything there is to ask; `sound` looks inside the real one for what no question
shows: counts that went astray, payload that nobody holds, memory that was not given back.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from support.model import Effect, Hold, Place
from warmindex.event import PartitionKey, Tier
from warmindex.hashing import chain_block_size
from warmindex.index import listing
from warmindex.index.holders import each_bit
from warmindex.index.listing import EntryInfo, ReplicaInfo
from warmindex.index.route import Match, Reason, Route, lookup

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from support.model import Numbering, PlainIndex
    from warmindex.index import Applied, Index
    from warmindex.index.model import Model
    from warmindex.index.partition import Partition

# key, entries, embeddings, dimensions, replicas: PartitionInfo without its estimate of memory.
PartitionSizes = tuple[PartitionKey, int, int, int, int]

EVERYTHING = 10**9


# ---- the plain model's answers -----------------------------------------------------------


def partitions(plain: PlainIndex, tenant_id: str, model_id: str = "") -> list[PartitionSizes]:
    """Every partition of the tenant, in key order."""
    keys = {place.key for place in plain.entries if place.key.tenant_id == tenant_id}
    found = []
    for key in sorted(keys):
        entries = [entry for place, entry in plain.entries.items() if place.key == key]
        vectors = sum(entry.vector is not None for entry in entries)
        holders = {hold.replica_id for entry in entries for hold in entry.holds}
        found.append((key, len(entries), vectors, plain.dimensions(key), len(holders)))
    return [sizes for sizes in found if model_id in ("", sizes[0].model_id)]


def replicas(plain: PlainIndex, tenant_id: str) -> list[ReplicaInfo]:
    """Every replica that holds anything, by name and model."""
    holds = Counter(
        (hold.replica_id, place.key.model_id)
        for place, entry in plain.entries.items()
        for hold in entry.holds
        if place.key.tenant_id == tenant_id
    )
    found = []
    for (replica_id, model_id), count in sorted(holds.items()):
        known = plain.producers[tenant_id, model_id, replica_id]
        found.append(
            ReplicaInfo(
                replica_id, model_id, count, known.epoch, known.sequence, known.resync_required
            )
        )
    return found


def entries(plain: PlainIndex, tenant_id: str, content_hash: bytes) -> list[EntryInfo]:
    """One hash in every partition that has it, in key order."""
    found = [
        EntryInfo(place.key, sorted(entry.holds), entry.document, len(entry.vector or b"") // 4)
        for place, entry in plain.entries.items()
        if place.key.tenant_id == tenant_id and place.content_hash == content_hash
    ]
    return sorted(found, key=lambda info: info.key)


def entries_total(plain: PlainIndex, tenant_id: str | None = None) -> int:
    """How many entries there are, in one tenant or in all."""
    return sum(tenant_id in (None, place.key.tenant_id) for place in plain.entries)


def vectors(
    plain: PlainIndex, key: PartitionKey, content_hashes: Iterable[bytes]
) -> list[bytes | None]:
    """The vector of each hash, None where there is none."""
    found = (plain.entries.get(Place(key, content_hash)) for content_hash in content_hashes)
    return [entry.vector if entry else None for entry in found]


def token_count(plain: PlainIndex, place: Place) -> int:
    """The number of tokens of an entry."""
    return plain.entries[place].token_count


def route(
    plain: PlainIndex,
    key: PartitionKey,
    chains: Mapping[str, Sequence[bytes]],
    *,
    limit: int = 0,
    replica_ids: Collection[str] = (),
) -> Route:
    """Who holds the longest prefix, block by block."""
    held = [place.key for place in plain.entries if place.key.tenant_id == key.tenant_id]
    if not held:
        return Route([], Reason.UNKNOWN_TENANT, 0)
    if key.model_id not in {other.model_id for other in held}:
        return Route([], Reason.UNKNOWN_MODEL, 0)
    in_scope = {
        hold.replica_id
        for place, entry in plain.entries.items()
        for hold in entry.holds
        if place.key[:2] == key[:2] and place.key.hash_scheme in chains
    }
    if not in_scope:
        return Route([], Reason.UNKNOWN_HASH_SCHEME, 0)
    best = []
    for replica_id in sorted(in_scope.intersection(replica_ids or in_scope)):
        runs = [
            _run(plain, key._replace(hash_scheme=scheme), chain, replica_id)
            for scheme, chain in chains.items()
        ]
        longest = max(runs, key=lambda match: (match.tokens, match.blocks))
        if longest.blocks:
            best.append(longest)
    in_tokens = len(chains) > 1
    best.sort(key=lambda m: (-(m.tokens if in_tokens else m.blocks), -m.blocks, m.tier))
    reason = Reason.PREFIX_MATCH if best else Reason.NO_MATCH
    return Route(best[:limit] if limit else best, reason, len(in_scope))


def _run(plain: PlainIndex, key: PartitionKey, chain: Sequence[bytes], replica_id: str) -> Match:
    tiers: list[Tier] = []
    counts: list[int] = []
    for content_hash in chain:
        entry = plain.entries.get(Place(key, content_hash))
        nearest = (
            [hold.tier for hold in entry.holds if hold.replica_id == replica_id] if entry else []
        )
        if entry is None or not nearest:
            break
        tiers.append(min(nearest))
        counts.append(chain_block_size(key.hash_scheme) or entry.token_count)
    return Match(replica_id, len(tiers), sum(counts), max(tiers, default=Tier.UNSPECIFIED))


# ---- the real index ----------------------------------------------------------------------


def content(index: Index) -> dict[Place, tuple[frozenset[Hold], bytes | None, object, int]]:
    """All entries of a real index, with what belongs to them, as the plain model has them."""
    found = {}
    for (tenant_id, model_id), model in index.models.items():
        for scheme, scope in model.schemes.items():
            for adapter_id, partition in scope.partitions.items():
                key = PartitionKey(tenant_id, model_id, scheme, adapter_id)
                for content_hash, bits in partition.entries.items():
                    if bits & model.holders.live:
                        found[Place(key, content_hash)] = _entry(model, partition, content_hash)
    return found


def _entry(
    model: Model, partition: Partition, content_hash: bytes
) -> tuple[frozenset[Hold], bytes | None, object, int]:
    holds = model.holders.names_in(partition.entries[content_hash])
    vector = None
    if partition.vectors is not None:
        (has_vector,), row = partition.vectors.gather([content_hash])
        vector = row if has_vector else None
    return (
        frozenset(Hold(*hold) for hold in holds),
        vector,
        partition.documents.get(content_hash),
        partition.tokens.get(content_hash),
    )


def effects(applied: Applied) -> Counter[Effect]:
    """The changes of a record, without the order of partitions, tiers and hashes."""
    found: Counter[Effect] = Counter()
    for change in applied.changes:
        assert len(set(change.content_hashes)) == len(change.content_hashes)
        found[
            Effect(
                change.event.type,
                change.hash_scheme,
                change.adapter_id,
                change.tier,
                frozenset(change.content_hashes),
            )
        ] += 1
    return found


def same_answers(index: Index, plain: PlainIndex) -> None:
    """Assert that an index answers every question as the plain model does."""
    assert index.revision == plain.revision
    assert content(index) == plain.entries
    tenants = {place.key.tenant_id for place in plain.entries} | {""}
    for tenant_id in tenants:
        listed = listing.partitions(index, tenant_id, "", None, EVERYTHING)
        assert [info[:5] for info in listed] == partitions(plain, tenant_id)
        assert listing.replicas(index, tenant_id, None, EVERYTHING) == replicas(plain, tenant_id)
        assert listing.entries_total(index, tenant_id) == entries_total(plain, tenant_id)
    assert listing.entries_total(index) == entries_total(plain)
    for tenant_id, content_hash in {(p.key.tenant_id, p.content_hash) for p in plain.entries}:
        expected = entries(plain, tenant_id, content_hash)
        assert listing.entries(index, tenant_id, content_hash, None, EVERYTHING) == expected
    for name, known in plain.producers.items():
        _same_numbering(index, name, known)
    leases = {key: (lease.generation, lease.ttl_ms) for key, lease in index.leases.items()}
    assert leases == plain.leases


def _same_numbering(index: Index, name: tuple[str, str, str], known: Numbering) -> None:
    producer = index.producer(*name)
    if producer is None:
        assert known == type(known)()
        return
    assert (producer.epoch, producer.sequence) == (known.epoch, known.sequence)
    assert producer.resync_required == known.resync_required
    assert producer.changed_revision == known.changed_revision


def same_route(
    index: Index,
    plain: PlainIndex,
    key: PartitionKey,
    chains: Mapping[str, Sequence[bytes]],
    *,
    limit: int = 0,
    replica_ids: Collection[str] = (),
) -> None:
    """Assert that a lookup is answered as the plain model answers it."""
    given = lookup(index, key, chains, limit=limit, replica_ids=replica_ids)
    expected = route(plain, key, chains, limit=limit, replica_ids=replica_ids)
    assert (list(given.matches), *given[1:]) == (list(expected.matches), *expected[1:])


def sound(index: Index) -> None:
    """Assert what must hold inside, whatever is asked."""
    for model in index.models.values():
        holders = model.holders
        counts: Counter[int] = Counter()
        for scope in model.schemes.values():
            assert scope.partitions, "a scope without partitions"
            in_scope: Counter[int] = Counter()
            for partition in scope.partitions.values():
                in_scope += _sound_partition(partition, model)
            assert scope.holds == {bit: n for bit, n in in_scope.items() if bit & holders.live}
            counts += in_scope
        assert holders._counts == {bit: n for bit, n in counts.items() if bit & holders.live}
        parts = [holders.live, holders.waiting, holders.sweeping, sum(holders._free)]
        assert sum(parts) == (1 << holders._width) - 1, "a bit is in two states, or in none"
        assert set(holders._names) == set(each_bit(holders.live))


def _sound_partition(partition: Partition, model: Model) -> Counter[int]:
    retired = model.holders.waiting | model.holders.sweeping
    assert partition.entries or retired, "a partition without entries"
    assert Counter(partition.entries.values()) == partition.population
    assert partition._shared.keys() == partition.population.keys()
    assert all(bits is partition._shared[bits] for bits in partition.entries.values())
    found: Counter[int] = Counter()
    for bits in partition.entries.values():
        assert not bits & ~(model.holders.live | retired), "a hold of nobody"
        found.update(each_bit(bits))
    live = {bit: n for bit, n in found.items() if bit & model.holders.live}
    assert {bit: n for bit, n in partition.holds.items() if not bit & retired} == live
    assert set(partition.vectors or ()) <= partition.entries.keys()
    assert partition.documents.keys() <= partition.entries.keys()
    if partition._words is not None:
        assert len(partition._words) == len(partition.documents)
        assert all(map(partition._words._has, partition.documents))
    assert partition.tokens._exceptions.keys() <= partition.entries.keys()
    return found
