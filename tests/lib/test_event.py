"""Events that exist are valid: every rule of the contract, and what is settled on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from warmindex.errors import InvalidError, Reason
from warmindex.event import (
    CacheEvent,
    Cause,
    Document,
    EventType,
    PartitionKey,
    Tier,
    check_hash_lengths,
    check_partition,
    check_vectors,
)
from warmindex.hashing import TEXT_SHA256

K = bytes(32)
EMBEDDED, EVICTED, ALL_CLEARED = EventType.EMBEDDED, EventType.EVICTED, EventType.ALL_CLEARED


def event(**fields: Any) -> CacheEvent:
    """An EMBEDDED event of one text, unless `fields` say otherwise."""
    names = {"type": EMBEDDED, "replica_id": "r1", "model_id": "m", "content_hashes": [K]}
    return CacheEvent(**{**names, **fields})


def matrix(*rows: list[float], dtype: Any = np.float32) -> Any:
    return np.array(rows, dtype=dtype)


def unlike(value: float, rows: int = 2, wide: int = 4) -> Any:
    """A matrix of ones with one value elsewhere, in its last row."""
    values = np.ones((rows, wide), dtype=np.float32)
    values[-1, 2] = value
    return values


# ---- what is refused -----------------------------------------------------------------------

E = "event."
REQUIRED, TOO_LONG = Reason.FIELD_REQUIRED, Reason.FIELD_TOO_LONG
RANGE, CONFLICT, LENGTH = Reason.OUT_OF_RANGE, Reason.CONFLICT, Reason.HASH_LENGTH
SHAPE, VALUE = Reason.EMBEDDING_SHAPE, Reason.EMBEDDING_VALUE

REFUSED: list[tuple[dict[str, Any], str, Reason]] = [
    ({"replica_id": ""}, "replica_id", REQUIRED),
    ({"model_id": ""}, "model_id", REQUIRED),
    ({"replica_id": "x" * 257}, "replica_id", TOO_LONG),
    ({"model_id": "x" * 2049}, "model_id", TOO_LONG),
    ({"tenant_id": "x" * 129}, "tenant_id", TOO_LONG),
    ({"adapter_id": "x" * 257}, "adapter_id", TOO_LONG),
    ({"hash_scheme": "x" * 65}, "hash_scheme", TOO_LONG),
    # Limits are bytes, not characters.
    ({"replica_id": "ä" * 129}, "replica_id", TOO_LONG),
    ({"adapter_id": "\U0001f600" * 65}, "adapter_id", TOO_LONG),
    ({"replica_id": "\ud83d"}, "replica_id", RANGE),
    ({"tenant_id": "a\udc00"}, "tenant_id", RANGE),
    ({"content_hashes": []}, "content_hashes", REQUIRED),
    ({"content_hashes": [], "type": EVICTED}, "content_hashes", REQUIRED),
    ({"content_hashes": [K] * 4097}, "content_hashes", Reason.TOO_MANY),
    ({"content_hashes": [K, b""]}, "content_hashes", LENGTH),
    ({"content_hashes": [bytes(31)]}, "content_hashes", LENGTH),
    ({"content_hashes": [bytes(64)]}, "content_hashes", LENGTH),
    ({"content_hashes": [bytes(48)]}, "content_hashes", LENGTH),
    ({"content_hashes": [K], "hash_scheme": "xxh3-chain/16"}, "content_hashes", LENGTH),
    ({"content_hashes": [b""], "hash_scheme": "own"}, "content_hashes", LENGTH),
    ({"content_hashes": [bytes(65)], "hash_scheme": "own"}, "content_hashes", LENGTH),
    (
        {"content_hashes": [bytes(8)], "type": EVICTED, "adapter_scoped": True},
        "content_hashes",
        LENGTH,
    ),
    ({"content_hashes": [bytes(48)], "type": EVICTED}, "content_hashes", LENGTH),
    ({"content_hashes": [b""], "type": EVICTED}, "content_hashes", LENGTH),
    ({"embeddings": matrix([1.0]), "type": EVICTED}, "embeddings", CONFLICT),
    ({"embeddings": matrix([1.0]), "type": ALL_CLEARED}, "embeddings", CONFLICT),
    ({"embeddings": np.ones(4, dtype=np.float32)}, "embeddings", SHAPE),
    ({"embeddings": matrix([1.0], dtype=np.float64)}, "embeddings", SHAPE),
    ({"embeddings": np.ones((1, 0), dtype=np.float32)}, "embeddings.dimensions", RANGE),
    ({"embeddings": np.ones((1, 8193), dtype=np.float32)}, "embeddings.dimensions", RANGE),
    ({"embeddings": matrix([1.0], [1.0])}, "embeddings.values", SHAPE),
    ({"embeddings": np.ones((0, 3), dtype=np.float32)}, "embeddings.values", SHAPE),
    ({"embeddings": matrix([0.0, -0.0])}, "embeddings.values", VALUE),
    ({"embeddings": matrix([1.0, np.nan])}, "embeddings.values", VALUE),
    ({"embeddings": matrix([np.inf, 1.0])}, "embeddings.values", VALUE),
    ({"embeddings": matrix([np.inf, -np.inf])}, "embeddings.values", VALUE),
    ({"documents": [Document(), Document()]}, "documents", CONFLICT),
    ({"documents": [Document("x" * 1025)]}, "documents[0].name", TOO_LONG),
    ({"documents": [Document("", "x" * 65537)]}, "documents[0].description", TOO_LONG),
    ({"documents": [Document("", "\ud83d")]}, "documents[0].description", RANGE),
    ({"token_count": -1}, "token_count", RANGE),
    ({"token_count": 2**32}, "token_count", RANGE),
    ({"epoch": 1}, "sequence", CONFLICT),
    ({"sequence": 1}, "epoch", CONFLICT),
    ({"epoch": 1, "sequence": 2**64}, "sequence", RANGE),
    ({"epoch": 2**64, "sequence": 1}, "epoch", RANGE),
    ({"epoch": -1, "sequence": 1}, "epoch", RANGE),
]


@pytest.mark.parametrize(
    ("fields", "field", "reason"), REFUSED, ids=[f"{row[1]}-{n}" for n, row in enumerate(REFUSED)]
)
def test_what_breaks_the_contract_is_refused(fields: dict[str, Any], field: str, reason: Reason):
    """With the field at fault and the reason; the message names the field too."""
    with pytest.raises(InvalidError) as caught:
        event(**fields)
    assert (caught.value.field, caught.value.reason) == (f"event.{field}", reason)
    assert caught.value.message.startswith(f"event.{field.removesuffix('.values')}")


ACCEPTED: list[dict[str, Any]] = [
    {"replica_id": "x" * 256, "model_id": "x" * 2048, "tenant_id": "x" * 128},
    {"adapter_id": "x" * 256, "hash_scheme": "x" * 64},
    {"replica_id": "ä" * 128, "adapter_id": "\U0001f600" * 64},
    {"adapter_id": " \t\x00' OR 1=1 --"},
    {"content_hashes": [number.to_bytes(32, "big") for number in range(4096)]},
    {"content_hashes": [b"x", bytes(64), bytes(48)], "hash_scheme": "own"},
    {"content_hashes": [b"x", bytes(64), bytes(8)], "type": EVICTED},
    {"content_hashes": [bytes(8)], "hash_scheme": "xxh3-chain/1"},
    {"content_hashes": [bytes(9)], "hash_scheme": "xxh3-chain/016"},
    {"embeddings": np.ones((1, 8192), dtype=np.float32)},
    {"embeddings": np.full((1, 8192), 3.4e38, dtype=np.float32)},
    {"embeddings": matrix([1e-45, 0.0])},
    {"documents": [Document("x" * 1024, "ä" * 32768)]},
    {"token_count": 2**32 - 1, "epoch": 2**64 - 1, "sequence": 2**64 - 1},
    {"timestamp_us": -1},
]


@pytest.mark.parametrize("fields", ACCEPTED)
def test_what_is_at_a_limit_is_within_it(fields: dict[str, Any]):
    """Every limit is the largest value that is allowed, and names are opaque."""
    made = event(**fields)
    for name, value in fields.items():
        given, expected = getattr(made, name), value
        assert np.array_equal(given, expected) if name == "embeddings" else given == expected


@pytest.mark.parametrize(
    ("hashes", "scheme", "position", "words"),
    [
        ([K, bytes(48)], "", 1, "base64"),
        ([bytes(64)], "", 0, "hex digits: send the bytes"),
        ([bytes(16)], "xxh3-chain/16", 0, "hex digits: send the bytes"),
        ([K, K, bytes(7)], "", 2, "has 7 bytes; text-sha256 has 32 bytes"),
        ([bytes(65)], "own", 0, "own has 1 to 64 bytes"),
    ],
)
def test_a_hash_of_a_wrong_length_is_named_with_its_likely_cause(
    hashes: list[bytes], scheme: str, position: int, words: str
):
    """64 hex digits read as base64 make 48 bytes; sent as text they are twice too long."""
    with pytest.raises(InvalidError) as caught:
        event(content_hashes=hashes, hash_scheme=scheme)
    assert caught.value.message.startswith(f"event.content_hashes[{position}] has ")
    assert words in caught.value.message


def test_an_empty_hash_is_not_taken_for_hex_digits():
    """A guess that does not fit is worse than none."""
    with pytest.raises(InvalidError) as caught:
        event(content_hashes=[b""], hash_scheme="own")
    assert "hex" not in caught.value.message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_row_at_fault_is_named(value: float):
    """Of a thousand texts, the one whose vector is bad can be left out."""
    with pytest.raises(InvalidError, match="row 1 has a NaN or an infinity"):
        check_vectors(unlike(value), "vectors")
    values = np.ones((3, 2), dtype=np.float32)
    values[1] = 0
    with pytest.raises(InvalidError, match="row 1 is all zero"):
        check_vectors(values, "vectors")


# ---- what is settled -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "scheme"),
    [
        ({}, TEXT_SHA256),
        ({"hash_scheme": "own"}, "own"),
        ({"type": EVICTED, "adapter_scoped": True}, TEXT_SHA256),
        ({"type": EVICTED, "adapter_id": "a"}, ""),
        ({"type": EVICTED}, ""),
        ({"type": EVICTED, "hash_scheme": "own"}, "own"),
    ],
)
def test_an_empty_scheme_is_settled(fields: dict[str, Any], scheme: str):
    """It is text-sha256, and every scheme only on an EVICTED without `adapter_scoped`."""
    made = event(**fields)
    assert made.hash_scheme == scheme
    assert made.every_scheme is (not scheme)


@pytest.mark.parametrize(
    ("fields", "sweeps"),
    [
        ({"type": EVICTED}, True),
        ({"type": EVICTED, "adapter_scoped": True}, False),
        ({"type": EVICTED, "adapter_id": "a"}, False),
        ({"type": EVICTED, "adapter_id": "a", "adapter_scoped": True}, False),
        ({}, False),
    ],
)
def test_only_the_oldest_evicted_sweeps_adapters(fields: dict[str, Any], sweeps: bool):
    """Without a flag and without an adapter."""
    assert event(**fields).sweeps_adapters is sweeps


@pytest.mark.parametrize(
    ("event_type", "tier", "settled"),
    [
        (EMBEDDED, Tier.UNSPECIFIED, Tier.DEVICE),
        (EMBEDDED, Tier.REMOTE, Tier.REMOTE),
        (EVICTED, Tier.UNSPECIFIED, Tier.UNSPECIFIED),
        (EVICTED, Tier.HOST, Tier.HOST),
    ],
)
def test_an_unspecified_tier_is_settled(event_type: EventType, tier: Tier, settled: Tier):
    """DEVICE where something is held; every tier where it is removed."""
    assert event(type=event_type, tier=tier).tier is settled


def test_a_clear_has_nothing_but_its_producer_and_number():
    """Other fields mean nothing on it, so they are dropped, and no fault of theirs counts."""
    made = event(
        type=ALL_CLEARED,
        content_hashes=[b"", bytes(48), bytes(1000)] * 2000,
        adapter_id="x" * 1000,
        adapter_scoped=True,
        hash_scheme="y" * 1000,
        documents=[Document("x" * 9999)],
        token_count=2**40,
        tier=Tier.HOST,
        timestamp_us=7,
        cause=Cause.LEASE,
        epoch=3,
        sequence=4,
    )
    bare = CacheEvent(
        type=ALL_CLEARED,
        replica_id="r1",
        model_id="m",
        timestamp_us=7,
        cause=Cause.LEASE,
        epoch=3,
        sequence=4,
    )
    assert fields_of(made) == fields_of(bare)
    assert made.numbered
    for fields in ({"replica_id": ""}, {"epoch": 0}, {"tenant_id": "x" * 129}):
        with pytest.raises(InvalidError):
            event(**{"type": ALL_CLEARED, "epoch": 3, "sequence": 4, **fields})


def fields_of(made: CacheEvent) -> dict[str, Any]:
    return {name: getattr(made, name) for name in CacheEvent.__slots__}


def test_documents_mean_nothing_on_an_eviction():
    """They are dropped."""
    assert event(type=EVICTED, documents=[Document("x")]).documents == ()


def test_of_the_same_key_twice_the_last_counts():
    """With its own vector and document; the others keep their order."""
    a, b, c = (bytes([number]) * 32 for number in range(3))
    made = event(
        content_hashes=[a, b, a, c, b],
        embeddings=matrix([1.0], [2.0], [3.0], [4.0], [5.0]),
        documents=[Document(name) for name in "vwxyz"],
    )
    assert list(made.content_hashes) == [a, c, b]
    assert made.embeddings is not None
    assert made.embeddings.tolist() == [[3.0], [4.0], [5.0]]
    assert [document.name for document in made.documents] == ["x", "y", "z"]


def test_events_are_frozen():
    """What was validated stays so."""
    with pytest.raises(AttributeError):
        event().replica_id = ""  # type: ignore[misc]


# ---- partitions ----------------------------------------------------------------------------


def test_a_partition_key_is_settled_like_an_event():
    """An empty scheme is text-sha256, and an empty adapter the base model's partition."""
    assert check_partition(PartitionKey("", "m", "", "")) == PartitionKey("", "m", TEXT_SHA256, "")
    own = PartitionKey("t", "m", "own", "a")
    assert check_partition(own) is own


