"""Events as frames: the head in protobuf, vectors and hashes packed behind it.

What is decoded was valid when it was encoded and is protected by the checksum, so it is not
validated again: hashes are split by numpy at about 20 ns each, vectors are views of the
frame, and a snapshot of a million hashes is read in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
from warmindex.event import CacheEvent, Cause, Document, EventType, FloatMatrix, Tier
from warmindex.hashing import TEXT_SHA256, chain_block_size
from warmindex.storage.v1.record_pb2 import EventHead

from warmindex_server.journal.frame import Buffer, Kind, put_frame

# Below this many, slicing beats the call into numpy.
_SLICED_HASHES_MAX: Final = 8

_TYPES: Final = {int(value): value for value in EventType}
_TIERS: Final = {int(value): value for value in Tier}
_CAUSES: Final = {int(value): value for value in Cause}


@lru_cache(maxsize=1024)
def _has_one_length(hash_scheme: str) -> bool:
    return hash_scheme == TEXT_SHA256 or chain_block_size(hash_scheme) is not None


def encode_event(event: CacheEvent, pieces: list[Buffer]) -> int:
    """Append the pieces of an event's frame; its length in bytes."""
    hashes = event.content_hashes
    head = EventHead(
        type=event.type,
        replica_id=event.replica_id,
        model_id=event.model_id,
        tenant_id=event.tenant_id,
        timestamp_us=event.timestamp_us,
        adapter_id=event.adapter_id,
        adapter_scoped=event.adapter_scoped,
        hash_scheme=event.hash_scheme,
        token_count=event.token_count,
        tier=event.tier,
        epoch=event.epoch,
        sequence=event.sequence,
        cause=event.cause,
        hash_count=len(hashes),
    )
    payload: list[Buffer] = []
    if hashes:
        if _has_one_length(event.hash_scheme) or len(set(map(len, hashes))) == 1:
            head.hash_bytes = len(hashes[0])
        else:
            head.hash_lengths = bytes(map(len, hashes))
        payload.append(b"".join(hashes))
    if event.embeddings is not None:
        head.dimensions = event.embeddings.shape[1]
        rows = np.ascontiguousarray(event.embeddings, dtype="<f4")
        payload.insert(0, rows.reshape(-1).view(np.uint8).data)
    for document in event.documents:
        head.documents.add(name=document.name, description=document.description)
    return put_frame(pieces, Kind.EVENT, head.SerializeToString(), payload)


# A frozen dataclass without its checks: the slots' own setters, in the order of the fields.
_SETTERS: Final[tuple[Callable[[CacheEvent, Any], None], ...]] = tuple(
    getattr(CacheEvent, name).__set__ for name in CacheEvent.__dataclass_fields__
)


def decode_event(head_bytes: bytes, payload: memoryview) -> CacheEvent:
    """The event of a frame. Hashes come as a list of bytes, vectors as a view of `payload`."""
    head = EventHead.FromString(head_bytes)
    count, dimensions = head.hash_count, head.dimensions
    vector_bytes = count * dimensions * 4
    embeddings = None
    if dimensions:
        flat = np.frombuffer(payload, dtype="<f4", count=count * dimensions)
        embeddings = cast(FloatMatrix, flat.reshape(count, dimensions))
    documents = head.documents
    values = (
        _TYPES[head.type],
        head.replica_id,
        head.model_id,
        head.tenant_id,
        _split_hashes(head, payload, vector_bytes) if count else (),
        head.timestamp_us,
        head.adapter_id,
        head.adapter_scoped,
        head.hash_scheme,
        embeddings,
        [Document(text.name, text.description) for text in documents] if documents else (),
        head.token_count,
        _TIERS[head.tier],
        head.epoch,
        head.sequence,
        _CAUSES[head.cause],
    )
    event = object.__new__(CacheEvent)
    for put, value in zip(_SETTERS, values, strict=True):
        put(event, value)
    return event


def _split_hashes(head: EventHead, payload: memoryview, start: int) -> Sequence[bytes]:
    count, length = head.hash_count, head.hash_bytes
    if not length:
        return _split_unequal(head.hash_lengths, payload, start)
    if count <= _SLICED_HASHES_MAX:
        packed = bytes(payload[start : start + count * length])
        return [packed[at : at + length] for at in range(0, count * length, length)]
    rows = np.frombuffer(payload, dtype=f"V{length}", count=count, offset=start)
    return cast("list[bytes]", rows.tolist())


def _split_unequal(lengths: bytes, payload: memoryview, start: int) -> list[bytes]:
    packed = bytes(payload[start : start + sum(lengths)])
    hashes, position = [], 0
    for length in lengths:
        hashes.append(packed[position : position + length])
        position += length
    return hashes
