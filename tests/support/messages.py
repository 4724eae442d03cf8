"""Messages of the contract, short: valid by themselves, with any field set otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb

MODEL = "acme/m1"
REPLICA = "pod-1"
EMBEDDED = event_pb2.CacheEvent.EMBEDDED
EVICTED = event_pb2.CacheEvent.EVICTED
ALL_CLEARED = event_pb2.CacheEvent.ALL_CLEARED


def key(number: int, length: int = 32) -> bytes:
    """A content hash."""
    return number.to_bytes(length, "big")


def block(*rows: list[float]) -> event_pb2.EmbeddingBlock:
    """A block of vectors."""
    matrix = np.array(rows, dtype="<f4")
    return event_pb2.EmbeddingBlock(dimensions=matrix.shape[1], values=matrix.tobytes())


def block_of(count: int, dimensions: int) -> event_pb2.EmbeddingBlock:
    """A block of `count` vectors, all different."""
    rows = np.arange(1, count * dimensions + 1, dtype="<f4")
    return event_pb2.EmbeddingBlock(dimensions=dimensions, values=rows.tobytes())


def documents(*names: str) -> list[event_pb2.Document]:
    """A document per name."""
    return [event_pb2.Document(name=name, description=f"about {name}") for name in names]


def event(**fields: Any) -> event_pb2.CacheEvent:
    """An EMBEDDED of one key, with the fields given."""
    given = {
        "type": EMBEDDED,
        "replica_id": REPLICA,
        "model_id": MODEL,
        "content_hashes": [key(1)],
        **fields,
    }
    return event_pb2.CacheEvent(**given)


def partition(adapter_id: str = "", **fields: Any) -> event_pb2.PartitionKey:
    """The key of a partition."""
    return event_pb2.PartitionKey(**{"model_id": MODEL, "adapter_id": adapter_id, **fields})


def publish_request(message: event_pb2.CacheEvent | None) -> pb.PublishEventRequest:
    """The request that publishes an event."""
    return pb.PublishEventRequest(event=message)


def varint(number: int) -> bytes:
    """A number as the wire has it."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def raw_field(number: int, value: int | bytes) -> bytes:
    """A field as bytes, for messages that no stub makes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value
