"""Every way in which an event can break the contract, with what it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from support.messages import ALL_CLEARED, EVICTED, block, block_of, event, key
from warmindex.v1 import event_pb2


@dataclass(frozen=True, slots=True)
class BadEvent:
    """One violation: the event's fields, the reason, the field at fault, words of the message.

    `number` says whether the event may carry a number that it uses up: not where the producer
    or the number is what is wrong with it.
    """

    name: str
    reason: str
    at: str
    says: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)
    number: bool = True

    def message(self, **more: Any) -> event_pb2.CacheEvent:
        """The event."""
        return event(**{**self.fields, **more})

    def __str__(self) -> str:
        return self.name


def bad(
    name: str, reason: str, at: str, *says: str, number: bool = True, **fields: Any
) -> BadEvent:
    """A violation, shorter."""
    return BadEvent(name, reason, at, says, fields, number)


INFINITY, NAN = float("inf"), float("nan")
LONG_DOCUMENT = event_pb2.Document(name="a", description="x" * 65536)

TYPES = [
    bad(f"type {number}", "VALUE_UNKNOWN", "event.type", "EMBEDDED (1)", type=number)
    for number in (0, 3, 5, 9, -1, 2**31 - 1)
]

NAMES = [
    bad("no replica", "FIELD_REQUIRED", "event.replica_id", number=False, replica_id=""),
    bad("no model", "FIELD_REQUIRED", "event.model_id", number=False, model_id=""),
    *(
        bad(
            f"long {name} of {letter!r}",
            "FIELD_TOO_LONG",
            f"event.{name}",
            f"at most {most} are allowed",
            number=name not in ("replica_id", "model_id", "tenant_id"),
            **{name: letter * (most // len(letter.encode())) + "x"},
        )
        for name, most in (
            ("replica_id", 256),
            ("model_id", 2048),
            ("tenant_id", 128),
            ("adapter_id", 256),
            ("hash_scheme", 64),
        )
        for letter in "xé\N{GRINNING FACE}"
    ),
]

NUMBERS = [
    bad("epoch alone", "CONFLICT", "event.sequence", "with both", number=False, epoch=1),
    bad("sequence alone", "CONFLICT", "event.epoch", "with both", number=False, sequence=1),
]

HASHES = [
    bad("no hashes", "FIELD_REQUIRED", "event.content_hashes", content_hashes=[]),
    bad(
        "nothing to evict",
        "FIELD_REQUIRED",
        "event.content_hashes",
        type=EVICTED,
        content_hashes=[],
    ),
    bad(
        "too many hashes",
        "TOO_MANY",
        "event.content_hashes",
        "4096",
        "split it",
        content_hashes=[key(number) for number in range(4097)],
    ),
    *(
        bad(
            f"{scheme or 'default'} of {length} bytes",
            "HASH_LENGTH",
            "event.content_hashes",
            f"[1] has {length} bytes",
            *says,
            hash_scheme=scheme,
            content_hashes=[bytes([7]) * right, bytes([8]) * length],
        )
        for scheme, right, length, says in (
            ("", 32, 0, ("text-sha256 has 32 bytes",)),
            ("", 32, 31, ()),
            ("text-sha256", 32, 33, ()),
            ("text-sha256", 32, 48, ("base64", "64 hex digits")),
            ("text-sha256", 32, 64, ("hex digits",)),
            ("xxh3-chain/16", 8, 7, ("xxh3-chain/16 has 8 bytes",)),
            ("xxh3-chain/16", 8, 16, ("hex digits",)),
            ("xxh3-chain/16", 8, 32, ()),
            ("my-own", 5, 0, ("1 to 64 bytes",)),
            ("my-own", 5, 65, ("1 to 64 bytes",)),
        )
    ),
    *(
        bad(
            f"every scheme, {length} bytes",
            "HASH_LENGTH",
            "event.content_hashes",
            *says,
            type=EVICTED,
            content_hashes=[bytes(8), bytes(length)],
        )
        for length, says in ((0, ()), (48, ("base64",)), (65, ("1 to 64 bytes",)))
    ),
]

EMBEDDINGS = [
    *(
        bad(
            f"{what} than rows",
            "EMBEDDING_SHAPE",
            "event.embeddings.values",
            "1 rows of 2",
            embeddings=event_pb2.EmbeddingBlock(dimensions=2, values=values),
        )
        for what, values in (
            ("nothing rather", b""),
            ("fewer bytes", bytes(7)),
            ("more bytes", bytes(9)),
            ("more rows", bytes(16)),
        )
    ),
    bad(
        "rows for two of three",
        "EMBEDDING_SHAPE",
        "event.embeddings.values",
        content_hashes=[key(1), key(2), key(3)],
        embeddings=block_of(2, 4),
    ),
    *(
        bad(
            f"{dimensions} dimensions",
            "OUT_OF_RANGE",
            "event.embeddings.dimensions",
            "1 to 8192",
            embeddings=event_pb2.EmbeddingBlock(dimensions=dimensions, values=bytes(4)),
        )
        for dimensions in (0, 8193, 2**32 - 1)
    ),
    *(
        bad(
            f"a row of {row}",
            "EMBEDDING_VALUE",
            "event.embeddings.values",
            "row 1",
            "check the embedding backend",
            content_hashes=[key(1), key(2)],
            embeddings=block([1.0, 1.0], row),
        )
        for row in ([NAN, 1.0], [1.0, INFINITY], [-INFINITY, 1.0], [0.0, 0.0], [0.0, -0.0])
    ),
    bad(
        "vectors on EVICTED",
        "CONFLICT",
        "event.embeddings",
        "EMBEDDED only",
        type=EVICTED,
        embeddings=block([1.0]),
    ),
    bad(
        "vectors on ALL_CLEARED",
        "CONFLICT",
        "event.embeddings",
        "EMBEDDED only",
        type=ALL_CLEARED,
        embeddings=block([1.0]),
    ),
]

DOCUMENTS = [
    bad(
        "documents for two of three",
        "CONFLICT",
        "event.documents",
        "one per hash",
        content_hashes=[key(1), key(2), key(3)],
        documents=[event_pb2.Document(name="a")] * 2,
    ),
    bad(
        "a long name",
        "FIELD_TOO_LONG",
        "event.documents[1].name",
        "1024",
        content_hashes=[key(1), key(2)],
        documents=[event_pb2.Document(), event_pb2.Document(name="é" * 512 + "x")],
    ),
    bad(
        "a long description",
        "FIELD_TOO_LONG",
        "event.documents[0].description",
        "65536",
        documents=[event_pb2.Document(description="語" * 21845 + "xx")],
    ),
]

OTHERS = [
    *(
        bad(f"tier {number}", "VALUE_UNKNOWN", "event.tier", "0 to 3", tier=number)
        for number in (4, 9, -1)
    ),
    bad(
        "too long as a whole, documents",
        "FIELD_TOO_LONG",
        "event",
        "3145728",
        "split it",
        content_hashes=[key(number) for number in range(48)],
        documents=[LONG_DOCUMENT] * 48,
    ),
    bad(
        "too long as a whole, vectors",
        "FIELD_TOO_LONG",
        "event",
        "split it",
        content_hashes=[key(number) for number in range(3072)],
        embeddings=block_of(3072, 256),
    ),
    bad(
        "too long as a whole, a clear",
        "FIELD_TOO_LONG",
        "event",
        type=ALL_CLEARED,
        content_hashes=[bytes(64)] * 50_000,
    ),
]

BAD_EVENTS = [*TYPES, *NAMES, *NUMBERS, *HASHES, *EMBEDDINGS, *DOCUMENTS, *OTHERS]
