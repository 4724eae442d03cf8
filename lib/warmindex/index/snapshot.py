"""The whole index, or a part of it, exactly as it is at one revision, as events.

    with Snapshot(index) as snapshot:
        for step in snapshot.steps():      # the index may go on changing between the steps
            keep(snapshot.revision, step)

Nothing is copied when a snapshot opens but dictionaries of partitions and producers; what
the index changes later, it puts aside (see versions). So a snapshot may be read slowly, and
costs memory only for what has changed under it. A step is one event, or a look at WINDOW
entries, and holds the loop for about a millisecond. One thing has to be done at once for each
partition when its turn comes: the list of its keys. Measured with a million entries in one
partition: 6 to 10 ms as they come from events, up to 30 ms with all keys scattered over the
memory, which is what touching a million objects costs; a copy of the dictionary took 20 to
27 ms, and the memory once more.

The events are those that rebuild the state: EMBEDDED ones, grouped by what entries have in
common, with at most EVENT_HASHES keys and about EVENT_BYTES. A key that several hold is in
one event for each of them, with its vector and document in one of these only. Then there
are producers' numbers and leases, where the snapshot is of everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from warmindex import limits
from warmindex.event import EMPTY_DOCUMENT, CacheEvent, EventType, PartitionKey
from warmindex.index.frozen import Frozen
from warmindex.index.holders import each_bit
from warmindex.record import ProducerState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from warmindex.event import Document, Tier
    from warmindex.index.index import Index
    from warmindex.index.model import Model
    from warmindex.index.partition import Partition
    from warmindex.index.producers import Producer
    from warmindex.index.selection import Selection
    from warmindex.record import LeaseState, SnapshotPart

# Entries looked at in a step: well below a millisecond.
WINDOW: Final = 4096
EVENT_HASHES: Final = limits.CONTENT_HASHES_MAX
# A third of what an event may have: to gather, check and encode it takes a millisecond or two.
EVENT_BYTES: Final = limits.MIB
# A key with its tag and length, in an event.
_HASH_BYTES: Final = limits.CONTENT_HASH_BYTES_MAX + 2
# The tags and lengths of a document and its strings.
_DOCUMENT_BYTES: Final = 16
# Producers' numbers and leases in one step.
_STATES_PER_STEP: Final = 512


class _Source(NamedTuple):
    """One model, as it was when the snapshot opened."""

    tenant_id: str
    model_id: str
    live: int
    names: Mapping[int, tuple[str, Tier]]
    schemes: Sequence[tuple[str, Mapping[str, Partition]]]
    producers: Mapping[str, Producer]


class Snapshot:
    """The state after `revision`; close it, or use it in `with`. `steps` may be used once."""

    def __init__(self, index: Index, selection: Selection | None = None) -> None:
        """Open it: all of the index, or what is selected."""
        self.revision = index.revision
        self._selection = selection
        self._versions = index.versions
        self._layer = index.versions.open()
        self._closed = False
        self._leases = [] if selection else list(index.leases.values())
        self._sources = [
            _source(tenant_id, model_id, model)
            for (tenant_id, model_id), model in index.models.items()
            if selection is None or selection.has_model(tenant_id, model_id)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was kept for this snapshot. May be called twice."""
        if not self._closed:
            self._closed = True
            self._versions.close()

    def steps(self) -> Iterator[Sequence[SnapshotPart]]:
        """All parts, in steps that may be empty."""
        if self._selection is None:
            states: list[ProducerState | LeaseState] = list(self._leases)
            for source in self._sources:
                for replica_id, producer in source.producers.items():
                    states.append(self._numbering(source, replica_id, producer))
                    if len(states) >= _STATES_PER_STEP:
                        yield states
                        states = []
            yield states
        for source in self._sources:
            for scheme, partitions in source.schemes:
                for adapter_id, partition in partitions.items():
                    if self._selection is None or self._selection.has_adapter(adapter_id):
                        key = PartitionKey(source.tenant_id, source.model_id, scheme, adapter_id)
                        frozen = Frozen(partition, self._layer)
                        yield from _PartitionEvents(key, source, frozen, self._selection).steps()

    def _numbering(self, source: _Source, replica_id: str, producer: Producer) -> ProducerState:
        epoch, sequence, resync_required, changed_revision = self._layer.numbering(producer)
        return ProducerState(
            replica_id=replica_id,
            model_id=source.model_id,
            tenant_id=source.tenant_id,
            epoch=epoch,
            sequence=sequence,
            resync_required=resync_required,
            changed_revision=changed_revision,
        )


def _source(tenant_id: str, model_id: str, model: Model) -> _Source:
    return _Source(
        tenant_id,
        model_id,
        model.holders.live,
        model.holders.names(),
        [(scheme, dict(scope.partitions)) for scheme, scope in model.schemes.items()],
        dict(model.producers),
    )


