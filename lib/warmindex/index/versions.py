"""What was there before: kept while a snapshot is open, so that it stays what it was.

Copying the index for a snapshot would hold the loop (20 ms for a million entries, keys and
masks alone), and so would telling all its partitions that one is open. So nothing is copied
when a snapshot opens; whoever changes something puts aside what was there, once for each
thing changed:

    snapshot A opens      snapshot B opens
         |                     |
         v                     v
      layer 1  --newer-->   layer 2  <-- changes put aside here, only here

What A sees of a thing is what the first of layers 1, 2, … has put aside, or else what is
there now. A change costs the same however many snapshots are open, and nothing but a look
where none is. A layer lives as long as a snapshot that is as old as it, or older.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warmindex.event import Document
    from warmindex.index.partition import Partition
    from warmindex.index.producers import Producer
    from warmindex.index.tokencounts import TokenCounts
    from warmindex.index.vectors import VectorStore


class Rows(NamedTuple):
    """Vectors as bytes, row-major: `found` says of each key whether it has a row."""

    found: Sequence[bool]
    dimensions: int
    values: bytes


class Image:
    """What one partition's changed entries were: each dictionary by content hash.

    Bits as they stood in the entry, 0 where there was none. `store` is the vector store that
    another one has replaced.
    """

    __slots__ = ("bits", "documents", "store", "tokens", "vectors")

    def __init__(self) -> None:
        self.bits: dict[bytes, int] = {}
        self.vectors: dict[bytes, bytes | None] = {}
        self.documents: dict[bytes, Document | None] = {}
        self.tokens: dict[bytes, int] = {}
        self.store: VectorStore | None = None

    def keep_bits(self, hashes: Sequence[bytes], bits: int) -> None:
        """Put aside what the entries' bits are: the same for all."""
        if self.bits.keys().isdisjoint(hashes):
            self.bits.update(dict.fromkeys(hashes, bits))
            return
        for content_hash in hashes:
            self.bits.setdefault(content_hash, bits)

    def rows_of(self, hashes: Sequence[bytes], store: VectorStore) -> Rows:
        """The vectors of hashes as they were when their layer began, or have become since."""
        if self.store is not None:
            store = self.store
        found, values = store.gather(hashes)
        return Rows(found, store.dimensions, values)

    def keep_rows(self, hashes: Sequence[bytes], rows: Rows, positions: Sequence[int]) -> None:
        """Put aside the vectors of the hashes at some positions, from the rows of all."""
        width = 4 * rows.dimensions
        starts = [0, *accumulate(width if has_row else 0 for has_row in rows.found)]
        for position in positions:
            start, end = starts[position], starts[position + 1]
            row = rows.values[start:end] if end > start else None
            self.vectors.setdefault(hashes[position], row)

    def keep_store(self, store: VectorStore) -> None:
        """Put aside a whole store of vectors that another one replaces."""
        if self.store is None:
            self.store = store

    def keep_documents(self, hashes: Sequence[bytes], documents: dict[bytes, Document]) -> None:
        """Put aside the documents of hashes, where they have any."""
        for content_hash in hashes:
            self.documents.setdefault(content_hash, documents.get(content_hash))

    def keep_tokens(self, hashes: Sequence[bytes], tokens: TokenCounts) -> None:
        """Put aside the token counts of hashes."""
        for content_hash in hashes:
            self.tokens.setdefault(content_hash, tokens.get(content_hash))

    def keep_payload(self, hashes: Sequence[bytes], partition: Partition) -> None:
        """Put aside all that goes with entries that go."""
        if partition.vectors is not None:
            self.keep_rows(hashes, self.rows_of(hashes, partition.vectors), range(len(hashes)))
        if partition.documents:
            self.keep_documents(hashes, partition.documents)
        if not partition.tokens.uniform:
            self.keep_tokens(hashes, partition.tokens)


class Layer:
    """What has been put aside since a snapshot opened, until the next one did."""

    __slots__ = ("images", "newer", "producers")

    def __init__(self) -> None:
        self.images: dict[Partition, Image] = {}
        self.producers: dict[Producer, tuple[int, int, bool, int]] = {}
        self.newer: Layer | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing has been put aside yet."""
        return not self.images and not self.producers

    def image(self, partition: Partition) -> Image:
        """The image of a partition, made if it has none."""
        image = self.images.get(partition)
        if image is None:
            image = self.images[partition] = Image()
        return image

    def images_since(self, partition: Partition) -> Iterator[Image]:
        """The images of a partition in this layer and the newer ones: the first has its say."""
        layer: Layer | None = self
        while layer is not None:
            image = layer.images.get(partition)
            if image is not None:
                yield image
            layer = layer.newer

    def numbering(self, producer: Producer) -> tuple[int, int, bool, int]:
        """A producer's numbers as they were when this layer began."""
        layer: Layer | None = self
        while layer is not None:
            known = layer.producers.get(producer)
            if known is not None:
                return known
            layer = layer.newer
        return producer.numbers


class Versions:
    """The layers of one index; `layer` is where changes put aside, None where no one asks."""

    __slots__ = ("_open", "layer")

    def __init__(self) -> None:
        self.layer: Layer | None = None
        self._open = 0

    def open(self) -> Layer:
        """Keep what is there now, until `close`."""
        self._open += 1
        newest = self.layer
        if newest is None or not newest.empty:
            self.layer = Layer()
            if newest is not None:
                newest.newer = self.layer
        assert self.layer is not None  # noqa: S101 - for the type checker
        return self.layer

    def close(self) -> None:
        """One of those who opened is done."""
        self._open -= 1
        if not self._open:
            self.layer = None

    def keep_numbers(self, producer: Producer) -> None:
        """Put aside a producer's numbers."""
        if self.layer is not None:
            self.layer.producers.setdefault(producer, producer.numbers)
