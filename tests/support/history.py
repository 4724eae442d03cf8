"""Short histories of one index, written down: events with few words, applied in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from support.model import Hold, Place
from support.questions import content
from warmindex.event import CacheEvent, EventType, PartitionKey, Tier
from warmindex.index import Index
from warmindex.index.index import Query
from warmindex.index.search import SearchOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmindex.event import FloatMatrix
    from warmindex.index import Applied
    from warmindex.record import Record

MODEL = "m"
OWN = "own"  # a scheme of the producer's own: any length of hash
KEY = PartitionKey("", MODEL, OWN, "")
A, B, C, D = (bytes([number]) * 8 for number in range(1, 5))


class History:
    """An index, and the records that it has been given."""

    def __init__(self, *records: Record) -> None:
        self.index = Index()
        for record in records:
            self.apply(record)

    def apply(self, record: Record) -> Applied:
        """Apply the next record."""
        return self.index.apply(self.index.revision + 1, record)

    def reclaim(self) -> None:
        """Give back all that clears have retired."""
        while self.index.reclaim_step():
            pass

    def holds(self, content_hash: bytes, key: PartitionKey = KEY) -> set[Hold]:
        """Who holds an entry."""
        entry = content(self.index).get(Place(key, content_hash))
        return set(entry[0]) if entry else set()

    def adapters(self, content_hash: bytes, key: PartitionKey = KEY) -> set[str]:
        """The adapters in whose partitions there is an entry, in the key's scope."""
        return {
            place.key.adapter_id
            for place in content(self.index)
            if place.content_hash == content_hash and place.key[:3] == key[:3]
        }

    def vector(self, content_hash: bytes, key: PartitionKey = KEY) -> list[float] | None:
        """An entry's vector."""
        fetched = self.index.fetch(key, [content_hash], 10**6)
        return np.frombuffer(fetched.values, np.float32).tolist() if fetched.rows else None

    def found(self, word: str, key: PartitionKey = KEY) -> list[bytes]:
        """The entries that a word finds."""
        return [
            hit.content_hash for hit in self.index.search(key, Query(text=word), SearchOptions())
        ]


def embedded(*content_hashes: bytes, **fields: Any) -> CacheEvent:
    """An EMBEDDED event by replica r1 in the base partition, unless `fields` say otherwise."""
    return _event(EventType.EMBEDDED, content_hashes, fields)


def evicted(*content_hashes: bytes, **fields: Any) -> CacheEvent:
    """An EVICTED event by replica r1 for the base partition, unless `fields` say otherwise."""
    return _event(EventType.EVICTED, content_hashes, {"adapter_scoped": True, **fields})


def cleared(**fields: Any) -> CacheEvent:
    """An ALL_CLEARED event by replica r1."""
    return _event(EventType.ALL_CLEARED, (), fields)


def _event(
    event_type: EventType, content_hashes: Sequence[bytes], fields: dict[str, Any]
) -> CacheEvent:
    names = {"replica_id": "r1", "model_id": MODEL, "hash_scheme": OWN}
    return CacheEvent(**{"type": event_type, "content_hashes": content_hashes, **names, **fields})


def rows(*vectors: Sequence[float]) -> FloatMatrix:
    """Vectors as an event carries them."""
    return np.array(vectors, dtype=np.float32)


DEVICE, HOST, REMOTE = Tier.DEVICE, Tier.HOST, Tier.REMOTE
