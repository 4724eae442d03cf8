"""What a report adds: entries of any size, put together into events of a good size.

A key may come several times, and the last time counts. So what is told of one key must stay
in order, while keys that are told alike should share an event. Events under construction in
one partition never have a key in common: where a key comes again, told otherwise, the event
that has it is closed first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from warmindex import limits
from warmindex.event import CacheEvent, Document, EventType, FloatMatrix, Tier

# Vectors and documents in one event that is put together; well below what it may have.
EVENT_BYTES: Final = 2 * limits.MIB
# What a hash and its place in a list, and a document's two strings, take in memory.
HASH_BYTES: Final = 57
DOCUMENT_BYTES: Final = 170

# A partition of the model by its hash scheme and adapter.
_Partition: TypeAlias = tuple[str, str]


class _Shape(NamedTuple):
    """What the keys of one event have in common."""

    tier: Tier
    token_count: int
    dimensions: int
    with_documents: bool


class _Open:
    """An event under construction."""

    def __init__(self) -> None:
        self.hashes: list[bytes] = []
        self.names: set[bytes] = set()
        self.embeddings: list[FloatMatrix] = []
        self.documents: list[Document] = []
        self.timestamp_us = 0
        self.bytes = 0

    def add(self, event: CacheEvent, size: int) -> None:
        self.hashes += event.content_hashes
        self.names.update(event.content_hashes)
        if event.embeddings is not None:
            self.embeddings.append(event.embeddings)
        self.documents += event.documents
        self.timestamp_us = event.timestamp_us
        self.bytes += size

    def is_full_for(self, event: CacheEvent, size: int) -> bool:
        count = len(self.hashes) + len(event.content_hashes)
        return count > limits.CONTENT_HASHES_MAX or self.bytes + size > EVENT_BYTES


class Additions:
    """The EMBEDDED events of a report; `bytes` estimates what they take in memory."""

    def __init__(self, replica_id: str, model_id: str, tenant_id: str) -> None:
        self._replica_id, self._model_id, self._tenant_id = replica_id, model_id, tenant_id
        self._open: dict[_Partition, dict[_Shape, _Open]] = {}
        self._closed: list[CacheEvent] = []
        self.bytes = 0

    def add(self, event: CacheEvent, positions: Sequence[int] | None = None) -> None:
        """Add the keys of an EMBEDDED event, or those at some positions."""
        if positions is not None:
            event = _part_of(event, positions)
        size = _payload_bytes(event)
        self.bytes += size + sum(map(len, event.content_hashes))
        self.bytes += HASH_BYTES * len(event.content_hashes)
        partition = (event.hash_scheme, event.adapter_id)
        shapes = self._open.setdefault(partition, {})
        shape = _Shape(
            event.tier,
            event.token_count,
            0 if event.embeddings is None else event.embeddings.shape[1],
            bool(event.documents),
        )
        for other in [each for each in shapes if each != shape]:
            if not shapes[other].names.isdisjoint(event.content_hashes):
                self._close(partition, other)
        if shape in shapes and shapes[shape].is_full_for(event, size):
            self._close(partition, shape)
        shapes.setdefault(shape, _Open()).add(event, size)

    def events(self) -> list[CacheEvent]:
        """All of it, in an order that leaves each key as it was told last."""
        for partition, shapes in self._open.items():
            for shape in list(shapes):
                self._close(partition, shape)
        return self._closed

    def _close(self, partition: _Partition, shape: _Shape) -> None:
        one = self._open[partition].pop(shape)
        self._closed.append(
            CacheEvent(
                type=EventType.EMBEDDED,
                replica_id=self._replica_id,
                model_id=self._model_id,
                tenant_id=self._tenant_id,
                hash_scheme=partition[0],
                adapter_id=partition[1],
                tier=shape.tier,
                token_count=shape.token_count,
                timestamp_us=one.timestamp_us,
                content_hashes=one.hashes,
                embeddings=np.concatenate(one.embeddings) if shape.dimensions else None,
                documents=one.documents,
            )
        )


def _part_of(event: CacheEvent, positions: Sequence[int]) -> CacheEvent:
    """An event with some of its keys, without its number."""
    picked = list(positions)
    documents = event.documents
    return CacheEvent(
        type=event.type,
        replica_id=event.replica_id,
        model_id=event.model_id,
        tenant_id=event.tenant_id,
        content_hashes=[event.content_hashes[position] for position in picked],
        timestamp_us=event.timestamp_us,
        adapter_id=event.adapter_id,
        hash_scheme=event.hash_scheme,
        embeddings=None if event.embeddings is None else event.embeddings[picked],
        documents=[documents[position] for position in picked] if documents else (),
        token_count=event.token_count,
        tier=event.tier,
    )


def _payload_bytes(event: CacheEvent) -> int:
    vectors = 0 if event.embeddings is None else event.embeddings.nbytes
    return vectors + sum(
        DOCUMENT_BYTES + len(document.name) + len(document.description)
        for document in event.documents
    )
