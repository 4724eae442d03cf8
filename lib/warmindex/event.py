"""Cache events and the keys they speak of: the domain's own words, validated when made.

    wire  ->  CacheEvent  ->  journal  ->  index  ->  watch

A `CacheEvent` that exists is valid: everything behind the boundary relies on it. What the
contract leaves open is settled here once, so that nothing behind needs to know:

    hash_scheme    empty means "text-sha256"; only an EVICTED without `adapter_scoped` keeps
                   it empty, and then means every scheme of the model
    tier           unspecified means DEVICE on EMBEDDED, every tier on EVICTED
    content_hashes the same key twice: the last one counts, with its vector and document
    ALL_CLEARED    adapter, scheme, tier and hashes mean nothing on it, and are dropped
    EVICTED        documents mean nothing on it, and are dropped
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from warmindex import limits
from warmindex.errors import InvalidError, Reason, out_of_range, required
from warmindex.hashing import TEXT_SHA256, chain_block_size

FloatMatrix: TypeAlias = npt.NDArray[np.float32]


class EventType(IntEnum):
    """What a replica did. The numbers are the contract's."""

    EMBEDDED = 1
    EVICTED = 2
    ALL_CLEARED = 4


class Cause(IntEnum):
    """Who or what made a change; NONE is the producer itself."""

    NONE = 0
    REPORT = 1
    LEASE = 2
    IDLE = 3
    CAPACITY = 4


class Tier(IntEnum):
    """Where a replica holds content, nearest first."""

    UNSPECIFIED = 0
    DEVICE = 1
    HOST = 2
    REMOTE = 3


class Document(NamedTuple):
    """The text under which an entry is found by words."""

    name: str = ""
    description: str = ""


class PartitionKey(NamedTuple):
    """One adapter's partition inside a scope, in the order that partitions are listed in."""

    tenant_id: str
    model_id: str
    hash_scheme: str
    adapter_id: str


EMPTY_DOCUMENT: Final = Document()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CacheEvent:
    """What one replica has just computed, dropped or flushed; fields as in the contract.

    `embeddings` is float32 of shape (len(content_hashes), dimensions), or None.
    `documents` has one per content hash, or none; an empty one leaves what the entry has.
    `epoch` and `sequence` are both 0 on an event without a number.

    Raises InvalidError, with the field and the reason, for whatever breaks the contract.
    """

    type: EventType
    replica_id: str
    model_id: str
    tenant_id: str = ""
    content_hashes: Sequence[bytes] = ()
    timestamp_us: int = 0
    adapter_id: str = ""
    adapter_scoped: bool = False
    hash_scheme: str = ""
    embeddings: FloatMatrix | None = None
    documents: Sequence[Document] = ()
    token_count: int = 0
    tier: Tier = Tier.UNSPECIFIED
    epoch: int = 0
    sequence: int = 0
    cause: Cause = Cause.NONE

    def __post_init__(self) -> None:
        """Validate, and settle what the contract leaves open."""
        check_producer(self.tenant_id, self.model_id, self.replica_id)
        check_number(self.epoch, self.sequence)
        if self.type is EventType.ALL_CLEARED:
            self._settle_clear()
            return
        check_adapter_id(self.adapter_id, "event.adapter_id")
        _check_string(self.hash_scheme, limits.HASH_SCHEME_BYTES_MAX, "event.hash_scheme")
        embedded = self.type is EventType.EMBEDDED
        if not self.hash_scheme and (embedded or self.adapter_scoped):
            object.__setattr__(self, "hash_scheme", TEXT_SHA256)
        if embedded and self.tier is Tier.UNSPECIFIED:
            object.__setattr__(self, "tier", Tier.DEVICE)
        self._check_hashes()
        self._check_embeddings()
        self._check_documents()
        if not 0 <= self.token_count <= limits.TOKEN_COUNT_MAX:
            raise out_of_range("event.token_count", self.token_count, "0 to 2^32 - 1")
        if len(set(self.content_hashes)) != len(self.content_hashes):
            self._keep_last_of_each_hash()
        if not embedded and self.documents:
            object.__setattr__(self, "documents", ())

    @property
    def numbered(self) -> bool:
        """Whether the producer gave it an epoch and a sequence."""
        return self.epoch != 0

    @property
    def every_scheme(self) -> bool:
        """Whether it is an EVICTED that reaches into every hash scheme of its model."""
        return self.type is EventType.EVICTED and not self.hash_scheme

    @property
    def sweeps_adapters(self) -> bool:
        """Whether it is an EVICTED that reaches into every adapter's partition."""
        return self.type is EventType.EVICTED and not self.adapter_scoped and not self.adapter_id

    def _settle_clear(self) -> None:
        _refuse_embeddings(self.embeddings, "ALL_CLEARED")
        for name, empty in _MEANINGLESS_ON_CLEAR:
            object.__setattr__(self, name, empty)

    def _check_hashes(self) -> None:
        hashes = self.content_hashes
        if not hashes:
            raise required("event.content_hashes", f"{self.type.name} says which by their hashes")
        if len(hashes) > limits.CONTENT_HASHES_MAX:
            raise InvalidError(
                f"event.content_hashes has {len(hashes)} hashes; at most "
                f"{limits.CONTENT_HASHES_MAX} go into one event: split it",
                field="event.content_hashes",
                reason=Reason.TOO_MANY,
            )
        check_hash_lengths(hashes, self.hash_scheme, "event.content_hashes")

    def _check_embeddings(self) -> None:
        matrix = self.embeddings
        if matrix is None:
            return
        if self.type is not EventType.EMBEDDED:
            _refuse_embeddings(matrix, self.type.name)
        if matrix.ndim != 2 or matrix.dtype != np.float32:
            raise InvalidError(
                "event.embeddings must be a float32 matrix with one row per content hash",
                field="event.embeddings",
                reason=Reason.EMBEDDING_SHAPE,
            )
        rows, dimensions = matrix.shape
        if not 1 <= dimensions <= limits.DIMENSIONS_MAX:
            raise out_of_range(
                "event.embeddings.dimensions", dimensions, f"1 to {limits.DIMENSIONS_MAX}"
            )
        if rows != len(self.content_hashes):
            raise InvalidError(
                f"event.embeddings has {rows} rows for {len(self.content_hashes)} content "
                "hashes: send one row per hash, in the same order",
                field="event.embeddings.values",
                reason=Reason.EMBEDDING_SHAPE,
            )
        check_vectors(matrix, "event.embeddings.values")

    def _check_documents(self) -> None:
        documents = self.documents
        if not documents:
            return
        if len(documents) != len(self.content_hashes):
            raise InvalidError(
                f"event.documents has {len(documents)} documents for "
                f"{len(self.content_hashes)} content hashes: send one per hash (an empty one "
                "leaves what the entry has) or none",
                field="event.documents",
                reason=Reason.CONFLICT,
            )
        for position, document in enumerate(documents):
            where = f"event.documents[{position}]"
            _check_string(document.name, limits.DOCUMENT_NAME_BYTES_MAX, f"{where}.name")
            _check_string(
                document.description,
                limits.DOCUMENT_DESCRIPTION_BYTES_MAX,
                f"{where}.description",
            )

    def _keep_last_of_each_hash(self) -> None:
        last = {content_hash: position for position, content_hash in enumerate(self.content_hashes)}
        positions = sorted(last.values())
        object.__setattr__(
            self, "content_hashes", tuple(self.content_hashes[position] for position in positions)
        )
        if self.embeddings is not None:
            object.__setattr__(self, "embeddings", self.embeddings[positions])
        if self.documents:
            object.__setattr__(
                self, "documents", tuple(self.documents[position] for position in positions)
            )


