"""The outbox: every event keeps its number, and whatever happens the index ends up right.

A random source, a random network and a simulated index with the contract's numbering: messages
are cut off before and after they were applied, quotas are reached, leases end, the index forgets
everything, reports are answered late or twice, another life takes over. When the dust has
settled the index has exactly what the source holds.
"""

from __future__ import annotations

from collections import defaultdict, deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.model import PlainIndex
from warmindex.answers import PublishResult
from warmindex.errors import Reason
from warmindex.event import CacheEvent, Cause, EventType
from warmindex.index import Outcome
from warmindex.record import Report
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import event_from_wire
from warmindex_subscriber.publisher.counters import PublisherCounters
from warmindex_subscriber.publisher.outbox import Outbox

MODEL = "m"
EPOCH = 7
KEYS = [bytes([number]) * 8 for number in range(6)]
NAMES = ("r1", "r2")
Stream = deque[list[CacheEvent]]

names = st.sampled_from(NAMES)
some_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)


def event_of(name: str, kind: EventType, keys: list[bytes] | None = None, **fields) -> CacheEvent:
    return CacheEvent(
        type=kind,
        replica_id=name,
        model_id=MODEL,
        content_hashes=keys or (),
        hash_scheme="" if kind is EventType.ALL_CLEARED else "own",
        adapter_scoped=kind is EventType.EVICTED,
        **fields,
    )


def decoded(parts: list[bytes]) -> list[CacheEvent]:
    """The events of a message, as a server reads them."""
    message = pb.PublishEventsRequest.FromString(b"".join(parts))
    return [event_from_wire(event) for event in message.events]


class SimulatedIndex:
    """An index behind the contract's numbering; quotas are switched from outside."""

    def __init__(self) -> None:
        self.plain = PlainIndex()
        self.full = False
        # Events that still go through before the quota is reached.
        self.left = 0
        # Per stream and replica: the number that was limited first.
        self.limited: dict[tuple[int, str], int] = {}

    def apply(self, stream: int, event: CacheEvent) -> PublishResult:
        where = (stream, event.replica_id)
        first = self.limited.get(where)
        if (self.full and not self.left) or (first is not None and event.sequence > first):
            self.limited.setdefault(where, event.sequence)
            return self.result(Outcome.LIMITED)
        self.left -= self.full
        self.limited.pop(where, None)
        verdict = self.plain.apply(self.plain.revision + 1, event)
        return self.result(verdict.outcome, verdict.resync_required)

    def result(self, outcome: Outcome, resync_required: bool = False) -> PublishResult:
        return PublishResult(
            outcome, self.plain.revision, 0, resync_required, "", Reason.UNSPECIFIED, 0, "h"
        )

    def report(self, name: str, epoch: int, sequence: int, keys: set[bytes]) -> Outcome:
        """Replace what a replica holds, where its number allows that."""
        held = self.held(name)
        added, gone = sorted(keys - held), sorted(held - keys)
        changes = [event_of(name, EventType.EMBEDDED, added)] if added else []
        if gone:
            changes.append(event_of(name, EventType.EVICTED, gone, cause=Cause.REPORT))
        report = Report(
            replica_id=name,
            model_id=MODEL,
            epoch=epoch,
            sequence=sequence,
            changes=tuple(changes),
        )
        return self.plain.apply(self.plain.revision + 1, report).outcome

    def held(self, name: str) -> set[bytes]:
        return {place.content_hash for place, _ in self.plain.held_by("", MODEL, name)}

    def owes(self, name: str) -> bool:
        return self.plain.producers["", MODEL, name].resync_required

    def epoch(self, name: str) -> int:
        return self.plain.producers["", MODEL, name].epoch


