"""One adapter's partition: which content is held by whom, with its vectors and documents.

An entry is one integer in `entries`: the bits of its holders (see holders). Bits that are
retired count for nothing, so "is there" always means `bits & live`. An entry that has no
live bit is as good as gone: whoever meets it again takes it away first, with its vector,
its document and its token count, so that nothing of it is ever seen.

Events name many hashes that are nearly always held alike, so a change moves groups: all
hashes of the event with the same present bits go to their next bits in one step, at the
speed of dict.update. Masks are shared by value (`_shared`) and counted (`population`), which
tells how many entries are alive without looking at them.
"""

from __future__ import annotations

from collections import deque
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from warmindex.event import EMPTY_DOCUMENT, Document
from warmindex.index.holders import each_bit
from warmindex.index.tokencounts import TokenCounts
from warmindex.index.vectors import VectorStore
from warmindex.index.versions import Versions
from warmindex.index.words import WordIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from warmindex.event import FloatMatrix
    from warmindex.index.versions import Image

# CPython's cost of one entry: its place in a dict (24 bytes, filled to 1/2 on average,
# and an index of 4), and the bytes object beside the hash itself.
ENTRY_BYTES: Final = 55
BYTES_OBJECT_BYTES: Final = 33
# A document's two strings and its tuple, beside their text.
DOCUMENT_BYTES: Final = 170
# The empty dicts and the object.
PARTITION_BYTES: Final = 1500


Alive: TypeAlias = "Callable[[bytes], bool]"


class Fetched(NamedTuple):
    """Vectors of some hashes.

    `found` says of each hash whether it has a vector. `values` are the first `rows` of
    those that have, row-major little-endian float32, `dimensions` wide, as published.
    `pieces` are its bytes, not copied yet: to be used before the index changes.
    """

    found: list[bool]
    dimensions: int
    rows: int
    pieces: Sequence[memoryview]

    @property
    def values(self) -> bytes:
        """The rows' bytes, copied."""
        return b"".join(self.pieces)