@pytest.mark.parametrize(
    ("key", "field", "reason"),
    [
        (PartitionKey("", "", "", ""), "model_id", REQUIRED),
        (PartitionKey("x" * 129, "m", "", ""), "tenant_id", TOO_LONG),
        (PartitionKey("", "x" * 2049, "", ""), "model_id", TOO_LONG),
        (PartitionKey("", "m", "x" * 65, ""), "hash_scheme", TOO_LONG),
        (PartitionKey("", "m", "", "x" * 257), "adapter_id", TOO_LONG),
        (PartitionKey("", "m", "", "\ud800"), "adapter_id", RANGE),
    ],
)
def test_a_partition_key_is_checked(key: PartitionKey, field: str, reason: Reason):
    """Its field is named under the name that the request gives it."""
    with pytest.raises(InvalidError) as caught:
        check_partition(key, "where")
    assert (caught.value.field, caught.value.reason) == (f"where.{field}", reason)


@pytest.mark.parametrize(
    ("scheme", "allowed"),
    [
        (TEXT_SHA256, {32}),
        ("xxh3-chain/16", {8}),
        ("xxh3-chain/4294967295", {8}),
        ("xxh3-chain/4294967296", set(range(1, 65))),
        ("xxh3-chain/016", set(range(1, 65))),
        ("own", set(range(1, 65))),
        ("", set(range(1, 65)) - {48}),
    ],
)
def test_hashes_have_their_schemes_length(scheme: str, allowed: set[int]):
    """And no other: a scheme of the producer's own takes any, every scheme any but 48."""
    for length in range(70):
        if length in allowed:
            check_hash_lengths([bytes(length)], scheme, "hashes")
        else:
            with pytest.raises(InvalidError) as caught:
                check_hash_lengths([bytes(length)], scheme, "hashes")
            assert caught.value.reason is LENGTH
