"""What operators ask: which partitions there are, who holds what, where one hash is.

All lists are in a fixed order and begin after a given place, so that a page costs what it
shows and a page token is simply the last place shown.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from warmindex.event import Document, PartitionKey, Tier

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warmindex.index.index import Index
    from warmindex.index.model import Model
    from warmindex.index.partition import Partition


class PartitionInfo(NamedTuple):
    """One partition's size."""

    key: PartitionKey
    entries: int
    embeddings: int
    dimensions: int
    replicas: int
    memory_bytes: int


class ReplicaInfo(NamedTuple):
    """One replica in one model."""

    replica_id: str
    model_id: str
    holds: int
    epoch: int
    sequence: int
    resync_required: bool


class EntryInfo(NamedTuple):
    """One content hash in one partition."""

    key: PartitionKey
    holds: Sequence[tuple[str, Tier]]
    document: Document | None
    dimensions: int


def partitions(
    index: Index, tenant_id: str, model_id: str, after: PartitionKey | None, limit: int
) -> list[PartitionInfo]:
    """The tenant's partitions in key order, from behind `after`; all models if `model_id` is ""."""
    found = (
        _describe(key, model, partition)
        for key, model, partition in _partitions_after(index, tenant_id, model_id, after)
    )
    return list(islice((info for info in found if info.entries), limit))


def replicas(
    index: Index, tenant_id: str, after: tuple[str, str] | None, limit: int
) -> list[ReplicaInfo]:
    """The replicas that hold anything, by name and model, from behind `after`."""
    models = dict(index.models_of(tenant_id))
    places = sorted(
        (replica_id, name)
        for name, model in models.items()
        for replica_id in model.holders.replicas()
    )
    start = bisect_right(places, after) if after else 0
    return [
        _replica(models[name], replica_id, name)
        for replica_id, name in places[start : start + limit]
    ]


def entries(
    index: Index, tenant_id: str, content_hash: bytes, after: PartitionKey | None, limit: int
) -> list[EntryInfo]:
    """One hash in every partition that has it, in key order, from behind `after`."""
    found = (
        _entry(key, model, partition, content_hash)
        for key, model, partition in _partitions_after(index, tenant_id, "", after)
        if partition.entries.get(content_hash, 0) & model.holders.live
    )
    return list(islice(found, limit))


def entries_total(index: Index, tenant_id: str | None = None) -> int:
    """How many entries there are, in one tenant or (None) in all."""
    return sum(
        partition.entries_live(model.holders.live, model.holders.retired)
        for (tenant, _), model in index.models.items()
        if tenant_id is None or tenant == tenant_id
        for scope in model.schemes.values()
        for partition in scope.partitions.values()
    )


def _partitions_after(
    index: Index, tenant_id: str, model_id: str, after: PartitionKey | None
) -> Iterator[tuple[PartitionKey, Model, Partition]]:
    for name, model in index.models_of(tenant_id):
        if (model_id and name != model_id) or (after and name < after.model_id):
            continue
        for scheme, scope in sorted(model.schemes.items()):
            for adapter_id in sorted(scope.partitions):
                key = PartitionKey(tenant_id, name, scheme, adapter_id)
                if after is None or key > after:
                    yield key, model, scope.partitions[adapter_id]


def _describe(key: PartitionKey, model: Model, partition: Partition) -> PartitionInfo:
    live, retired = model.holders.live, model.holders.retired
    holders = {model.holders.name_of(bit)[0] for bit in partition.holds if bit & live}
    return PartitionInfo(
        key=key,
        entries=partition.entries_live(live, retired),
        embeddings=partition.vectors_live(live, retired),
        dimensions=partition.dimensions_live(live, retired),
        replicas=len(holders),
        memory_bytes=partition.memory_bytes,
    )


def _replica(model: Model, replica_id: str, model_id: str) -> ReplicaInfo:
    producer = model.producer(replica_id)
    return ReplicaInfo(
        replica_id=replica_id,
        model_id=model_id,
        holds=model.holders.holds_of(replica_id),
        epoch=producer.epoch,
        sequence=producer.sequence,
        resync_required=producer.resync_required,
    )


def _entry(key: PartitionKey, model: Model, partition: Partition, content_hash: bytes) -> EntryInfo:
    has_vector = partition.vectors is not None and content_hash in partition.vectors
    return EntryInfo(
        key=key,
        holds=sorted(model.holders.names_in(partition.entries[content_hash])),
        document=partition.documents.get(content_hash),
        dimensions=partition.vectors.dimensions if has_vector and partition.vectors else 0,
    )
