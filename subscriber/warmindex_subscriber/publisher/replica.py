"""One replica's events on their way to the index, and what is known of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple


class Numbered(NamedTuple):
    """An event with the number that it keeps for good, encoded."""

    sequence: int
    part: bytes


class Replica:
    """One replica's events. `sequence` is the last number given."""

    __slots__ = (
        "fenced",
        "limited",
        "limited_number",
        "owes_report",
        "queued",
        "replica_id",
        "reported_at",
        "sequence",
        "told",
        "under_way",
        "waiting",
    )

    def __init__(self, replica_id: str) -> None:
        self.replica_id = replica_id
        self.sequence = 0
        self.waiting: deque[Numbered] = deque()
        self.under_way: deque[Numbered] = deque()
        self.limited: list[Numbered] = []
        # The number that the server waits for on this stream, because it was limited; or 0.
        self.limited_number = 0
        self.owes_report = False
        self.fenced = False
        # Whether the index may know of it: something was put, or a report begun.
        self.told = False
        # Whether it stands in the queue of those that have something to send.
        self.queued = False
        # The last message taken when it last reported; answers up to there are out of date.
        self.reported_at = 0

    @property
    def silent(self) -> bool:
        """Whether nothing is taken of it."""
        return self.owes_report or self.fenced


@dataclass(slots=True)
class Amount:
    """So many events, and their bytes on the wire."""

    events: int = 0
    bytes: int = 0

    def add(self, numbered: Numbered) -> None:
        """One more."""
        self.events += 1
        self.bytes += len(numbered.part)

    def remove(self, numbered: Numbered) -> None:
        """One less."""
        self.events -= 1
        self.bytes -= len(numbered.part)
