"""The calls that wait for keys which others compute.

A call waits for many keys, often a thousand calls for the same ones, and most keys come one
by one. So a call stands at one of its keys only, the first that is still pending; when that
one comes it moves on to its next, and wakes when there is none. All its moves together cost
one look at each of its keys, and a call that goes away leaves one place.

A key that gets free without a vector may fall to anybody who wants it, wherever it stands:
all calls of the partition that want claims wake, in the order in which they came, and look
again. The first of them gets it. Keys get free when a claimant dies or gives up, so seldom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import chain
from typing import TypeVar

from warmindex.event import PartitionKey

Place = TypeVar("Place")


class Waiter:
    """One call's place: the keys of `hashes` before `position` are pending no more."""

    __slots__ = ("hashes", "key", "position", "wants", "woken")

    def __init__(self, key: PartitionKey, *, wants: bool) -> None:
        self.key = key
        self.wants = wants
        self.woken = asyncio.Event()
        self.hashes: Sequence[bytes] = ()
        self.position = 0


class Waiters:
    """All waiting calls. `pending` gives the keys of a partition that somebody computes."""

    def __init__(self, pending: Callable[[PartitionKey], Container[bytes]]) -> None:
        self._pending = pending
        self._standing: dict[tuple[PartitionKey, bytes], dict[Waiter, None]] = {}
        self._lines: dict[PartitionKey, dict[Waiter, None]] = {}

    @property
    def empty(self) -> bool:
        """Whether no call waits, and none has left anything behind."""
        return not self._standing and not self._lines

    def join(self, waiter: Waiter) -> None:
        """Line up for keys that get free; the place in the line is kept until `leave`."""
        self._lines.setdefault(waiter.key, {})[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        """Leave nothing behind."""
        self.stop(waiter)
        _take_out(self._lines, waiter.key, waiter)

    def start(self, waiter: Waiter, hashes: Sequence[bytes]) -> None:
        """Wait for keys that were pending at the last look."""
        waiter.hashes = hashes
        waiter.position = 0
        self._stand_or_wake(waiter, self._pending(waiter.key))

    def stop(self, waiter: Waiter) -> None:
        """Wait for no key any longer."""
        if waiter.position < len(waiter.hashes):
            _take_out(self._standing, (waiter.key, waiter.hashes[waiter.position]), waiter)
        waiter.hashes = ()

    def ended(self, key: PartitionKey, hashes: Iterable[bytes]) -> None:
        """Keys are pending no more: whoever stands at one moves on."""
        pending = self._pending(key)
        for content_hash in hashes:
            for waiter in self._standing.pop((key, content_hash), ()):
                self._stand_or_wake(waiter, pending)

    def freed(self, key: PartitionKey, hashes: Iterable[bytes]) -> None:
        """Keys are nobody's: they may fall to who wants them."""
        self.ended(key, hashes)
        for waiter in self._lines.get(key, ()):
            if waiter.wants:
                waiter.woken.set()

    def look_again(self, key: PartitionKey) -> None:
        """Something has happened to some keys of a partition: let its calls look."""
        for waiter in self._lines.get(key, ()):
            waiter.woken.set()

    def wake_all(self) -> None:
        """Let every call look again."""
        for waiter in chain(*self._lines.values()):
            waiter.woken.set()

    def _stand_or_wake(self, waiter: Waiter, pending: Container[bytes]) -> None:
        hashes, position = waiter.hashes, waiter.position
        while position < len(hashes) and hashes[position] not in pending:
            position += 1
        waiter.position = position
        if position < len(hashes):
            self._standing.setdefault((waiter.key, hashes[position]), {})[waiter] = None
        else:
            waiter.woken.set()


def _take_out(lines: dict[Place, dict[Waiter, None]], place: Place, waiter: Waiter) -> None:
    line = lines.get(place)
    if line is not None:
        line.pop(waiter, None)
        if not line:
            del lines[place]
