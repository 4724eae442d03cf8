"""What is still to be told to the index, replica by replica. Pure: no I/O, and no clock.

Each replica numbers its events for itself, when they are put in, and each keeps its number:

    put --> waiting --take--> under way --answered--> done
              ^                |     ^
              |                |     +-- disconnected: back to waiting, in order
              |                +-------- LIMITED: back to waiting, before anything newer
              +-- report: all of it is dropped, the report includes it

What waits is kept as the bytes that go into a message, so that it is counted exactly, and
encoded once however often it is sent.

A replica that owes a report is silent until it has been given, and what is put meanwhile is
dropped: the source's report comes later than it, and includes it. ALL_CLEARED pays the debt
too, and takes the place of what waits before it. A report speaks of the highest number given:
whatever of it is still on its way to the index is then at or below, and a duplicate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import NamedTuple

from warmindex.answers import PublishResult
from warmindex.errors import UnavailableError
from warmindex.event import CacheEvent, EventType
from warmindex.index import Outcome
from warmindex.wire import event_to_part

from warmindex_subscriber.publisher.counters import PublisherCounters
from warmindex_subscriber.publisher.replica import Amount, Numbered, Replica


class Message(NamedTuple):
    """A message under way: which events it has."""

    number: int
    events: list[tuple[Replica, int]]


class Told(NamedTuple):
    """What an answer says that somebody must act on; results with their replica's name.

    `owing` are the replicas that the index wants a report from. `unexplained` says that it
    wants one from some producer of the stream that is not among them.
    """

    refused: list[tuple[str, PublishResult]]
    fenced: list[tuple[str, PublishResult]]
    limited: list[tuple[str, PublishResult]]
    owing: set[str]
    unexplained: bool


class Outbox:
    """The events of all replicas of one publisher, in one life of it (`epoch`).

    `held` is what has no answer yet, `waiting` what of it is not under way. `stale` says that
    the present stream must not go on: it renews the lease of a replica that another life has
    taken over, or the index waits on it for an event that was limited, and has been dropped.
    """

    def __init__(self, epoch: int, counters: PublisherCounters | None = None) -> None:
        self.epoch = epoch
        self._counters = counters or PublisherCounters()
        self._replicas: dict[str, Replica] = {}
        self._queue: deque[Replica] = deque()
        self._messages: deque[Message] = deque()
        self._messages_taken = 0
        self._reported_at = 0
        self.held = Amount()
        self.waiting = Amount()
        self.stale = False

    def replica(self, replica_id: str) -> Replica:
        """The replica's events; a new one begins with number 1."""
        found = self._replicas.get(replica_id)
        if found is None:
            found = self._replicas[replica_id] = Replica(replica_id)
        return found

    @property
    def replicas(self) -> Collection[Replica]:
        """All replicas that were ever named."""
        return self._replicas.values()

    @property
    def messages_under_way(self) -> int:
        """How many messages have no answer yet."""
        return len(self._messages)

    # ---- in ----------------------------------------------------------------------------

    def put(self, event: CacheEvent) -> bool:
        """Number an event and queue it; False where it was dropped."""
        replica = self.replica(event.replica_id)
        if replica.silent:
            if replica.fenced or event.type is not EventType.ALL_CLEARED:
                self._counters.superseded += 1
                return False
            replica.owes_report = False
        if event.type is EventType.ALL_CLEARED:
            # Whatever the index has wanted before, nothing is left to be reported; and what
            # waits need not be told: the numbers that it leaves out are healed by the clear.
            replica.reported_at = self._messages_taken
            self._drop_waiting(replica)
        replica.told = True
        replica.sequence += 1
        part = event_to_part(event, self.epoch, replica.sequence)
        numbered = Numbered(replica.sequence, part)
        replica.waiting.append(numbered)
        self.held.add(numbered)
        self.waiting.add(numbered)
        self._counters.accepted += 1
        self._enqueue(replica)
        return True

    def begin_report(self, replica_id: str) -> Replica:
        """Be silent until the report is given; all that was put before is part of it."""
        replica = self.replica(replica_id)
        replica.told = replica.owes_report = True
        self._drop(replica)
        return replica

    def end_report(self, replica: Replica) -> None:
        """The report has been given; numbers go on from the one that it spoke of."""
        replica.owes_report = False
        replica.reported_at = self._reported_at = self._messages_taken

    def fence(self, replica: Replica) -> None:
        """Another life of the replica publishes: this one is silent for good."""
        replica.fenced, replica.owes_report = True, False
        self._drop(replica)
        self.stale = True

    # ---- out ---------------------------------------------------------------------------

    def take(self, events_max: int, bytes_max: int) -> list[bytes]:
        """The events of the next message, which is under way from now on; [] for none.

        An event larger than `bytes_max` goes alone. Replicas take turns.
        """
        parts: list[bytes] = []
        events: list[tuple[Replica, int]] = []
        left = bytes_max
        while self._queue:
            replica = self._queue[0]
            # What is limited goes first, when its time has come.
            waiting = replica.waiting if not replica.limited else ()
            while waiting and len(parts) < events_max:
                numbered = waiting[0]
                left -= len(numbered.part)
                if left < 0 and parts:
                    break
                replica.under_way.append(waiting.popleft())
                self.waiting.remove(numbered)
                parts.append(numbered.part)
                events.append((replica, numbered.sequence))
            if waiting:
                self._queue.rotate(-1)
                break
            replica.queued = False
            self._queue.popleft()
        if parts:
            self._sent(events)
        return parts

    def beat(self) -> None:
        """A message without events is under way."""
        self._sent([])

    def answered(self, results: Sequence[PublishResult], resync_required: bool = False) -> Told:
        """The oldest message has been answered; `resync_required` is the whole answer's.

        Raises UnavailableError where the answer is none to that message.
        """
        if not self._messages or len(results) != len(self._messages[0].events):
            raise UnavailableError("the server's answer does not fit what was sent")
        message = self._messages.popleft()
        told = Told([], [], [], set(), False)
        explained = message.number <= self._reported_at
        for (replica, sequence), result in zip(message.events, results, strict=True):
            if result.resync_required:
                explained = True
                if message.number > replica.reported_at and not replica.silent:
                    told.owing.add(replica.replica_id)
            elif told.owing:
                # A clear has paid the debt.
                told.owing.discard(replica.replica_id)
            if result.outcome > Outcome.DUPLICATE:
                self._note_trouble(replica, result, told)
            if replica.under_way and replica.under_way[0].sequence == sequence:
                self._settle(replica, result.outcome)
            elif result.outcome is Outcome.LIMITED:
                self.stale = True
        if resync_required and not explained:
            explained = any(replica.owes_report for replica in self._replicas.values())
        return told._replace(unexplained=resync_required and not explained)

    def _note_trouble(self, replica: Replica, result: PublishResult, told: Told) -> None:
        lists = {Outcome.FENCED: told.fenced, Outcome.LIMITED: told.limited}
        lists.get(result.outcome, told.refused).append((replica.replica_id, result))

    def _settle(self, replica: Replica, outcome: Outcome) -> None:
        """The oldest event under way of a replica has been answered."""
        numbered = replica.under_way.popleft()
        if outcome is Outcome.LIMITED:
            self._counters.limited += 1
            replica.limited.append(numbered)
            replica.limited_number = replica.limited_number or numbered.sequence
            return
        replica.limited_number = 0
        self.held.remove(numbered)
        if outcome is Outcome.FENCED:
            self._counters.fenced += 1
            self.fence(replica)
            return
        self._counters.acknowledged += 1
        self._counters.refused += outcome is Outcome.REFUSED

    def resend_limited(self) -> None:
        """Let what was limited wait again, where nothing newer of its replica is under way."""
        for replica in self._replicas.values():
            if replica.limited and not replica.under_way:
                self._put_back(replica)

    def disconnected(self) -> None:
        """No message under way will be answered: all of them wait again."""
        self._messages.clear()
        self.stale = False
        for replica in self._replicas.values():
            replica.limited_number = 0
            if replica.limited or replica.under_way:
                self._put_back(replica)

    # ---- how it is done ----------------------------------------------------------------

    def _put_back(self, replica: Replica) -> None:
        back = (*replica.limited, *replica.under_way)
        replica.waiting.extendleft(reversed(back))
        replica.limited.clear()
        replica.under_way.clear()
        for numbered in back:
            self.waiting.add(numbered)
        self._counters.repeated += len(back)
        self._enqueue(replica)

    def _enqueue(self, replica: Replica) -> None:
        if not replica.queued:
            replica.queued = True
            self._queue.append(replica)

    def _sent(self, events: list[tuple[Replica, int]]) -> None:
        self._messages_taken += 1
        self._messages.append(Message(self._messages_taken, events))

    def _drop(self, replica: Replica) -> None:
        self._drop_waiting(replica)
        for numbered in (*replica.under_way, *replica.limited):
            self.held.remove(numbered)
            self._counters.superseded += 1
        replica.under_way.clear()
        replica.limited.clear()

    def _drop_waiting(self, replica: Replica) -> None:
        self.stale = self.stale or bool(replica.limited_number)
        for numbered in replica.waiting:
            self.waiting.remove(numbered)
            self.held.remove(numbered)
            self._counters.superseded += 1
        replica.waiting.clear()