class _PartitionEvents:
    """The events of one partition.

    Keys are collected by holder until they fill an event: first those that come with their
    vectors and documents, apart from those that another holder's event has already brought.
    """

    def __init__(
        self, key: PartitionKey, source: _Source, frozen: Frozen, selection: Selection | None
    ) -> None:
        self._key = key
        self._source = source
        self._frozen = frozen
        self._with_embeddings = selection is None or selection.embeddings
        self._with_documents = selection is None or selection.documents
        self._pending: dict[tuple[int, bool], list[bytes]] = {}

    def steps(self) -> Iterator[Sequence[CacheEvent]]:
        for keys in self._windows():
            full = self._collect(keys)
            yield ()
            for bit, first in full:
                pending = self._pending[bit, first]
                whole = len(pending) - len(pending) % EVENT_HASHES
                self._pending[bit, first] = pending[whole:]
                yield from self._events(bit, first, pending[:whole])
        for (bit, first), pending in self._pending.items():
            if pending:
                yield from self._events(bit, first, pending)

    def _windows(self) -> Iterator[Sequence[bytes]]:
        """All keys that were there, each once, beside some that were not."""
        frozen = self._frozen
        touched = frozen.keys_touched()
        present = frozen.keys_present()
        seen: set[bytes] = set()
        for start in range(0, len(present), WINDOW):
            keys = present[start : start + WINDOW].tolist()
            if len(touched):
                seen.update(frozen.touched_of(keys))
            yield keys
        del present
        # What went before its turn came.
        for start in range(0, len(touched), WINDOW):
            keys = touched[start : start + WINDOW].tolist()
            some = [key for key in keys if key not in seen]
            seen.update(some)
            yield list(dict.fromkeys(some))

    def _collect(self, keys: Sequence[bytes]) -> list[tuple[int, bool]]:
        """Sort keys by who held them; the holders for whom there is a whole event."""
        by_bits: dict[int, list[bytes]] = {}
        bits_of = self._frozen.bits(keys)
        if bits_of and bits_of.count(bits_of[0]) == len(bits_of):
            by_bits[bits_of[0] or 0] = list(keys)
        else:
            for content_hash, bits in zip(keys, bits_of, strict=True):
                by_bits.setdefault(bits or 0, []).append(content_hash)
        full = {}
        for bits, group in by_bits.items():
            first = True
            for bit in each_bit(bits & self._source.live):
                pending = self._pending.setdefault((bit, first), [])
                pending += group
                if len(pending) >= EVENT_HASHES:
                    full[bit, first] = True
                first = False
        return list(full)

    def _events(
        self, bit: int, first: bool, keys: Sequence[bytes]
    ) -> Iterator[Sequence[CacheEvent]]:
        """One holder's events over some keys, a step each."""
        with_vectors = first and self._with_embeddings
        row_bytes = 4 * self._frozen.dimensions if with_vectors else 0
        size = min(EVENT_HASHES, max(1, EVENT_BYTES // (row_bytes + _HASH_BYTES)))
        for start in range(0, len(keys), size):
            some = keys[start : start + size]
            for count, same in _by_value(some, self._frozen.tokens(some)):
                if not row_bytes:
                    yield from self._documented(bit, first, count, same, None)
                    continue
                rows = self._frozen.vectors(same)
                matrix = np.frombuffer(rows.values, np.float32).reshape(-1, rows.dimensions)
                for has_row, group in _by_value(same, rows.found):
                    yield from self._documented(
                        bit, first, count, group, matrix if has_row else None
                    )

    def _documented(
        self,
        bit: int,
        first: bool,
        count: int,
        keys: Sequence[bytes],
        matrix: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None,
    ) -> Iterator[Sequence[CacheEvent]]:
        """Keys of one token count, all with a vector or all without, cut where texts are long."""
        found = self._frozen.documents(keys) if first and self._with_documents else ()
        documents = [document or EMPTY_DOCUMENT for document in found]
        if not any(found):
            documents = []
        row_bytes = _HASH_BYTES + (matrix.shape[1] * 4 if matrix is not None else 0)
        replica_id, tier = self._source.names[bit]
        for start, end in _cuts(len(keys), row_bytes, documents):
            yield (
                CacheEvent(
                    type=EventType.EMBEDDED,
                    replica_id=replica_id,
                    model_id=self._key.model_id,
                    tenant_id=self._key.tenant_id,
                    content_hashes=keys[start:end],
                    adapter_id=self._key.adapter_id,
                    hash_scheme=self._key.hash_scheme,
                    embeddings=None if matrix is None else matrix[start:end],
                    documents=documents[start:end],
                    token_count=count,
                    tier=tier,
                ),
            )


def _by_value(
    keys: Sequence[bytes], values: Sequence[int]
) -> Iterator[tuple[int, Sequence[bytes]]]:
    """The keys that have one value, value by value; their order within stays."""
    if values.count(values[0]) == len(values):
        yield values[0], keys
        return
    groups: dict[int, list[bytes]] = {}
    for key, value in zip(keys, values, strict=True):
        groups.setdefault(value, []).append(key)
    yield from groups.items()


def _cuts(count: int, row_bytes: int, documents: Sequence[Document]) -> Iterator[tuple[int, int]]:
    """Where to cut `count` keys so that each part is an event of about EVENT_BYTES."""
    if not documents:
        yield 0, count
        return
    start, size = 0, 0
    for position, document in enumerate(documents):
        text = _text_bytes(document.name) + _text_bytes(document.description)
        added = row_bytes + _DOCUMENT_BYTES + text
        if position > start and size + added > EVENT_BYTES:
            yield start, position
            start, size = position, 0
        size += added
    yield start, count


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
