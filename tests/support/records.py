"""Records and parts of snapshots for the tests of journals: every kind, every odd shape."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import numpy as np
from hypothesis import strategies as st
from warmindex.event import CacheEvent, Cause, Document, EventType, Tier
from warmindex.record import (
    Conditional,
    Lease,
    LeaseState,
    ProducerState,
    Report,
    UsedNumber,
)

MODEL = "acme/model"


def embedded(number: int, *, hashes: int = 1, dimensions: int = 0, replica: str = "pod-0"):
    """An event that no other number gives: its hashes say which it is."""
    keys = [number.to_bytes(16, "big") + place.to_bytes(16, "big") for place in range(hashes)]
    vectors = None
    if dimensions:
        vectors = np.full((hashes, dimensions), number + 1, dtype=np.float32)
    return CacheEvent(
        type=EventType.EMBEDDED,
        replica_id=replica,
        model_id=MODEL,
        content_hashes=keys,
        embeddings=vectors,
        timestamp_us=number,
    )


def number_of(record: CacheEvent) -> int:
    """The number that `embedded` was given."""
    return record.timestamp_us


def same(left: object, right: object) -> bool:
    """Whether two records or parts say the same, bit for bit."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.shape == right.shape and left.tobytes() == right.tobytes()
    if is_dataclass(left) and is_dataclass(right):
        return type(left) is type(right) and all(
            same(getattr(left, field.name), getattr(right, field.name)) for field in fields(left)
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


numbers = st.integers(0, 2**64 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
required_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@st.composite
def hash_lists(draw, scheme: str):
    """Hashes as the scheme has them; of unequal lengths where it is a producer's own."""
    size = {"text-sha256": (32, 32), "xxh3-chain/16": (8, 8)}.get(scheme, (1, 47))
    one = st.binary(min_size=size[0], max_size=size[1])
    return draw(st.lists(one, min_size=1, max_size=12, unique=True))


@st.composite
def events(draw):
    """Cache events of every type."""
    kind = draw(st.sampled_from(EventType))
    scheme = draw(st.sampled_from(["text-sha256", "xxh3-chain/16", "own"]))
    epoch = draw(numbers)
    common = {
        "type": kind,
        "replica_id": draw(required_names),
        "model_id": draw(required_names),
        "tenant_id": draw(names),
        "timestamp_us": draw(st.integers(-(2**63), 2**63 - 1)),
        "epoch": epoch,
        "sequence": draw(st.integers(1, 2**64 - 1)) if epoch else 0,
        "cause": draw(st.sampled_from(Cause)),
    }
    if kind is EventType.ALL_CLEARED:
        return CacheEvent(**common)
    scoped = draw(st.booleans())
    hashes = draw(hash_lists(scheme))
    common |= {
        "content_hashes": hashes,
        "adapter_id": draw(names),
        "adapter_scoped": scoped,
        "hash_scheme": scheme,
        "token_count": draw(st.integers(0, 2**32 - 1)),
        "tier": draw(st.sampled_from(Tier)),
    }
    if kind is EventType.EMBEDDED:
        dimensions = draw(st.sampled_from([0, 1, 3, 8]))
        if dimensions:
            seed = draw(st.integers(0, 2**32 - 1))
            rows = np.random.default_rng(seed).standard_normal((len(hashes), dimensions))
            common["embeddings"] = rows.astype(np.float32) + np.float32(1e-3)
        if draw(st.booleans()):
            common["documents"] = [Document(draw(names), draw(names)) for _ in hashes]
    return CacheEvent(**common)


used_numbers = st.builds(
    UsedNumber,
    replica_id=required_names,
    model_id=required_names,
    tenant_id=names,
    epoch=st.integers(1, 2**64 - 1),
    sequence=st.integers(1, 2**64 - 1),
)
leases = st.builds(
    Lease, replica_id=names, tenant_id=names, ttl_ms=st.integers(0, 24 * 3600 * 1000)
)
reports = st.builds(
    Report,
    replica_id=required_names,
    model_id=required_names,
    tenant_id=names,
    epoch=numbers,
    sequence=numbers,
    changes=st.lists(events(), max_size=3).map(tuple),
)
conditionals = st.builds(
    Conditional,
    record=st.one_of(events(), leases, reports),
    lease_generation=st.none() | numbers,
    unchanged_since=st.none() | numbers,
)
records = st.one_of(events(), used_numbers, leases, reports, conditionals)
parts = st.one_of(
    events(),
    st.builds(
        ProducerState,
        replica_id=required_names,
        model_id=required_names,
        tenant_id=names,
        epoch=numbers,
        sequence=numbers,
        resync_required=st.booleans(),
        changed_revision=numbers,
    ),
    st.builds(
        LeaseState,
        replica_id=names,
        tenant_id=names,
        ttl_ms=st.integers(1, 24 * 3600 * 1000),
        generation=numbers,
    ),
)
