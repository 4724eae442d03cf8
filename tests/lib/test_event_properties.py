"""Whatever an event is made of: it is within every limit, or it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from warmindex import limits
from warmindex.errors import InvalidError, Reason
from warmindex.event import CacheEvent, Document, EventType, Tier
from warmindex.hashing import TEXT_SHA256

K = bytes(32)

texts = st.text(max_size=3) | st.sampled_from(["a" * n for n in (63, 64, 65, 128, 257, 2049)])
floats = st.floats(width=32, allow_nan=True, allow_infinity=True)
numbers = st.integers(-1, 2) | st.sampled_from([2**64 - 1, 2**64])


def matrices(shapes: st.SearchStrategy[tuple[int, int]]) -> st.SearchStrategy[Any]:
    def of(shape: tuple[int, int]) -> st.SearchStrategy[Any]:
        size = shape[0] * shape[1]
        values = st.lists(floats, min_size=size, max_size=size)
        return values.map(lambda some: np.array(some, dtype=np.float32).reshape(shape))

    return shapes.flatmap(of)


ANYTHING: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(EventType),
    "replica_id": texts,
    "model_id": texts,
    "tenant_id": texts,
    "adapter_id": texts,
    "adapter_scoped": st.booleans(),
    "hash_scheme": st.sampled_from(["", TEXT_SHA256, "xxh3-chain/16", "xxh3-chain/0", "own"]),
    "content_hashes": st.lists(st.binary(max_size=66) | st.sampled_from([K, K[:8]]), max_size=4),
    "embeddings": st.none() | matrices(st.tuples(st.integers(0, 3), st.integers(0, 3))),
    "documents": st.lists(st.builds(Document, texts, texts), max_size=4),
    "token_count": st.integers(-1, 2) | st.just(2**32),
    "tier": st.sampled_from(Tier),
    "epoch": numbers,
    "sequence": numbers,
}


@st.composite
def nearly_valid(draw: st.DrawFn) -> dict[str, Any]:
    """Fields of a valid event, of which up to two are then anything at all."""
    scheme, length = draw(st.sampled_from([(TEXT_SHA256, 32), ("xxh3-chain/16", 8), ("own", 5)]))
    pool = [bytes([number]) * length for number in range(3)]
    hashes = draw(st.lists(st.sampled_from(pool), min_size=1, max_size=4))
    documents = [Document("name", str(place)) for place in range(len(hashes))]
    fields = {
        "type": EventType.EMBEDDED,
        "replica_id": "r1",
        "model_id": "m",
        "hash_scheme": scheme,
        "content_hashes": hashes,
        "embeddings": draw(st.none() | matrices(st.just((len(hashes), 2)))),
        "documents": draw(st.sampled_from([(), documents])),
    }
    spoiled = draw(st.lists(st.sampled_from(sorted(ANYTHING)), max_size=2))
    return {**fields, **{name: draw(ANYTHING[name]) for name in spoiled}}


def made_or_refused(fields: dict[str, Any]) -> CacheEvent | InvalidError:
    try:
        return CacheEvent(**fields)
    except InvalidError as error:
        return error


@settings(max_examples=300, deadline=None)
@given(nearly_valid())
def test_an_event_that_exists_is_within_the_limits(fields: dict[str, Any]):
    """Whatever was given, either InvalidError or an event that keeps every promise."""
    made = made_or_refused(fields)
    if isinstance(made, InvalidError):
        assert made.field.startswith("event.")
        assert made.reason is not Reason.UNSPECIFIED
        return
    assert 1 <= len(made.replica_id.encode()) <= limits.REPLICA_ID_BYTES_MAX
    assert 1 <= len(made.model_id.encode()) <= limits.MODEL_ID_BYTES_MAX
    assert len(made.tenant_id.encode()) <= limits.TENANT_ID_BYTES_MAX
    assert len(made.adapter_id.encode()) <= limits.ADAPTER_ID_BYTES_MAX
    assert len(made.hash_scheme.encode()) <= limits.HASH_SCHEME_BYTES_MAX
    assert (made.epoch == 0) == (made.sequence == 0)
    assert 0 <= made.epoch < 2**64
    assert 0 <= made.sequence < 2**64
    if made.type is EventType.ALL_CLEARED:
        assert not made.content_hashes
        return
    assert len(set(made.content_hashes)) == len(made.content_hashes)
    assert set(made.content_hashes) == set(fields["content_hashes"])
    length = {TEXT_SHA256: {32}, "xxh3-chain/16": {8}}.get(made.hash_scheme, set(range(1, 65)))
    assert all(len(content_hash) in length for content_hash in made.content_hashes)
    assert len(made.documents) in (0, len(made.content_hashes))
    assert made.hash_scheme or made.every_scheme
    if made.type is EventType.EMBEDDED:
        assert made.tier is not Tier.UNSPECIFIED
    given = list(fields["content_hashes"])
    last = [len(given) - 1 - given[::-1].index(each) for each in made.content_hashes]
    assert last == sorted(last)
    if made.documents:
        assert list(made.documents) == [fields["documents"][position] for position in last]
    if made.embeddings is not None:
        assert made.embeddings.tobytes() == fields["embeddings"][last].tobytes()
        assert len(made.embeddings) == len(made.content_hashes)
        assert np.isfinite(made.embeddings).all()
        assert made.embeddings.any(axis=1).all()