_MEANINGLESS_ON_CLEAR: Final[tuple[tuple[str, object], ...]] = (
    ("content_hashes", ()),
    ("adapter_id", ""),
    ("adapter_scoped", False),
    ("hash_scheme", ""),
    ("documents", ()),
    ("token_count", 0),
    ("tier", Tier.UNSPECIFIED),
)


def check_producer(tenant_id: str, model_id: str, replica_id: str, prefix: str = "event") -> None:
    """Raise InvalidError unless the three name a producer."""
    check_replica(tenant_id, replica_id, prefix)
    if not model_id:
        raise required(f"{prefix}.model_id", "it names the model that computed the content")
    check_model_id(model_id, f"{prefix}.model_id")


def check_replica(tenant_id: str, replica_id: str, prefix: str) -> None:
    """Raise InvalidError unless the two name a replica."""
    if not replica_id:
        raise required(f"{prefix}.replica_id", "it names who holds the content")
    _check_string(replica_id, limits.REPLICA_ID_BYTES_MAX, f"{prefix}.replica_id")
    check_tenant_id(tenant_id, f"{prefix}.tenant_id")


def check_number(epoch: int, sequence: int) -> None:
    """Raise InvalidError unless epoch and sequence are both set or both 0."""
    if (epoch == 0) != (sequence == 0):
        name, other = ("epoch", "sequence") if epoch == 0 else ("sequence", "epoch")
        raise InvalidError(
            f"event.{name} is 0 although event.{other} is set: number an event with both, "
            "from 1 on, or with neither",
            field=f"event.{name}",
            reason=Reason.CONFLICT,
        )
    for name, number in (("epoch", epoch), ("sequence", sequence)):
        if not 0 <= number <= limits.SEQUENCE_MAX:
            raise out_of_range(f"event.{name}", number, "1 to 2^64 - 1")


def check_tenant_id(tenant_id: str, name: str) -> None:
    """Raise InvalidError where a tenant's name is too long."""
    _check_string(tenant_id, limits.TENANT_ID_BYTES_MAX, name)