class Partition:
    """The entries of one (tenant, model, hash scheme, adapter)."""

    __slots__ = (
        "_shared",
        "_versions",
        "_words",
        "documents",
        "entries",
        "hash_bytes",
        "holds",
        "population",
        "tokens",
        "vectors",
    )

    def __init__(self, versions: Versions | None = None) -> None:
        self._versions = versions or Versions()
        self.entries: dict[bytes, int] = {}
        self.population: dict[int, int] = {}  # bits -> entries that have just these
        self._shared: dict[int, int] = {}  # bits -> the one object that stands for them
        self.holds: dict[int, int] = {}  # live bit -> entries that have it
        self.vectors: VectorStore | None = None
        self.documents: dict[bytes, Document] = {}
        self._words: WordIndex | None = None
        self.tokens = TokenCounts()
        self.hash_bytes = 0

    # ---- changes -----------------------------------------------------------------------

    def add(
        self, hashes: Sequence[bytes], bit: int, live: int
    ) -> tuple[Sequence[bytes], Sequence[bytes]]:
        """Set a holder's bit on every hash.

        Returns the hashes on which it was not set before, and those of them that nobody had
        held; either is `hashes` itself where it is all of them.
        """
        added: list[bytes] = []
        fresh: list[bytes] = []
        for bits, group in self._groups(hashes):
            before = bits & live
            if before & bit:
                continue
            if bits and not before:
                self._forget_payload(group)
            self._move(group, bits, before | bit)
            if len(group) == len(hashes):
                self.holds[bit] = self.holds.get(bit, 0) + len(group)
                return group, () if before else group
            added += group
            if not before:
                fresh += group
        if added:
            self.holds[bit] = self.holds.get(bit, 0) + len(added)
        return added, fresh

    def remove(self, hashes: Sequence[bytes], bits: int, live: int) -> dict[int, Sequence[bytes]]:
        """Take a holder's bits off every hash; for each bit, the hashes that had it."""
        parts: dict[int, list[Sequence[bytes]]] = {}
        for present, group in self._groups(hashes):
            gone = present & bits & live
            if not gone:
                continue
            after = present & live & ~gone
            if not after:
                self._forget_payload(group)
            self._move(group, present, after)
            for bit in each_bit(gone):
                parts.setdefault(bit, []).append(group)
        removed = {bit: _joined(groups) for bit, groups in parts.items()}
        for bit, group in removed.items():
            left = self.holds[bit] - len(group)
            if left:
                self.holds[bit] = left
            else:
                del self.holds[bit]
        return removed

    def put_vectors(self, hashes: Sequence[bytes], rows: FloatMatrix) -> tuple[Sequence[int], int]:
        """Keep one row per hash, all of them held.

        Returns the positions whose bits are new, and how many of them replaced a vector.
        """
        if self.vectors is None or self.vectors.dimensions != rows.shape[1]:
            # Another width can only be met where no live entry has a vector.
            if image := self._image():
                empty = VectorStore(rows.shape[1])
                image.keep_store(empty if self.vectors is None else self.vectors)
            self.vectors = VectorStore(rows.shape[1])
        image = self._image()
        before = image.rows_of(hashes, self.vectors) if image else None
        count = len(self.vectors)
        positions = self.vectors.put(hashes, rows)
        if image and before:
            image.keep_rows(hashes, before, positions)
        return positions, len(positions) - (len(self.vectors) - count)

    def put_documents(self, hashes: Sequence[bytes], documents: Sequence[Document]) -> list[int]:
        """Keep one document per hash, all of them held; the positions whose text is new."""
        changed = []
        if image := self._image():
            image.keep_documents(hashes, self.documents)
        for position, (content_hash, document) in enumerate(zip(hashes, documents, strict=True)):
            if document == EMPTY_DOCUMENT or self.documents.get(content_hash) == document:
                continue
            self.documents[content_hash] = document
            if self._words is not None:
                self._words.put(content_hash, document)
            changed.append(position)
        return changed

    def put_tokens(
        self, hashes: Sequence[bytes], fresh: Sequence[bytes], count: int
    ) -> Sequence[bytes]:
        """Note the token count of hashes, all of them held; those that it changes."""
        if (image := self._image()) and not self.tokens.uniform_with(count):
            image.keep_tokens(hashes, self.tokens)
        return self.tokens.put(hashes, fresh, count)

    def sweep(self, hashes: Iterable[bytes], retired: int) -> None:
        """Take retired bits off some hashes, and away what has no others."""
        for bits, group in self._groups(hashes if isinstance(hashes, list) else list(hashes)):
            if bits and bits & retired:
                if not bits & ~retired:
                    self._forget_payload(group)
                self._move(group, bits, bits & ~retired)

    def drop_holders(self, retired: int) -> None:
        """Forget the counts of retired bits."""
        for bit in [bit for bit in self.holds if bit & retired]:
            del self.holds[bit]

    def has_bits(self, mask: int) -> bool:
        """Whether any entry has any of these bits."""
        return any(bits & mask for bits in self.population)

    # ---- reads -------------------------------------------------------------------------

    def fetch(self, hashes: Sequence[bytes], bytes_max: int, alive: Alive | None) -> Fetched:
        """The vectors of some hashes, in order, as many as fit into `bytes_max`; one at least.

        `alive` says whether somebody holds an entry; None where nothing is retired.
        """
        if self.vectors is None:
            return Fetched([False] * len(hashes), 0, 0, ())
        if alive is not None:
            # No entry has an empty key: it stands for what is gone.
            hashes = [content_hash if alive(content_hash) else b"" for content_hash in hashes]
        dimensions = self.vectors.dimensions
        rows_max = max(1, bytes_max // (4 * dimensions))
        found, pieces = self.vectors.pieces(hashes, rows_max)
        rows = sum(piece.nbytes for piece in pieces) // (4 * dimensions)
        return Fetched(found, dimensions, rows, pieces)

    def alive(self, live: int) -> Alive:
        """Whether somebody holds an entry, where some of the bits may be retired."""
        get = self.entries.get
        return lambda content_hash: bool(get(content_hash, 0) & live)

    def entries_live(self, live: int, retired: bool) -> int:
        """How many entries somebody holds."""
        if not retired:
            return len(self.entries)
        return sum(count for bits, count in self.population.items() if bits & live)

    def vectors_live(self, live: int, retired: bool) -> int:
        """How many entries have a vector."""
        if self.vectors is None:
            return 0
        if not retired:
            return len(self.vectors)
        return sum(1 for key in self.vectors if self.entries[key] & live)

    def dimensions_live(self, live: int, retired: bool) -> int:
        """The width of the vectors; 0 where no live entry has one."""
        if self.vectors is None or not len(self.vectors):
            return 0
        if retired and not any(self.entries[key] & live for key in self.vectors):
            return 0
        return self.vectors.dimensions

    def words(self) -> WordIndex:
        """The full-text index, made when it is first asked for."""
        if self._words is None:
            self._words = WordIndex()
            for content_hash, document in self.documents.items():
                self._words.put(content_hash, document)
        return self._words

    @property
    def memory_bytes(self) -> int:
        """Estimate what the partition occupies."""
        entries = len(self.entries) * (ENTRY_BYTES + BYTES_OBJECT_BYTES + self.hash_bytes)
        documents = sum(
            DOCUMENT_BYTES + len(document.name) + len(document.description)
            for document in self.documents.values()
        )
        vectors = self.vectors.memory_bytes if self.vectors is not None else 0
        words = self._words.memory_bytes if self._words is not None else 0
        return PARTITION_BYTES + entries + documents + vectors + words + self.tokens.memory_bytes

    # ---- how it is done ----------------------------------------------------------------

    def _groups(self, hashes: Sequence[bytes]) -> Iterable[tuple[int, Sequence[bytes]]]:
        """The hashes by their present bits; 0 for those that are not there."""
        present = list(map(self.entries.get, hashes))
        first = present[0]
        if present.count(first) == len(present):
            return ((first or 0, hashes),)
        groups: dict[int, list[bytes]] = {}
        for content_hash, bits in zip(hashes, present, strict=True):
            key = bits or 0
            if key in groups:
                groups[key].append(content_hash)
            else:
                groups[key] = [content_hash]
        return groups.items()

    def _move(self, group: Sequence[bytes], before: int, after: int) -> None:
        """Give every hash of a group its next bits; 0 takes them out."""
        if image := self._image():
            image.keep_bits(group, before)
        count = len(group)
        population = self.population
        if before:
            left = population[before] - count
            if left:
                population[before] = left
            else:
                del population[before]
                del self._shared[before]
        if not after:
            deque(map(self.entries.__delitem__, group), maxlen=0)
            return
        if after in population:
            population[after] += count
            after = self._shared[after]
        else:
            population[after] = count
            self._shared[after] = after
        if count == 1:
            self.entries[group[0]] = after
        else:
            self.entries.update(zip(group, repeat(after)))
        self.hash_bytes = len(group[0])

    def _image(self) -> Image | None:
        """Where to put aside what is about to change; None where no snapshot is open."""
        layer = self._versions.layer
        return None if layer is None else layer.image(self)

    def _forget_payload(self, group: Sequence[bytes]) -> None:
        """Take the vectors, documents and token counts of entries that go."""
        if image := self._image():
            image.keep_payload(group, self)
        if self.vectors is not None:
            self.vectors.discard(group)
        if self.documents:
            for content_hash in group:
                if self.documents.pop(content_hash, None) is not None and self._words is not None:
                    self._words.discard(content_hash)
        self.tokens.discard(group)


def _joined(groups: list[Sequence[bytes]]) -> Sequence[bytes]:
    return groups[0] if len(groups) == 1 else list(chain.from_iterable(groups))
