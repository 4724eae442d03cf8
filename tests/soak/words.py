"""What producers say: few keys, all of them shared, so that everything collides.

The vector and the text of a key are always the same, as where the key is a hash of the text:
then who published first leaves no trace, and what there must be in the end follows from what
each producer holds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from support.model import PlainIndex
from warmindex.event import CacheEvent, Document, EventType, Tier

MODEL = "m"
SCHEME = "text-sha256"
ADAPTERS = ("", "sql-lora", "chat-lora")
TIERS = (Tier.DEVICE, Tier.HOST)
KEYS = 60
TOKENS = 16


def key(number: int) -> bytes:
    """The key of a number."""
    return number.to_bytes(32, "big")


def embedded(replica_id: str, tenant_id: str, numbers: list[int], **where: object) -> CacheEvent:
    """An EMBEDDED with what belongs to its keys."""
    matrix = np.ones((len(numbers), 3), np.float32)
    matrix[:, 0] = np.asarray(numbers)
    return CacheEvent(
        type=EventType.EMBEDDED,
        replica_id=replica_id,
        tenant_id=tenant_id,
        model_id=MODEL,
        hash_scheme=SCHEME,
        content_hashes=[key(number) for number in numbers],
        embeddings=matrix,
        documents=[Document(f"tool_{number}", f"what {number} does") for number in numbers],
        token_count=TOKENS,
        **where,
    )


def something(chance: random.Random, replica_id: str, tenant_id: str) -> CacheEvent:
    """A random event without a number."""
    kinds = (EventType.EMBEDDED, EventType.EVICTED, EventType.ALL_CLEARED)
    (kind,) = chance.choices(kinds, (60, 38, 2))
    numbers = chance.sample(range(KEYS), chance.randint(1, 8))
    if kind is EventType.EMBEDDED:
        where = {"adapter_id": chance.choice(ADAPTERS), "tier": chance.choice(TIERS)}
        return embedded(replica_id, tenant_id, numbers, **where)
    names = {"replica_id": replica_id, "tenant_id": tenant_id, "model_id": MODEL}
    if kind is EventType.ALL_CLEARED:
        return CacheEvent(type=kind, **names)
    return CacheEvent(
        type=kind,
        content_hashes=[key(number) for number in numbers],
        hash_scheme=SCHEME,
        adapter_id=chance.choice(ADAPTERS),
        adapter_scoped=chance.random() < 0.8,
        tier=chance.choice((Tier.UNSPECIFIED, *TIERS)),
        **names,
    )


def held(truth: PlainIndex, replica_id: str, tenant_id: str) -> Iterator[CacheEvent]:
    """All that a replica holds, as a report lists it."""
    found = truth.held_by(tenant_id, MODEL, replica_id)
    for adapter_id in ADAPTERS:
        for tier in TIERS:
            numbers = sorted(
                int.from_bytes(place.content_hash, "big")
                for place, where in found
                if place.key.adapter_id == adapter_id and where is tier
            )
            if numbers:
                yield embedded(replica_id, tenant_id, numbers, adapter_id=adapter_id, tier=tier)
