"""Vectors of the last texts that a process has asked for, as Python numbers.

Turning a row of bytes into a list of numbers costs more than fetching it: whoever needs lists
keeps lists.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

# A number in a list: the object of 24 bytes, and the pointer to it.
BYTES_PER_NUMBER: Final = 32


class VectorMemory:
    """Lists of numbers by content hash; those asked for longest ago go first.

    Safe to use from several threads. The lists are shared: whoever hands one on copies it.
    """

    def __init__(self, bytes_max: int) -> None:
        """Hold as many as fit into `bytes_max`, about."""
        self._numbers_max = bytes_max // BYTES_PER_NUMBER
        self._numbers = 0
        self._rows: OrderedDict[bytes, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, hashes: Iterable[bytes]) -> dict[bytes, list[float]]:
        """What is held of some hashes."""
        found = {}
        with self._lock:
            for content_hash in hashes:
                row = self._rows.get(content_hash)
                if row is not None:
                    self._rows.move_to_end(content_hash)
                    found[content_hash] = row
        return found

    def put(self, rows: Mapping[bytes, list[float]]) -> None:
        """Hold rows, and let go of the oldest where they do not fit."""
        with self._lock:
            for content_hash, row in rows.items():
                self._numbers += len(row) - len(self._rows.pop(content_hash, ()))
                self._rows[content_hash] = row
            while self._numbers > self._numbers_max:
                _, row = self._rows.popitem(last=False)
                self._numbers -= len(row)
