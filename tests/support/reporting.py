"""Reports over the wire, part by part, and what a replica holds after them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import grpc
import pytest
from support.serving import chain_key, embedded, field_of, reason_of, text_key
from warmindex.v1 import event_pb2, index_service_pb2_grpc
from warmindex.v1 import index_service_pb2 as pb

Stub = index_service_pb2_grpc.IndexServiceStub


def header(epoch: int = 0, sequence: int = 0, **fields: str) -> pb.ReportStateRequest:
    named = {"replica_id": "pod", "model_id": "m", **fields}
    return pb.ReportStateRequest(
        header=pb.ReportStateHeader(epoch=epoch, sequence=sequence, **named)
    )


def entries(
    numbers: Sequence[int], *, vectors: bool = False, **fields: object
) -> pb.ReportStateRequest:
    empty = {"replica_id": "", "model_id": "", **fields}
    return pb.ReportStateRequest(entries=embedded(numbers, vectors=vectors, **empty))


def end(count: int) -> pb.ReportStateRequest:
    return pb.ReportStateRequest(end=pb.ReportStateEnd(content_hashes=count))


async def report(stub: Stub, *parts: pb.ReportStateRequest) -> pb.ReportStateResponse:
    return await stub.ReportState(iter(parts))


async def refused(stub: Stub, *parts: pb.ReportStateRequest) -> tuple[str, str, str]:
    """The status, reason and field that a report ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await report(stub, *parts)
    error = caught.value
    return error.code().name, reason_of(error), field_of(error)


async def publish(stub: Stub, *events: event_pb2.CacheEvent) -> list[pb.EventResult]:
    return [
        (await stub.PublishEvent(pb.PublishEventRequest(event=event))).result for event in events
    ]


async def held(
    stub: Stub, numbers: Iterable[int], replica_id: str = "pod", model_id: str = "m"
) -> dict[int, list[tuple[str, int]]]:
    """In which adapters and tiers a replica holds keys."""
    found = {}
    for number in numbers:
        response = await stub.GetEntry(pb.GetEntryRequest(content_hash=text_key(number)))
        holds = [
            (entry.partition.adapter_id, hold.tier)
            for entry in response.entries
            for hold in entry.holds
            if entry.partition.model_id == model_id and hold.replica_id == replica_id
        ]
        if holds:
            found[number] = holds
    return found


async def replica(stub: Stub, replica_id: str = "pod") -> pb.ListReplicasResponse.Replica:
    response = await stub.ListReplicas(pb.ListReplicasRequest())
    (found,) = [each for each in response.replicas if each.replica_id == replica_id]
    return found


def blocks(numbers: range, **fields: object) -> pb.ReportStateRequest:
    event = event_pb2.CacheEvent(
        type=event_pb2.CacheEvent.EMBEDDED,
        hash_scheme="xxh3-chain/16",
        content_hashes=[chain_key(number) for number in numbers],
        token_count=16,
        **fields,  # type: ignore[arg-type]
    )
    return pb.ReportStateRequest(entries=event)


def whole(count: int, skip: int = 0) -> list[pb.ReportStateRequest]:
    starts = range(skip, count, 4096)
    parts = [blocks(range(start, min(start + 4096, count))) for start in starts]
    return [header(), *parts, end(count - skip)]
