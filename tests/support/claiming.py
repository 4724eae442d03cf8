"""Asking for vectors and claims over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from google.protobuf.duration_pb2 import Duration
from support.serving import state_names, text_key
from warmindex.v1 import event_pb2, index_service_pb2_grpc
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server

Stub = index_service_pb2_grpc.IndexServiceStub
M = event_pb2.PartitionKey(model_id="m")


def seconds(value: float) -> Duration:
    duration = Duration()
    duration.FromMicroseconds(round(value * 1e6))
    return duration


def ask(
    numbers: Sequence[int],
    claimant_id: str = "",
    *,
    ttl_s: float | None = None,
    wait_s: float | None = None,
    **fields: object,
) -> pb.GetEmbeddingsRequest:
    return pb.GetEmbeddingsRequest(
        content_hashes=[text_key(number) for number in numbers],
        claimant_id=claimant_id,
        claim_ttl=None if ttl_s is None else seconds(ttl_s),
        wait=None if wait_s is None else seconds(wait_s),
        **{"partition": M, **fields},  # type: ignore[arg-type]
    )


async def states(stub: Stub, *args: object, **kwargs: object) -> list[str]:
    return state_names(await stub.GetEmbeddings(ask(*args, **kwargs)))  # type: ignore[arg-type]


async def publish(stub: Stub, event: event_pb2.CacheEvent) -> pb.EventResult:
    return (await stub.PublishEvent(pb.PublishEventRequest(event=event))).result


async def release(stub: Stub, numbers: Sequence[int], claimant_id: str) -> int:
    request = pb.ReleaseClaimsRequest(
        partition=M,
        claimant_id=claimant_id,
        content_hashes=[text_key(number) for number in numbers],
    )
    return (await stub.ReleaseClaims(request)).released


async def waiting(server: Server, calls: int) -> None:
    """Until so many calls stand in line for a key that another one computes."""
    waiters = server._service._claims._waiters  # type: ignore[union-attr]
    while sum(map(len, waiters._standing.values())) != calls:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)
