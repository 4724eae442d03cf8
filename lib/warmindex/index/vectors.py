"""The vectors of one partition: float32 rows, kept exactly as they were published.

How the rows lie
    A row's *slot* is its number. Slots are grouped in blocks of a power of two, near
    BLOCK_BYTES, so a growing store never copies what it has: only a small last block does,
    an eighth at a time. A partition of five vectors holds a few rows, one of a million
    wastes a page. Freed slots are filled before a block grows, and a block without a live
    row gives its memory back.

How it is searched
    One matrix-vector product a block gives approximate cosines for every slot, times the
    inverse norms kept beside the rows. The few that matter are then taken again by
    `cosines`, in float64: equal rows get equal bits wherever they lie.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Final

import numpy as np

from warmindex.index.blocks import NO_ROW, Block, cosines, rows_in_block, unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

# Beyond this share of the live rows one product over all of them is cheaper than
# gathering rows first: a gather writes every row before it is multiplied.
GATHER_SHARE_MAX: Final = 0.25

# Up to this size a gather into an array and a copy of that are cheaper than a slice for
# each row; beyond it the array comes fresh from the system, page by page.
TAKE_BYTES_MAX: Final = 2**21

# OpenBLAS computes a product of at most this many numbers in the calling thread. More go to
# all cores and wait for each, which costs 8 to 16 ms as soon as another program has one of
# them; so a partition of up to 32 MiB is multiplied piece by piece, in 3 ms at the most. Of
# a larger one the memory is the limit, and a second core is worth the wait.
PRODUCT_NUMBERS_MAX: Final = 2**18
ONE_THREAD_NUMBERS_MAX: Final = 2**23

# So many rows are computed in float64 at a time, which bounds what it takes beside them.
EXACT_ROWS_MAX: Final = 1024

# What a slot number costs beside its place in the dictionary.
INT_BYTES: Final = 32


class VectorStore:
    """Rows of one width by content hash; see the module's text."""

    def __init__(self, dimensions: int) -> None:
        """Make an empty store for rows of `dimensions` float32 numbers."""
        if dimensions < 1:
            raise ValueError(f"dimensions is {dimensions}; give the width of a row, 1 or more")
        self.dimensions = dimensions
        self._shift = rows_in_block(dimensions).bit_length() - 1
        self._mask = (1 << self._shift) - 1
        self._blocks: list[Block] = []
        self._slots: dict[bytes, int] = {}
        self._keys: list[bytes | None] = []  # slot -> key; None where the slot is free
        self._open: set[int] = set()  # numbers of blocks with free places
        self._free: NDArray[np.intp] | None = None  # all free slots, made when needed

    def __len__(self) -> int:
        """Count the live rows."""
        return len(self._slots)

    def __contains__(self, key: bytes) -> bool:
        """Say whether `key` has a row."""
        return key in self._slots

    def __iter__(self) -> Iterator[bytes]:
        """Go through the keys that have a row, in no particular order."""
        return iter(self._slots)

    @property
    def memory_bytes(self) -> int:
        """Estimate what rows and bookkeeping occupy, in bytes; the keys are the caller's."""
        rows = sum(block.memory_bytes for block in self._blocks)
        books = self._slots.__sizeof__() + self._keys.__sizeof__()
        return rows + books + INT_BYTES * len(self._slots)

    # -- changes ---------------------------------------------------------------------

    def put(self, keys: Sequence[bytes], rows: NDArray[np.float32]) -> list[int] | range:
        """Keep a bit-exact copy of each row under its key.

        keys: n distinct keys. rows: (n, dimensions) float32, finite, none all zero.
        Returns the positions, ascending, whose key is new or whose stored bits changed.
        """
        if rows.shape != (len(keys), self.dimensions):
            raise ValueError(
                f"rows has shape {rows.shape}; {len(keys)} keys of {self.dimensions} "
                "dimensions need one row each"
            )
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        if self._slots.keys().isdisjoint(keys):
            self._add(keys, rows)
            return range(len(keys))
        slots = self.slots(keys)
        changed = self._replace(slots, rows)
        added = np.flatnonzero(slots < 0)
        self._add([keys[position] for position in added.tolist()], rows[added])
        return sorted(changed + added.tolist())

    def discard(self, keys: Iterable[bytes]) -> None:
        """Forget the rows of `keys`; keys without a row are ignored."""
        for key in keys:
            slot = self._slots.pop(key, None)
            if slot is None:
                continue
            self._keys[slot] = None
            number = slot >> self._shift
            self._blocks[number].release(slot & self._mask)
            self._open.add(number)
            self._free = None
        self._cut_tail()

    # -- reads -----------------------------------------------------------------------

    def gather(
        self, keys: Sequence[bytes], rows_max: int | None = None
    ) -> tuple[list[bool], bytes]:
        """Look up `keys`: say which have a row, and give those rows' bytes in that order.

        The bytes are m x dimensions little-endian float32, where m keys have a row; with
        `rows_max`, only the first that many of them.
        """
        found, pieces = self.pieces(keys, rows_max)
        return found, b"".join(pieces)

    def pieces(
        self, keys: Sequence[bytes], rows_max: int | None = None
    ) -> tuple[list[bool], Sequence[memoryview]]:
        """Do as `gather` does, but give the bytes in pieces that are not copied yet.

        They are views of what is stored: to be joined before anything is stored again.
        """
        try:
            slots = list(map(self._slots.__getitem__, keys))
            found = [True] * len(slots)
        except KeyError:
            maybe = list(map(self._slots.get, keys))
            found = [slot is not None for slot in maybe]
            slots = [slot for slot in maybe if slot is not None]
        return found, self._pieces(slots if rows_max is None else slots[:rows_max])

    def slots(self, keys: Collection[bytes]) -> NDArray[np.intp]:
        """Give the slot of each key, -1 where it has no row."""
        return np.fromiter(map(self._slots.get, keys, repeat(-1)), np.intp, len(keys))

    def live_slots(self) -> NDArray[np.intp]:
        """Give the slots that have a row, ascending."""
        slots = np.arange(len(self._keys))
        return np.delete(slots, self._free_slots()) if self._open else slots

    def key_at(self, slot: int) -> bytes:
        """Give the key of a live slot."""
        key = self._keys[slot]
        if key is None:
            raise KeyError(f"slot {slot} has no row")
        return key

    def similarities(
        self, query: NDArray[np.float32], keys: Sequence[bytes] | None = None
    ) -> NDArray[np.float32]:
        """Give cosines with `query`, good to about 1e-5; `cosines` gives exact ones.

        query: (dimensions,) float32, finite, not all zero.
        Without `keys`: one number per slot. With `keys`: one per key, in their order.
        NO_ROW where there is no row.
        """
        if keys is None:
            return self._all_similarities(unit(query))
        slots = self.slots(keys)
        result = np.full(len(slots), NO_ROW, dtype=np.float32)
        present = np.flatnonzero(slots >= 0)
        result[present] = self.similarities_at(query, slots[present])
        return result

    def similarities_at(
        self, query: NDArray[np.float32], slots: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Give the cosines of some live slots, as `similarities` gives them of all."""
        query = unit(query)
        if len(slots) > GATHER_SHARE_MAX * len(self._slots):
            return self._all_similarities(query)[slots]
        result = np.empty(len(slots), dtype=np.float32)
        step = self._rows_at_once()
        for number, where in self._by_block(slots):
            for start in range(0, len(where), step):
                at = where[start : start + step]
                places = slots[at] & self._mask
                result[at] = self._blocks[number].similarities_of(query, places)
        return result

    def cosines(self, query: NDArray[np.float32], slots: NDArray[np.intp]) -> NDArray[np.float64]:
        """Give the cosines of live `slots` with `query` in float64, between -1 and 1.

        Equal rows get equal results, bit for bit, whatever else is asked for with them.
        """
        result = np.empty(len(slots), dtype=np.float64)
        for start in range(0, len(slots), EXACT_ROWS_MAX):
            some = slice(start, start + EXACT_ROWS_MAX)
            result[some] = cosines(self._rows(slots[some]), query)
        return result

    # -- inside ----------------------------------------------------------------------

    def _add(self, keys: Sequence[bytes], rows: NDArray[np.float32]) -> None:
        """Store rows of keys that have none: free slots first, then the end."""
        done = 0
        while done < len(keys):
            if self._open:
                number = min(self._open)
                block = self._blocks[number]
                base = number << self._shift
                places = block.reuse(rows[done:])
                for key, place in zip(keys[done : done + len(places)], places, strict=True):
                    self._keys[base + place] = key
                    self._slots[key] = base + place
                done += len(places)
                if not block.free:
                    self._open.discard(number)
                self._free = None
                continue
            if not self._blocks or self._blocks[-1].used == 1 << self._shift:
                self._blocks.append(Block(self.dimensions, 1 << self._shift))
            first = len(self._keys)
            count = self._blocks[-1].append(rows[done:])
            some = keys[done : done + count]
            self._keys.extend(some)
            self._slots.update(zip(some, range(first, first + count), strict=True))
            done += count

    def _replace(self, slots: NDArray[np.intp], rows: NDArray[np.float32]) -> list[int]:
        """Store the rows whose slot is not -1 and whose bits differ; give their positions."""
        known = np.flatnonzero(slots >= 0)
        news = rows if len(known) == len(rows) else rows[known]
        # What is published again is nearly always what is there.
        if b"".join(self._pieces(slots[known].tolist())) == news.tobytes():
            return []
        stored = self._rows(slots[known])
        # As integers: 0.0 and -0.0 are equal numbers, and not the same bits.
        changed = known[(stored.view(np.uint32) != news.view(np.uint32)).any(axis=1)]
        for number, where in self._by_block(slots[changed]):
            at = changed[where]
            self._blocks[number].replace(slots[at] & self._mask, rows[at])
        positions: list[int] = changed.tolist()
        return positions

    def _cut_tail(self) -> None:
        """Drop blocks at the end that have no live row, with their slots."""
        while self._blocks and not self._blocks[-1].live:
            self._blocks.pop()
            self._open.discard(len(self._blocks))
            del self._keys[len(self._blocks) << self._shift :]
            self._free = None
        if not self._slots:
            self._slots = {}  # a dictionary that was large stays so, even when empty

    def _free_slots(self) -> NDArray[np.intp]:
        if self._free is None:
            free = [
                (number << self._shift) + np.array(self._blocks[number].free, dtype=np.intp)
                for number in sorted(self._open)
            ]
            self._free = np.concatenate(free)
        return self._free

    def _rows_at_once(self) -> int:
        return max(1, PRODUCT_NUMBERS_MAX // self.dimensions)

    def _all_similarities(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        result = np.empty(len(self._keys), dtype=np.float32)
        start = 0
        small = len(self._keys) * self.dimensions <= ONE_THREAD_NUMBERS_MAX
        rows_max = self._rows_at_once() if small else self._mask + 1
        for block in self._blocks:
            block.similarities(query, result[start : start + block.used], rows_max)
            start += block.used
        if self._open:
            result[self._free_slots()] = NO_ROW
        return result

    def _pieces(self, slots: list[int]) -> Sequence[memoryview]:
        """Give the rows' bytes in the order of `slots`: as they lie where they lie in runs,
        which is how one event's rows lie when they are asked for together.
        """
        if not slots:
            return ()
        first, last = slots[0], slots[-1]
        is_run = last - first == len(slots) - 1 and slots == list(range(first, last + 1))
        if is_run and first >> self._shift == last >> self._shift:
            width = 4 * self.dimensions
            start = (first & self._mask) * width
            view = self._blocks[first >> self._shift].view
            return (view[start : start + len(slots) * width],)
        places = np.fromiter(slots, np.intp, len(slots))
        numbers = places >> self._shift
        if len(slots) * 4 * self.dimensions <= TAKE_BYTES_MAX and (numbers == numbers[0]).all():
            rows: NDArray[np.float32] = self._blocks[numbers[0]].rows
            return (rows.take(places & self._mask, axis=0).data,)
        return self._slices(places)

    def _slices(self, slots: NDArray[np.intp]) -> list[memoryview]:
        """Give views of the rows' bytes, neighbours within a block as one."""
        width = 4 * self.dimensions
        apart = (np.diff(slots) != 1) | ((slots[1:] & self._mask) == 0)
        heads = np.concatenate(([0], np.flatnonzero(apart) + 1))
        counts = np.diff(np.append(heads, len(slots)))
        begins = (slots[heads] & self._mask) * width
        ends = begins + counts * width
        numbers = slots[heads] >> self._shift
        blocks = self._blocks
        parts = zip(numbers.tolist(), begins.tolist(), ends.tolist(), strict=True)
        return [blocks[number].view[begin:end] for number, begin, end in parts]

    def _rows(self, slots: NDArray[np.intp]) -> NDArray[np.float32]:
        """Copy out the rows (m, dimensions) of live `slots`."""
        rows = np.empty((len(slots), self.dimensions), dtype=np.float32)
        for number, where in self._by_block(slots):
            rows[where] = self._blocks[number].rows[slots[where] & self._mask]
        return rows

    def _by_block(self, slots: NDArray[np.intp]) -> Iterator[tuple[int, NDArray[np.intp]]]:
        """Group the positions in `slots` by the block that their slot lies in."""
        if not len(slots):
            return
        numbers = slots >> self._shift
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        for where in np.split(order, cuts):
            yield int(numbers[where[0]]), where
