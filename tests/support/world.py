"""Strategies for events over a small world, in which everything collides sooner or later.

Few names and few keys: the same hash under several schemes and adapters, the same replica in
several tenants and models, the same content again and again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from warmindex.event import CacheEvent, Cause, Document, EventType, FloatMatrix, PartitionKey, Tier

TENANTS = ("", "blue")
MODELS = ("m1", "m2")
ADAPTERS = ("", "sql-lora", "chat-lora")
REPLICAS = ("r1", "r2", "r3")
TIERS = (Tier.DEVICE, Tier.HOST, Tier.REMOTE)
TEXT, CHAIN, OWN = "text-sha256", "xxh3-chain/16", "own"

TEXT_HASHES = tuple(bytes([number]) * 32 for number in range(5))
CHAIN_HASHES = tuple(number.to_bytes(8, "big") for number in range(8))
# A scheme of the producer's own takes any length, so a hash can be in two schemes at once.
HASHES = {TEXT: TEXT_HASHES, CHAIN: CHAIN_HASHES, OWN: TEXT_HASHES[:3] + CHAIN_HASHES[:4]}
EVERY_HASH = TEXT_HASHES + CHAIN_HASHES

DOCUMENTS = (
    Document(),
    Document("query", "ask a database"),
    Document("mail", ""),
    Document("", "send a letter"),
)

# Most of what happens happens in one place: collisions are what is looked for.
tenants = st.sampled_from((*TENANTS[:1] * 3, *TENANTS))
models = st.sampled_from((*MODELS[:1] * 3, *MODELS))
adapters = st.sampled_from(ADAPTERS)
replicas = st.sampled_from(REPLICAS)
tiers = st.sampled_from((*TIERS, Tier.UNSPECIFIED))
schemes = st.sampled_from((TEXT, CHAIN, OWN))
token_counts = st.sampled_from((0, 0, 16, 16, 16, 7))

partition_keys = st.builds(PartitionKey, tenants, models, schemes, adapters)


def hashes(scheme: str) -> st.SearchStrategy[list[bytes]]:
    """Some hashes of a scheme, the same one several times too, or a chain from its beginning."""
    known = HASHES[scheme]
    some = st.lists(st.sampled_from(known), min_size=1, max_size=6)
    return some | st.integers(1, len(known)).map(lambda count: list(known[:count]))


def matrices(rows: int) -> st.SearchStrategy[FloatMatrix]:
    """A few vectors, often the same ones, and now and then of another width."""
    firsts = st.lists(st.sampled_from((1.0, 1.0, -2.5)), min_size=rows, max_size=rows)
    return st.builds(
        lambda width, column: np.array([[first] * width for first in column], dtype=np.float32),
        st.sampled_from((2, 2, 2, 3)),
        firsts,
    )


@st.composite
def embedded(draw: st.DrawFn, /, **fields: Any) -> CacheEvent:
    """An EMBEDDED event without a number."""
    scheme = draw(schemes)
    content_hashes = draw(hashes(scheme))
    count = len(content_hashes)
    with_vectors, with_documents = draw(st.booleans()), draw(st.booleans())
    documents = st.lists(st.sampled_from(DOCUMENTS), min_size=count, max_size=count)
    return _event(
        draw,
        EventType.EMBEDDED,
        fields,
        hash_scheme=scheme,
        content_hashes=content_hashes,
        adapter_id=draw(adapters),
        tier=draw(tiers),
        token_count=draw(token_counts),
        embeddings=draw(matrices(count)) if with_vectors else None,
        documents=draw(documents) if with_documents else (),
    )


@st.composite
def evicted(draw: st.DrawFn, /, **fields: Any) -> CacheEvent:
    """An EVICTED event without a number: of every reach there is."""
    scheme = draw(st.sampled_from((TEXT, CHAIN, OWN, "")))
    scoped = draw(st.booleans())
    if scheme or scoped:
        content_hashes = draw(hashes(scheme or TEXT))
    else:
        content_hashes = draw(st.lists(st.sampled_from(EVERY_HASH), min_size=1, max_size=8))
    return _event(
        draw,
        EventType.EVICTED,
        fields,
        hash_scheme=scheme,
        content_hashes=content_hashes,
        adapter_id=draw(adapters),
        adapter_scoped=scoped,
        tier=draw(tiers),
    )


@st.composite
def cleared(draw: st.DrawFn, /, **fields: Any) -> CacheEvent:
    """An ALL_CLEARED event without a number, the server's own too."""
    cause = draw(st.sampled_from((Cause.NONE, Cause.NONE, Cause.LEASE)))
    return _event(draw, EventType.ALL_CLEARED, fields, cause=cause)


def _event(
    draw: st.DrawFn, event_type: EventType, fields: dict[str, Any], **drawn: Any
) -> CacheEvent:
    names = {
        "tenant_id": draw(tenants),
        "model_id": draw(models),
        "replica_id": draw(replicas),
    }
    return CacheEvent(**{"type": event_type, **names, **drawn, **fields})
