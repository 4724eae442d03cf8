"""Content hashes, packed: a million of 8 bytes take 8 MB, where a set of them takes 80.

Sorting and comparing are numpy's, which lets the event loop run meanwhile: call `pack` and
`minus` in a thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Packed: TypeAlias = NDArray[Any]


class HashBag:
    """A bag of hashes; `len` counts a hash as often as it was put in, until it is packed."""

    def __init__(self) -> None:
        self._bytes: dict[int, bytearray] = {}  # length of a hash -> such hashes in a row

    def __len__(self) -> int:
        """Count the hashes."""
        return sum(len(packed) // length for length, packed in self._bytes.items())

    def add(self, hashes: Sequence[bytes]) -> None:
        """Put hashes in."""
        lengths = set(map(len, hashes))
        for length in lengths:
            some = hashes if len(lengths) == 1 else [h for h in hashes if len(h) == length]
            self._bytes.setdefault(length, bytearray()).extend(b"".join(some))

    def pack(self) -> int:
        """Keep each hash once, in order; how many there are."""
        for length, packed in self._bytes.items():
            self._bytes[length] = bytearray(_distinct(_array(packed, length)).tobytes())
        return len(self)

    def minus(self, other: HashBag) -> list[bytes]:
        """The hashes that `other` does not have; both packed."""
        left: list[bytes] = []
        for length, packed in self._bytes.items():
            mine = _array(packed, length)
            theirs = _array(other._bytes.get(length, bytearray()), length)
            left += _hashes_of(mine[~_is_in(mine, theirs)], length)
        return left

    def __iter__(self) -> Iterator[bytes]:
        """Go through the hashes."""
        for length, packed in self._bytes.items():
            yield from _hashes_of(_array(packed, length), length)


def _array(packed: bytearray, length: int) -> Packed:
    """A view of hashes as things that numpy can put in order.

    Strings of one length compare as their bytes do, zeros at their end too; numbers of 8
    bytes are sorted ten times faster.
    """
    return np.frombuffer(packed, dtype="<u8" if length == 8 else f"S{length}")


def _hashes_of(array: Packed, length: int) -> list[bytes]:
    # A string would lose the zeros at its end.
    hashes: list[bytes] = array.view(f"V{length}").tolist()
    return hashes


def _distinct(array: Packed) -> Packed:
    array = np.sort(array)
    different = np.ones(len(array), dtype=bool)
    different[1:] = array[1:] != array[:-1]
    return array[different]


def _is_in(mine: Packed, theirs: Packed) -> NDArray[np.bool_]:
    """Which of some sorted values are among others, sorted too."""
    if not len(theirs):
        return np.zeros(len(mine), dtype=bool)
    places = np.minimum(np.searchsorted(theirs, mine), len(theirs) - 1)
    found: NDArray[np.bool_] = theirs[places] == mine
    return found
