"""What is still to be told to the index, replica by replica. Pure: no I/O, and no clock.

Each replica numbers its events for itself, when they are put into a message:

    put --> queued --take--> unanswered --answered--> done
              ^                |     ^
              |                |     +-- disconnected: sent again with the same numbers
              |                +-------- LIMITED: sent again later, before anything newer
              +-- report: everything queued and unanswered is dropped, the report includes it

A replica that owes a report is silent until it has been given, and what is put meanwhile is
dropped: the source's report comes later than it, and includes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from warmindex.answers import PublishResult
from warmindex.event import CacheEvent
from warmindex.index import Outcome


class Numbered(NamedTuple):
    """An event with the number that it keeps for good, and its size."""

    event: CacheEvent
    size: int


class Replica:
    """One replica's events."""

    __slots__ = (
        "epoch",
        "fenced",
        "highest",
        "limited",
        "owes_report",
        "queued",
        "sequence",
        "unanswered",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.sequence = 0  # the last number given
        self.highest = 0  # the highest that the index may have seen
        self.queued: deque[CacheEvent] = deque()
        self.unanswered: deque[Numbered] = deque()
        self.limited: deque[Numbered] = deque()
        self.owes_report = False
        self.fenced = False

    @property
    def idle(self) -> bool:
        """Whether nothing of it is queued or unanswered."""
        return not (self.queued or self.unanswered or self.limited)


class Outbox:
    """The events of all replicas of one publisher."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._replicas: dict[str, Replica] = {}
        # Messages under way: replica and number of each of their events.
        self._messages: deque[list[tuple[str, int]]] = deque()
        self.queued_bytes = 0
        self.unanswered_bytes = 0

    def replica(self, replica_id: str) -> Replica:
        """The replica's events; a new one begins with number 1."""
        found = self._replicas.get(replica_id)
        if found is None:
            found = self._replicas[replica_id] = Replica(self._epoch)
        return found

    @property
    def replicas(self) -> Iterable[str]:
        """All replicas that were ever put."""
        return self._replicas.keys()

    @property
    def idle(self) -> bool:
        """Whether everything has been answered."""
        return all(replica.idle for replica in self._replicas.values())

    @property
    def messages_unanswered(self) -> int:
        """How many messages are under way."""
        return len(self._messages)

    def put(self, event: CacheEvent) -> None:
        """Queue an event; nothing where its replica owes a report, or is fenced."""
        replica = self.replica(event.replica_id)
        if not replica.owes_report and not replica.fenced:
            replica.queued.append(event)
            self.queued_bytes += size_of(event)

    def take(self, events_max: int, bytes_max: int) -> list[CacheEvent]:
        """The next message's events, numbered; [] where there is nothing to send.

        Call `sent` for it before the next one is taken.
        """
        taken: list[CacheEvent] = []
        owners: list[tuple[str, int]] = []
        size = 0
        for replica_id, replica in self._replicas.items():
            while replica.queued and not replica.owes_report and not replica.limited:
                event_size = size_of(replica.queued[0])
                if taken and (len(taken) >= events_max or size + event_size > bytes_max):
                    break
                event = replica.queued.popleft()
                replica.sequence += 1
                replica.highest = max(replica.highest, replica.sequence)
                event = replace(event, epoch=replica.epoch, sequence=replica.sequence)
                replica.unanswered.append(Numbered(event, event_size))
                taken.append(event)
                owners.append((replica_id, replica.sequence))
                size += event_size
                self.queued_bytes -= event_size
                self.unanswered_bytes += event_size
        if taken:
            self._messages.append(owners)
        return taken

    def beat(self) -> None:
        """A message without events is under way."""
        self._messages.append([])

    def answered(self, results: Sequence[PublishResult]) -> list[tuple[str, PublishResult]]:
        """The oldest message has been answered; each result with its replica."""
        owners = self._messages.popleft()
        told = []
        for (replica_id, sequence), result in zip(owners, results, strict=True):
            told.append((replica_id, result))
            replica = self._replicas[replica_id]
            if not replica.unanswered or replica.unanswered[0].event.sequence != sequence:
                continue  # a report has dropped it meanwhile
            numbered = replica.unanswered.popleft()
            if result.outcome is Outcome.LIMITED:
                replica.limited.append(numbered)
                continue
            self.unanswered_bytes -= numbered.size
            if result.outcome is Outcome.FENCED:
                replica.fenced = True
                self.drop(replica_id)
        return told

    def resend_limited(self) -> None:
        """Send what was limited again, where nothing newer of its replica is under way."""
        for replica in self._replicas.values():
            if replica.limited and not replica.unanswered:
                self._requeue(replica, replica.limited)
                replica.limited.clear()

    def disconnected(self) -> None:
        """No message under way will be answered: all of them are to be sent again."""
        self._messages.clear()
        for replica in self._replicas.values():
            again = deque([*replica.limited, *replica.unanswered])
            self._requeue(replica, again)
            replica.limited.clear()
            replica.unanswered.clear()

    def _requeue(self, replica: Replica, numbered: Iterable[Numbered]) -> None:
        """Put numbered events back in front; they will get the numbers that they had."""
        back = list(numbered)
        if not back:
            return
        replica.sequence = back[0].event.sequence - 1
        for each in reversed(back):
            replica.queued.appendleft(each.event)
            self.unanswered_bytes -= each.size
            self.queued_bytes += each.size

    def drop(self, replica_id: str) -> None:
        """Forget all that is queued or unanswered of a replica; its numbers stay used."""
        replica = self.replica(replica_id)
        self.queued_bytes -= sum(map(size_of, replica.queued))
        for numbered in (*replica.unanswered, *replica.limited):
            self.unanswered_bytes -= numbered.size
        replica.queued.clear()
        replica.unanswered.clear()
        replica.limited.clear()
        replica.sequence = replica.highest


def size_of(event: CacheEvent) -> int:
    """About how many bytes an event takes on the wire."""
    size = 200 + sum(map(len, event.content_hashes)) + 2 * len(event.content_hashes)
    if event.embeddings is not None:
        size += event.embeddings.nbytes
    return size + sum(len(each.name) + len(each.description) for each in event.documents)