def check_model_id(model_id: str, name: str) -> None:
    """Raise InvalidError where a model's identity is too long."""
    _check_string(model_id, limits.MODEL_ID_BYTES_MAX, name)


def check_adapter_id(adapter_id: str, name: str) -> None:
    """Raise InvalidError where an adapter's name is too long."""
    _check_string(adapter_id, limits.ADAPTER_ID_BYTES_MAX, name)


def check_partition(key: PartitionKey, prefix: str = "partition") -> PartitionKey:
    """The key with its hash scheme settled; InvalidError where it addresses nothing."""
    if not key.model_id:
        raise required(f"{prefix}.model_id", "a partition belongs to one model")
    check_model_id(key.model_id, f"{prefix}.model_id")
    check_tenant_id(key.tenant_id, f"{prefix}.tenant_id")
    _check_string(key.hash_scheme, limits.HASH_SCHEME_BYTES_MAX, f"{prefix}.hash_scheme")
    check_adapter_id(key.adapter_id, f"{prefix}.adapter_id")
    return key if key.hash_scheme else key._replace(hash_scheme=TEXT_SHA256)


@lru_cache(maxsize=1024)
def _hash_bytes_of(scheme: str) -> int | None:
    """The one length that a scheme's hashes have; None for 1 to 64 bytes."""
    if scheme == TEXT_SHA256:
        return limits.TEXT_HASH_BYTES
    return None if chain_block_size(scheme) is None else limits.CHAIN_HASH_BYTES


def check_hash_lengths(hashes: Sequence[bytes], scheme: str, name: str) -> None:
    """Raise InvalidError (HASH_LENGTH) unless every hash has its scheme's length.

    An empty `scheme` stands for every scheme: 1 to 64 bytes, but never 48.
    """
    expected = _hash_bytes_of(scheme)
    if expected is not None and list(map(len, hashes)).count(expected) == len(hashes):
        return  # nearly every call ends here, with hundreds of hashes
    lengths = set(map(len, hashes))
    if expected is not None:
        wrong = lengths - {expected}
        allowed = f"{scheme} has {expected} bytes"
    else:
        wrong = {n for n in lengths if not 1 <= n <= limits.CONTENT_HASH_BYTES_MAX}
        allowed = f"{scheme or 'a hash scheme'} has 1 to {limits.CONTENT_HASH_BYTES_MAX} bytes"
        if not scheme:
            wrong |= lengths & {limits.HEX_DIGEST_READ_AS_BASE64_BYTES}
    if not wrong:
        return
    position = next(i for i, content_hash in enumerate(hashes) if len(content_hash) in wrong)
    length = len(hashes[position])
    hint = ""
    if length == limits.HEX_DIGEST_READ_AS_BASE64_BYTES:
        hint = "; in JSON bytes are base64: 64 hex digits read as base64 make 48 bytes"
    elif expected is not None and length == 2 * expected:
        hint = "; it looks like hex digits: send the bytes themselves (base64 in JSON)"
    raise InvalidError(
        f"{name}[{position}] has {length} bytes; {allowed}{hint}",
        field=name,
        reason=Reason.HASH_LENGTH,
    )


def check_vectors(matrix: FloatMatrix, name: str) -> None:
    """Raise InvalidError (EMBEDDING_VALUE) for a NaN, an infinity, or an all-zero row."""
    # One pass for the good case: a sum over |x| is finite and positive exactly for rows
    # that are. float64 because 8192 values of 3e38 would overflow float32.
    sums = np.abs(matrix).sum(axis=1, dtype=np.float64)
    good = (sums > 0) & (sums < np.inf)
    if good.all():
        return
    row = int(np.flatnonzero(~good)[0])
    what = "is all zero" if sums[row] == 0 else "has a NaN or an infinity"
    raise InvalidError(
        f"{name}: row {row} {what}; a vector without a direction cannot be compared: "
        "check the embedding backend, and leave the text out",
        field=name,
        reason=Reason.EMBEDDING_VALUE,
    )


def _refuse_embeddings(embeddings: FloatMatrix | None, type_name: str) -> None:
    if embeddings is not None:
        raise InvalidError(
            f"event.embeddings is set on {type_name}; vectors come with EMBEDDED only",
            field="event.embeddings",
            reason=Reason.CONFLICT,
        )


def _check_string(value: str, bytes_max: int, name: str) -> None:
    if len(value) * 4 <= bytes_max and value.isascii():
        return
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidError(
            f"{name} has a lone surrogate, which is not valid Unicode: repair the text",
            field=name,
            reason=Reason.OUT_OF_RANGE,
        ) from None
    if length > bytes_max:
        raise InvalidError(
            f"{name} has {length} bytes; at most {bytes_max} are allowed",
            field=name,
            reason=Reason.FIELD_TOO_LONG,
        )