class OutboxMachine(RuleBasedStateMachine):
    """Source, outbox, network and index."""

    def __init__(self) -> None:
        super().__init__()
        self.counters = PublisherCounters()
        self.outbox = Outbox(EPOCH, self.counters)
        self.index = SimulatedIndex()
        self.truth: defaultdict[str, set[bytes]] = defaultdict(set)
        self.wanted: set[str] = set()
        self.stream = 1
        # On the present stream: on their way to the index, and its answers on their way back.
        self.sent: Stream = deque()
        self.answers: deque[tuple[list[PublishResult], bool]] = deque()
        # Of streams that were cut: what a server may still have in its hands.
        self.ghosts: list[tuple[int, Stream]] = []
        self.numbers: dict[tuple[str, int], CacheEvent] = {}
        self.last_sent: dict[str, int] = {}

    # ---- the source --------------------------------------------------------------------

    @rule(name=names, keys=some_keys)
    def embed(self, name: str, keys: list[bytes]) -> None:
        self.truth[name] |= set(keys)
        self.outbox.put(event_of(name, EventType.EMBEDDED, keys))

    @rule(name=names, keys=some_keys)
    def evict(self, name: str, keys: list[bytes]) -> None:
        self.truth[name] -= set(keys)
        self.outbox.put(event_of(name, EventType.EVICTED, keys))

    @rule(name=names)
    def clear(self, name: str) -> None:
        self.truth[name].clear()
        self.outbox.put(event_of(name, EventType.ALL_CLEARED))
        if not self.outbox.replica(name).owes_report:
            self.wanted.discard(name)

    @rule(name=names, fate=st.sampled_from(["lost", "answer lost", "answered", "answered"]))
    def report(self, name: str, fate: str) -> None:
        """One attempt: it may not arrive, or its answer may not come back."""
        if self.outbox.replica(name).fenced:
            return
        replica = self.outbox.begin_report(name)
        self.wanted.add(name)
        if fate != "lost":
            outcome = self.index.report(name, EPOCH, replica.sequence, self.truth[name])
            fenced = self.index.epoch(name) > EPOCH
            assert outcome is Outcome.FENCED if fenced else outcome <= Outcome.UNCHANGED
            if fate == "answered":
                if fenced:
                    self.outbox.fence(replica)
                else:
                    self.outbox.end_report(replica)
                self.wanted.discard(name)

    # ---- the network -------------------------------------------------------------------

    @rule(events_max=st.integers(1, 5), bytes_max=st.sampled_from([1, 100, 300, 10**6]))
    def send(self, events_max: int, bytes_max: int) -> None:
        parts = self.outbox.take(events_max, bytes_max)
        assert len(parts) <= events_max
        assert len(parts) <= 1 or sum(map(len, parts)) <= bytes_max
        if parts:
            self.sent.append(decoded(parts))
            self.check_numbers(self.sent[-1])

    @rule()
    def beat(self) -> None:
        self.outbox.beat()
        self.sent.append([])

    @precondition(lambda self: self.sent)
    @rule()
    def arrive(self) -> None:
        results = [self.index.apply(self.stream, event) for event in self.sent.popleft()]
        self.answers.append((results, any(map(self.index.owes, NAMES))))

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        told = self.outbox.answered(*self.answers.popleft())
        for name, _ in told.fenced:
            assert self.index.epoch(name) > EPOCH
        for name in told.owing:
            self.want(name)
        if told.unexplained:
            for replica in self.outbox.replicas:
                if replica.told:
                    probe = event_of(replica.replica_id, EventType.EVICTED, [b"?"])
                    self.outbox.put(probe)

    @rule()
    def exchange(self) -> None:
        """Everything comes through, both ways."""
        for _ in range(3):
            self.send(3, 10**6)
        while self.sent:
            self.arrive()
        while self.answers:
            self.answer()

    @rule()
    def cut(self) -> None:
        self.ghosts.append((self.stream, self.sent))
        self.sent, self.answers = deque(), deque()
        self.stream += 1
        self.last_sent.clear()
        self.outbox.disconnected()

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data())
    def late(self, data: st.DataObject) -> None:
        """A server goes on with what had reached it before the connection was cut."""
        stream, messages = data.draw(st.sampled_from(self.ghosts))
        if messages:
            for event in messages.popleft():
                self.index.apply(stream, event)

    # ---- the index ---------------------------------------------------------------------

    @rule(full=st.booleans(), left=st.integers(0, 2))
    def quota(self, full: bool, left: int = 0) -> None:
        self.index.full, self.index.left = full, left

    @rule()
    def resend_limited(self) -> None:
        self.outbox.resend_limited()
        for replica in self.outbox.replicas:
            if replica.waiting:
                self.last_sent[replica.replica_id] = replica.waiting[0].sequence - 1

    @rule(name=names)
    def lease_ends(self, name: str) -> None:
        clear = event_of(name, EventType.ALL_CLEARED, cause=Cause.LEASE)
        self.index.plain.apply(self.index.plain.revision + 1, clear)

    @rule()
    def forget_everything(self) -> None:
        """The index begins a new history; the publisher learns of it when it greets."""
        self.cut()
        self.ghosts.clear()
        self.index = SimulatedIndex()
        for replica in self.outbox.replicas:
            if replica.told:
                self.want(replica.replica_id)

    @rule(name=st.sampled_from(NAMES[1:]))
    def take_over(self, name: str) -> None:
        """Another life of the replica publishes."""
        event = event_of(name, EventType.ALL_CLEARED, epoch=EPOCH + 1, sequence=1)
        self.index.plain.apply(self.index.plain.revision + 1, event)

    # ---- what must hold ----------------------------------------------------------------

    def want(self, name: str) -> None:
        if not self.outbox.replica(name).silent:
            self.outbox.begin_report(name)
            self.wanted.add(name)

    def check_numbers(self, events: list[CacheEvent]) -> None:
        """No number stands for two events, and on one stream numbers go up."""
        for event in events:
            assert event.epoch == EPOCH
            seen = self.numbers.setdefault((event.replica_id, event.sequence), event)
            assert (seen.type, seen.content_hashes) == (event.type, event.content_hashes)
            assert event.sequence > self.last_sent.get(event.replica_id, 0)
            self.last_sent[event.replica_id] = event.sequence

    @invariant()
    def what_is_held_is_counted(self) -> None:
        """Bytes are what is on the wire, to the byte: a bound on them is a bound."""
        waiting = [one for each in self.outbox.replicas for one in each.waiting]
        held = waiting + [
            one for each in self.outbox.replicas for one in (*each.under_way, *each.limited)
        ]
        for amount, things in ((self.outbox.held, held), (self.outbox.waiting, waiting)):
            assert amount.events == len(things)
            assert amount.bytes == sum(len(one.part) for one in things)

    @invariant()
    def a_replica_that_was_taken_over_changes_nothing(self) -> None:
        for name in NAMES:
            assert self.index.epoch(name) <= EPOCH or not self.index.held(name)

    @invariant()
    def silence_is_kept(self) -> None:
        for replica in self.outbox.replicas:
            if replica.silent:
                assert not replica.waiting
                assert not replica.under_way

    def teardown(self) -> None:
        """From now on nothing goes wrong: in the end the index has what the source holds."""
        self.quota(full=False)
        while any(messages for _, messages in self.ghosts):
            for stream, messages in self.ghosts:
                if messages:
                    for event in messages.popleft():
                        self.index.apply(stream, event)
        for _ in range(12):
            if self.outbox.stale:
                self.cut()
            self.settle_once()
        assert not self.outbox.held.events
        assert not self.outbox.messages_under_way
        for name in NAMES:
            if self.index.epoch(name) <= EPOCH and not self.outbox.replica(name).fenced:
                assert not self.outbox.replica(name).silent
                assert not self.index.owes(name)
                assert self.index.held(name) == self.truth[name]
        counters = self.counters
        done = counters.acknowledged + counters.fenced
        assert done <= counters.accepted <= done + counters.superseded

    def settle_once(self) -> None:
        self.resend_limited()
        self.send(5, 10**6)
        self.beat()
        while self.sent:
            self.arrive()
        while self.answers:
            self.answer()
        for name in sorted(self.wanted):
            self.report(name, "answered")


OutboxMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestOutbox = OutboxMachine.TestCase
