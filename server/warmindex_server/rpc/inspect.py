"""ListPartitions, ListReplicas, GetEntry and GetServerInfo: what people and tools look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from warmindex import __version__, limits
from warmindex.errors import required
from warmindex.event import PartitionKey, check_model_id, check_tenant_id
from warmindex.index import listing
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import document_to_wire, partition_to_wire

from warmindex_server.access import allow_tenant, current
from warmindex_server.rpc.pages import page_size, place_of, token_of

if TYPE_CHECKING:
    from warmindex.v1.event_pb2 import CacheTier

    from warmindex_server.leases.keeper import LeaseKeeper
    from warmindex_server.replicas import Heard
    from warmindex_server.store import Store

PARTITIONS: Final = "partitions"
REPLICAS: Final = "replicas"
ENTRIES: Final = "entries"


async def list_partitions(
    store: Store, request: pb.ListPartitionsRequest
) -> pb.ListPartitionsResponse:
    """One page of a tenant's partitions."""
    check_tenant_id(request.tenant_id, "tenant_id")
    allow_tenant(request.tenant_id, "tenant_id")
    check_model_id(request.model_id, "model_id")
    size = page_size(request.page_size)
    after = _partition_place(PARTITIONS, request.tenant_id, request.page_token)
    found = listing.partitions(store.index, request.tenant_id, request.model_id, after, size + 1)
    return pb.ListPartitionsResponse(
        partitions=[
            pb.ListPartitionsResponse.Partition(
                key=partition_to_wire(info.key),
                entries=info.entries,
                embeddings=info.embeddings,
                dimensions=info.dimensions,
                replicas=info.replicas,
                memory_bytes=info.memory_bytes,
            )
            for info in found[:size]
        ],
        next_page_token=_next(PARTITIONS, [info.key for info in found], size),
        revision=store.revision,
    )


async def list_replicas(
    store: Store, heard: Heard, leases: LeaseKeeper, request: pb.ListReplicasRequest
) -> pb.ListReplicasResponse:
    """One page of a tenant's replicas."""
    check_tenant_id(request.tenant_id, "tenant_id")
    allow_tenant(request.tenant_id, "tenant_id")
    size = page_size(request.page_size)
    place = place_of(REPLICAS, request.page_token, 2)
    after = (place[0], place[1]) if place else None
    found = listing.replicas(store.index, request.tenant_id, after, size + 1)
    response = pb.ListReplicasResponse()
    for info in found[:size]:
        replica = response.replicas.add(**info._asdict())
        key = (request.tenant_id, info.replica_id)
        for duration, value_s in (
            (replica.heard_ago, heard.ago_s(key)),
            (replica.lease_remaining, leases.remaining_s(key)),
        ):
            if value_s is not None:
                duration.FromMicroseconds(int(value_s * 1e6))
    if len(found) > size:
        last = found[size - 1]
        response.next_page_token = token_of(REPLICAS, (last.replica_id, last.model_id))
    return response


async def get_entry(store: Store, request: pb.GetEntryRequest) -> pb.GetEntryResponse:
    """One page of the partitions that have a content hash."""
    check_tenant_id(request.tenant_id, "tenant_id")
    allow_tenant(request.tenant_id, "tenant_id")
    if not request.content_hash:
        raise required("content_hash", "it names the entry; in JSON it is base64")
    size = page_size(request.page_size)
    after = _partition_place(ENTRIES, request.tenant_id, request.page_token)
    found = listing.entries(store.index, request.tenant_id, request.content_hash, after, size + 1)
    response = pb.GetEntryResponse()
    room = limits.ANSWER_TEXT_BYTES_MAX
    for info in found[:size]:
        entry = _entry_to_wire(info)
        room -= entry.ByteSize()
        if room < 0 and response.entries:
            # The page ends early where the next one's text would make it too long.
            break
        response.entries.append(entry)
    keys = [info.key for info in found]
    response.next_page_token = _next(ENTRIES, keys, len(response.entries))
    return response


def _entry_to_wire(info: listing.EntryInfo) -> pb.GetEntryResponse.Entry:
    return pb.GetEntryResponse.Entry(
        partition=partition_to_wire(info.key),
        holds=[
            pb.GetEntryResponse.Hold(
                replica_id=replica_id, tier=cast("CacheTier.ValueType", int(tier))
            )
            for replica_id, tier in info.holds
        ],
        document=document_to_wire(info.document) if info.document else None,
        dimensions=info.dimensions,
    )


async def get_server_info(store: Store) -> pb.GetServerInfoResponse:
    """What this server is, and how far it has come."""
    return pb.GetServerInfoResponse(
        version=__version__,
        history_id=store.history_id,
        revision=store.revision,
        journal=store.journal.name,
        entries=listing.entries_total(store.index, current().tenant_id),
    )


def _partition_place(kind: str, tenant_id: str, token: str) -> PartitionKey | None:
    """The place that a token names, within the tenant that asks and no other."""
    place = place_of(kind, token, 3)
    return PartitionKey(tenant_id, *place) if place else None


def _next(kind: str, keys: list[PartitionKey], size: int) -> str:
    if len(keys) <= size:
        return ""
    last = keys[size - 1]
    return token_of(kind, (last.model_id, last.hash_scheme, last.adapter_id))
