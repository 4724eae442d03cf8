"""Many deadlines, of which most are moved or dropped before they pass.

A heap holds one look at each item, at the time it was due when it was put in. Moving an item
later leaves that look where it is: when its time comes, the item says when it is due by then.
So a renewal costs an assignment, however many there are.

    put          due later than its look     nothing to do
    put          due earlier                 a second look, the first one is stale
    drop                                     its look is stale
    due(now)     stale                       forgotten
                 moved on meanwhile          looked at again when it is due
                 due                         given back

Stale looks are swept when they are the most, so the heap stays in proportion to the items.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, Generic, TypeVar

# Below this many stale looks a sweep is not worth its while.
STALE_MIN: Final = 1024


class Timed:
    """Something that is due at a time; `due_s` is set by its owner, who then calls `put`."""

    __slots__ = ("due_s", "look_s")

    def __init__(self, due_s: float) -> None:
        self.due_s = due_s
        self.look_s: float | None = None  # when the heap looks at it; None while it does not


Item = TypeVar("Item", bound=Timed)


class Deadlines(Generic[Item]):
    """The items that were put in, by when they are due."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        self._tickets = count()
        self._stale = 0

    @property
    def next_s(self) -> float | None:
        """When to call `due` again; something may be due then, and nothing is before."""
        return self._heap[0][0] if self._heap else None

    def put(self, item: Item) -> None:
        """Take in an item, or take note of its new `due_s`."""
        if item.look_s is not None:
            if item.look_s <= item.due_s:
                return
            self._stale += 1
        item.look_s = item.due_s
        heappush(self._heap, (item.due_s, next(self._tickets), item))
        self._sweep()

    def drop(self, item: Item) -> None:
        """Forget an item."""
        if item.look_s is not None:
            item.look_s = None
            self._stale += 1
            self._sweep()

    def due(self, now_s: float, most: int) -> list[Item]:
        """Take out up to `most` items whose time has come, the first one first."""
        found: list[Item] = []
        while self._heap and self._heap[0][0] <= now_s and len(found) < most:
            look_s, _, item = heappop(self._heap)
            if item.look_s != look_s:
                self._stale -= 1
                continue
            item.look_s = None
            if item.due_s > now_s:
                self.put(item)
            else:
                found.append(item)
        self._sweep()
        return found

    def _sweep(self) -> None:
        if self._stale < STALE_MIN or 2 * self._stale < len(self._heap):
            return
        self._heap = [entry for entry in self._heap if entry[2].look_s == entry[0]]
        heapify(self._heap)
        self._stale = 0
