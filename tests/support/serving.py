"""A real server in this process by its parts, events for it, and what its errors say."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import grpc
import numpy as np
from support.server import LARGE_MESSAGES, fault, running
from warmindex.v1 import event_pb2, index_service_pb2_grpc
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server


@asynccontextmanager
async def serving(
    journal: str = "memory", *, grace_s: float = 5.0, **settings: object
) -> AsyncIterator[Server]:
    """A server that has started; it drains at the end."""
    async with running(journal=journal, grace_s=grace_s, **settings) as here:
        yield here.server


@asynccontextmanager
async def stub_of(server: Server) -> AsyncIterator[index_service_pb2_grpc.IndexServiceStub]:
    """A client of its own connection."""
    address = f"127.0.0.1:{server.port}"
    async with grpc.aio.insecure_channel(address, LARGE_MESSAGES) as channel:
        yield index_service_pb2_grpc.IndexServiceStub(channel)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The reason in a status of the service, without its prefix; "" where it has none."""
    return fault(error).reason.removeprefix("ERROR_REASON_")


def field_of(error: grpc.aio.AioRpcError) -> str:
    """The field at fault in a status of the service; "" where it names none."""
    return fault(error).field


def text_key(number: int) -> bytes:
    """A key of text-sha256."""
    return number.to_bytes(32, "big")


def chain_key(number: int) -> bytes:
    """A key of xxh3-chain."""
    return number.to_bytes(8, "big")


def rows(numbers: Sequence[int], dimensions: int = 4) -> event_pb2.EmbeddingBlock:
    """A vector for each number, all of them different."""
    matrix = np.ones((len(numbers), dimensions), dtype="<f4")
    matrix[:, 0] = np.asarray(numbers) + 1
    return event_pb2.EmbeddingBlock(dimensions=dimensions, values=matrix.tobytes())


def embedded(
    numbers: Sequence[int], *, vectors: bool = True, **fields: object
) -> event_pb2.CacheEvent:
    """An EMBEDDED event of text keys."""
    event = event_pb2.CacheEvent(
        type=event_pb2.CacheEvent.EMBEDDED,
        content_hashes=[text_key(number) for number in numbers],
        **{"replica_id": "catalogue", "model_id": "m", **fields},  # type: ignore[arg-type]
    )
    if vectors:
        event.embeddings.CopyFrom(rows(numbers))
    return event


def state_names(response: pb.GetEmbeddingsResponse) -> list[str]:
    """The states of an answer, without their prefix."""
    name = pb.GetEmbeddingsResponse.State.Name
    return [name(state).removeprefix("STATE_") for state in response.states]
