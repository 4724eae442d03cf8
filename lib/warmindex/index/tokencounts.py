"""Token counts of one partition: a constant, and the exceptions from it.

In practice every block of a partition has the same number of tokens, so the count is kept
once and costs nothing per entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A place in a dict, whose key and value are shared.
EXCEPTION_BYTES: Final = 60


class TokenCounts:
    """The number of tokens of each content hash by itself; 0 where it is unknown."""

    __slots__ = ("_constant", "_exceptions")

    def __init__(self) -> None:
        self._constant: int | None = None
        self._exceptions: dict[bytes, int] = {}

    def put(self, hashes: Sequence[bytes], fresh: Sequence[bytes], count: int) -> list[bytes]:
        """Note the count of an event's hashes; those of them whose count it changes.

        `fresh` are the hashes that nobody had held before the event. They take `count` even
        where it is 0 (unknown); the others keep what they have when it is.
        """
        if self._constant is None:
            self._constant = count
            return []
        if count == self._constant and not self._exceptions:
            return []
        known = self._exceptions
        if not count:
            if self._constant:
                known.update(dict.fromkeys(fresh, 0))
            return []
        skip = set(fresh)
        changed = [h for h in hashes if known.get(h, self._constant) != count and h not in skip]
        if count == self._constant:
            self.discard(hashes)
        else:
            known.update(dict.fromkeys(hashes, count))
        return changed

    @property
    def uniform(self) -> bool:
        """Whether all hashes have one count."""
        return not self._exceptions

    def uniform_with(self, count: int) -> bool:
        """Whether all hashes have one count, and still have it when some are told `count`."""
        return self.uniform and self._constant in (None, count)

    def get(self, content_hash: bytes) -> int:
        """The count of one hash of the partition."""
        return self._exceptions.get(content_hash, self._constant or 0)

    def total(self, hashes: Sequence[bytes]) -> int:
        """The sum over some hashes of the partition."""
        if not self._exceptions:
            return len(hashes) * (self._constant or 0)
        return sum(map(self.get, hashes))

    def discard(self, hashes: Iterable[bytes]) -> None:
        """Forget the exceptions of hashes that go."""
        if self._exceptions:
            for content_hash in hashes:
                self._exceptions.pop(content_hash, None)

    @property
    def memory_bytes(self) -> int:
        """Estimate what the exceptions occupy."""
        return len(self._exceptions) * EXCEPTION_BYTES
