"""One block of vectors: rows, their inverse norms, and which places are free.

A row that float32 products could overflow or lose (its squared length outside
SQUARE_MIN..SQUARE_MAX) is *extreme*: such rows are few or none, and their cosines are
computed in float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A block is near this size. A product of a large block goes to all cores and waits for each,
# so there should be few of them: 100 thousand rows of 384 are two blocks.
BLOCK_BYTES: Final = 128 * 2**20

# A block has at least this many rows, however wide they are.
BLOCK_ROWS_MIN: Final = 16

# The last block grows by this share of itself, and by this many rows at least: growing
# copies the block, and what it grows by may stay unused.
GROW_SHARE: Final = 1 / 8
GROW_ROWS_MIN: Final = 4

# A block that is larger than this is made at its full size, so a growing store never copies
# more than this at a time. The system gives it memory page by page, as rows are written.
GROWN_BYTES_MAX: Final = 4 * 2**20

# Rows whose squared length lies in here can be multiplied in float32: with a query of
# length 1 nothing overflows, and what is lost to underflow is below 1e-7 of the result.
SQUARE_MIN: Final = 1e-24
SQUARE_MAX: Final = 1e24

# What a place without a live row gets: below every cosine.
NO_ROW: Final = -np.inf


def rows_in_block(dimensions: int) -> int:
    """Give the number of rows of a full block: a power of two."""
    rows = max(BLOCK_ROWS_MIN, BLOCK_BYTES // (4 * dimensions))
    return 1 << (rows.bit_length() - 1)


class Block:
    """Up to `rows_max` rows of one width; a row's number in it is its *place*.

    rows: (capacity, dimensions) float32; the first `used` places have been given out.
    view: the bytes of `rows`. free: places given back. live: places in use.
    """

    __slots__ = ("_extreme", "_inverse", "_rows_max", "free", "rows", "used", "view")

    def __init__(self, dimensions: int, rows_max: int) -> None:
        self._rows_max = rows_max
        self._extreme: set[int] = set()
        self.used = 0
        self.free: list[int] = []
        self._hold(np.empty((0, dimensions), dtype=np.float32), np.empty(0, dtype=np.float32))

    @property
    def live(self) -> int:
        """Count the places in use."""
        return self.used - len(self.free)

    @property
    def memory_bytes(self) -> int:
        """Count what the arrays and the free list occupy; of a large one, what was written."""
        rows = len(self.rows)
        if self.rows.nbytes > GROWN_BYTES_MAX:
            rows = self.used
        return int(rows * 4 * (self.rows.shape[1] + 1) + self.free.__sizeof__())

    def append(self, rows: NDArray[np.float32]) -> int:
        """Store as many of `rows` as fit after the used places; say how many."""
        count = min(len(rows), self._rows_max - self.used)
        first, self.used = self.used, self.used + count
        self._reserve(self.used)
        self._write(slice(first, self.used), range(first, self.used), rows[:count])
        return count

    def reuse(self, rows: NDArray[np.float32]) -> list[int]:
        """Store as many of `rows` as there are free places; say which were taken."""
        count = min(len(rows), len(self.free))
        places = self.free[len(self.free) - count :]
        del self.free[len(self.free) - count :]
        self._reserve(self.used)
        self._write(places, places, rows[:count])
        return places

    def replace(self, places: NDArray[np.intp], rows: NDArray[np.float32]) -> None:
        """Store `rows` over the live rows at `places`."""
        self._write(places, places.tolist(), rows)

    def release(self, place: int) -> None:
        """Give a place back; a block without a live row gives its memory back too."""
        self.free.append(place)
        self._extreme.discard(place)
        if not self.live:
            self._hold(self.rows[:0].copy(), self._inverse[:0].copy())

    def similarities(
        self, query: NDArray[np.float32], result: NDArray[np.float32], rows_max: int
    ) -> None:
        """Write the cosine of every used place into `result` (used,); free ones are noise.

        query: (dimensions,) float32 of length 1. rows_max: how many rows a product takes.
        """
        if not self.live:
            result.fill(NO_ROW)
            return
        # Rows of extreme length overflow, and so may what is left in a place that is free.
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, self.used, rows_max):
                some = slice(start, min(start + rows_max, self.used))
                np.dot(self.rows[some], query, out=result[some])
            result *= self._inverse[: self.used]
        if not self._extreme:
            return
        places = np.fromiter(self._extreme, np.intp, len(self._extreme))
        result[places] = cosines(self.rows[places], query)

    def similarities_of(
        self, query: NDArray[np.float32], places: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Give the cosines of some live places; query as in `similarities`."""
        rows = self.rows[places]
        if self._extreme:
            return cosines(rows, query).astype(np.float32)
        product: NDArray[np.float32] = np.dot(rows, query) * self._inverse[places]
        return product

    def _hold(self, rows: NDArray[np.float32], inverse: NDArray[np.float32]) -> None:
        self.rows = rows
        self._inverse = inverse
        self.view = rows.reshape(-1).view(np.uint8).data

    def _reserve(self, capacity: int) -> None:
        """Have room for `capacity` rows, and a little more."""
        if capacity <= len(self.rows):
            return
        room = max(capacity, int(len(self.rows) * (1 + GROW_SHARE)), len(self.rows) + GROW_ROWS_MIN)
        if room > self._rows_max or room * 4 * self.rows.shape[1] > GROWN_BYTES_MAX:
            room = self._rows_max
        rows = np.empty((room, self.rows.shape[1]), dtype=np.float32)
        inverse = np.empty(room, dtype=np.float32)
        rows[: len(self.rows)] = self.rows
        inverse[: len(self.rows)] = self._inverse
        self._hold(rows, inverse)

    def _write(
        self,
        where: slice | list[int] | NDArray[np.intp],
        places: range | list[int],
        rows: NDArray[np.float32],
    ) -> None:
        self.rows[where] = rows
        with np.errstate(over="ignore", under="ignore"):
            square = np.einsum("ij,ij->i", rows, rows)
        usual = (square >= SQUARE_MIN) & (square <= SQUARE_MAX)
        if usual.all():
            self._inverse[where] = 1 / np.sqrt(square)
            if self._extreme:
                self._extreme.difference_update(places)
            return
        self._inverse[where] = 1 / np.sqrt(np.where(usual, square, 1))
        for place, is_usual in zip(places, usual.tolist(), strict=True):
            (self._extreme.discard if is_usual else self._extreme.add)(place)


def cosines(rows: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float64]:
    """Give the cosine of each row (m, d) with `query` (d,) in float64, between -1 and 1.

    Each result depends on its row's bits and the query's alone: the products are summed
    along the row, because a matrix product may add up in an order that depends on where
    in the matrix the row lies.
    """
    wide = rows.astype(np.float64)
    query_wide = query.astype(np.float64)
    scale = np.sqrt((wide * wide).sum(axis=1)) * np.sqrt((query_wide * query_wide).sum())
    cosine: NDArray[np.float64] = np.clip((wide * query_wide).sum(axis=1) / scale, -1.0, 1.0)
    return cosine


def unit(query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale a query (d,) to length 1, in float64 so that no finite value overflows."""
    wide = query.astype(np.float64)
    scaled: NDArray[np.float32] = (wide / np.sqrt((wide * wide).sum())).astype(np.float32)
    return scaled
