"""The outbox, rule by rule."""

from __future__ import annotations

import pytest
from warmindex.answers import PublishResult
from warmindex.errors import Reason, UnavailableError
from warmindex.event import CacheEvent, EventType
from warmindex.index import Outcome
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import event_from_wire, event_to_part
from warmindex_subscriber.publisher.counters import PublisherCounters
from warmindex_subscriber.publisher.outbox import Outbox

EPOCH = 3
MANY = (256, 2**20)


def event(key: int = 1, replica_id: str = "r1", **fields) -> CacheEvent:
    given = {
        "type": EventType.EMBEDDED,
        "replica_id": replica_id,
        "model_id": "m",
        "hash_scheme": "own",
        "content_hashes": [bytes([key])],
        **fields,
    }
    return CacheEvent(**given)


def clear(replica_id: str = "r1") -> CacheEvent:
    return event(type=EventType.ALL_CLEARED, replica_id=replica_id, content_hashes=())


def outbox_of(*events: CacheEvent) -> Outbox:
    outbox = Outbox(EPOCH, PublisherCounters())
    for each in events:
        assert outbox.put(each)
    return outbox


def taken(outbox: Outbox, events_max: int = MANY[0], bytes_max: int = MANY[1]) -> list[str]:
    """The next message, as replica and number of each event."""
    message = pb.PublishEventsRequest.FromString(b"".join(outbox.take(events_max, bytes_max)))
    events = [event_from_wire(each) for each in message.events]
    assert all(each.epoch == EPOCH for each in events)
    return [f"{each.replica_id}.{each.sequence}" for each in events]


def result(outcome: Outcome = Outcome.APPLIED, *, resync: bool = False) -> PublishResult:
    return PublishResult(outcome, 1, 0, resync, "", Reason.UNSPECIFIED, 0, "h")


APPLIED, LIMITED = result(), result(Outcome.LIMITED)
FENCED, REFUSED = result(Outcome.FENCED), result(Outcome.REFUSED)
OWING = result(resync=True)


def test_a_part_is_the_event_with_its_number():
    """Parts put together are a message that any server reads, whatever their length."""
    events = [event(content_hashes=[bytes([n])] * n, adapter_id="a" * n) for n in (1, 90, 200)]
    parts = [event_to_part(each, EPOCH, n) for n, each in enumerate(events, 2**40)]
    message = pb.PublishEventsRequest.FromString(b"".join(parts))
    assert [(each.epoch, each.sequence) for each in message.events] == [
        (EPOCH, 2**40 + n) for n in range(3)
    ]
    assert [each.adapter_id for each in message.events] == [each.adapter_id for each in events]


def test_each_replica_counts_for_itself():
    """Numbers go 1, 2, 3 in each replica, in the order in which its events were put."""
    outbox = outbox_of(event(1), event(1, "r2"), event(2), event(3))
    assert taken(outbox) == ["r1.1", "r1.2", "r1.3", "r2.1"]


def test_replicas_take_turns():
    """One replica with much to say does not keep the others waiting."""
    outbox = outbox_of(event(1), event(2), event(3), event(1, "r2"))
    assert taken(outbox, 2) == ["r1.1", "r1.2"]
    assert taken(outbox, 2) == ["r2.1", "r1.3"]


def test_a_message_keeps_its_limits_but_is_never_empty():
    """An event larger than a message's limit goes alone."""
    outbox = outbox_of(event(1), event(content_hashes=[b"x" * 64, b"y" * 64]), event(2))
    small = len(event_to_part(event(1), EPOCH, 1))
    assert taken(outbox, bytes_max=small) == ["r1.1"]
    assert taken(outbox, bytes_max=small) == ["r1.2"]
    assert taken(outbox, bytes_max=small) == ["r1.3"]
    assert taken(outbox) == []


def test_what_was_cut_off_goes_again_with_its_numbers():
    """First what had no answer, then what came later."""
    outbox = outbox_of(event(1), event(2))
    assert taken(outbox, 1) == ["r1.1"]
    assert taken(outbox, 1) == ["r1.2"]
    outbox.put(event(3))
    outbox.answered([APPLIED])
    outbox.disconnected()
    assert taken(outbox) == ["r1.2", "r1.3"]


def test_what_was_limited_goes_again_before_anything_newer():
    """Nothing of the replica is sent while older numbers of it have been limited."""
    outbox = outbox_of(event(1), event(2))
    taken(outbox, 1), taken(outbox, 1)
    outbox.put(event(4))
    assert outbox.answered([LIMITED]).limited == [("r1", LIMITED)]
    outbox.resend_limited()
    assert taken(outbox) == [], "the second message has not been answered"
    outbox.answered([APPLIED])
    outbox.put(event(5, "r2"))
    assert taken(outbox) == ["r2.1"], "others go on"


def test_limited_events_come_back_in_order():
    """All that a quota has hit is sent again, and then what came later."""
    outbox = outbox_of(event(1), event(2), event(3))
    taken(outbox, 2), taken(outbox, 1)
    outbox.put(event(4))
    outbox.answered([LIMITED, LIMITED])
    outbox.answered([LIMITED])
    assert taken(outbox) == []
    outbox.resend_limited()
    assert taken(outbox) == ["r1.1", "r1.2", "r1.3", "r1.4"]


def test_a_cut_brings_limited_events_back_in_order_too():
    """What was limited is older than what is still under way."""
    outbox = outbox_of(event(1), event(2))
    taken(outbox, 1), taken(outbox, 1)
    outbox.answered([LIMITED])
    outbox.disconnected()
    assert taken(outbox) == ["r1.1", "r1.2"]


def test_a_report_drops_what_it_includes_and_speaks_of_the_highest_number():
    """Waiting or under way, acknowledged or not: the report comes later than all of it."""
    outbox = outbox_of(event(1), event(2), event(3))
    taken(outbox, 1)
    replica = outbox.begin_report("r1")
    assert (replica.sequence, outbox.held.events, outbox.held.bytes) == (3, 0, 0)
    assert not outbox.put(event(4))
    outbox.end_report(replica)
    outbox.put(event(5))
    assert taken(outbox) == ["r1.4"]


def test_answers_to_what_a_report_dropped_change_nothing():
    """They are not taken for answers to what was sent after the report."""
    outbox = outbox_of(event(1))
    taken(outbox)
    outbox.end_report(outbox.begin_report("r1"))
    outbox.put(event(2))
    taken(outbox)
    told = outbox.answered([OWING], True)
    assert outbox.held.events == 1
    assert (told.owing, told.unexplained) == (set(), False), "the report has paid that debt"
    assert outbox.answered([OWING], True).owing == {"r1"}, "this one is new"
    assert outbox.held.events == 0


def test_all_cleared_pays_the_debt():
    """It says all that a report would, so the replica need not be silent any longer."""
    outbox = outbox_of(event(1))
    taken(outbox)
    outbox.begin_report("r1")
    assert outbox.put(clear())
    assert outbox.put(event(2))
    assert taken(outbox) == ["r1.2", "r1.3"]
    assert outbox.answered([OWING]).owing == set()


def test_all_cleared_takes_the_place_of_what_waits():
    """Nobody needs to be told of holds that are gone; what is under way stays as it is."""
    outbox = outbox_of(event(1), event(2), event(3, "r2"))
    assert taken(outbox, 1) == ["r1.1"]
    outbox.put(clear())
    outbox.put(event(4))
    outbox.disconnected()
    assert taken(outbox) == ["r2.1", "r1.1", "r1.3", "r1.4"]


def test_a_debt_that_is_paid_in_the_same_message_is_none():
    """A clear behind the event that was told of the debt heals it."""
    outbox = outbox_of(event(1))
    taken(outbox)
    outbox.put(clear())
    outbox.put(event(1, "r2"))
    outbox.disconnected()
    assert taken(outbox) == ["r1.1", "r1.2", "r2.1"]
    assert outbox.answered([OWING, APPLIED, OWING]).owing == {"r2"}


def test_a_debt_that_no_event_names_is_looked_for():
    """Unless somebody owes a report anyway: then that is what the server means."""
    outbox = outbox_of(event(1), event(1, "r2"))
    taken(outbox)
    assert outbox.answered([APPLIED, APPLIED], True).unexplained
    outbox.beat()
    outbox.begin_report("r1")
    assert not outbox.answered([], True).unexplained
    outbox.fence(outbox.replica("r1"))
    outbox.beat()
    assert outbox.answered([], True).unexplained


def test_a_fenced_replica_is_silent_for_good():
    """And the stream that renews its lease has to end."""
    outbox = outbox_of(event(1), event(2), clear("r2"))
    taken(outbox, 1)
    assert outbox.answered([FENCED]).fenced == [("r1", FENCED)]
    assert outbox.stale
    assert not outbox.put(event(3))
    assert not outbox.put(clear())
    outbox.disconnected()
    assert not outbox.stale
    assert taken(outbox) == ["r2.1"]


@pytest.mark.parametrize("answered_first", [True, False])
def test_a_limited_event_that_is_dropped_ends_its_stream(answered_first: bool):
    """The server waits on that stream for its number to come again, and it never will."""
    outbox = outbox_of(event(1))
    taken(outbox)
    if answered_first:
        outbox.answered([LIMITED])
    outbox.end_report(outbox.begin_report("r1"))
    if not answered_first:
        assert not outbox.stale
        outbox.answered([LIMITED])
    assert outbox.stale


def test_a_limited_event_that_waits_again_and_is_dropped_ends_its_stream_too():
    """It was to come again on that stream, and a clear has taken its place."""
    outbox = outbox_of(event(1))
    taken(outbox)
    outbox.answered([LIMITED])
    outbox.resend_limited()
    outbox.put(clear())
    assert outbox.stale
    outbox.disconnected()
    assert taken(outbox) == ["r1.2"]


def test_once_it_came_through_a_limit_is_forgotten():
    """What is dropped later does not end the stream."""
    outbox = outbox_of(event(1))
    taken(outbox)
    outbox.answered([LIMITED])
    outbox.resend_limited()
    taken(outbox)
    outbox.answered([APPLIED])
    outbox.put(event(2))
    outbox.put(clear())
    assert not outbox.stale


def test_a_refused_event_is_done_with():
    """Sending it again would be no use."""
    outbox = outbox_of(event(1), event(2))
    taken(outbox)
    told = outbox.answered([REFUSED, APPLIED])
    assert (told.refused, outbox.held.events) == ([("r1", REFUSED)], 0)
    outbox.disconnected()
    assert taken(outbox) == []


def test_everything_is_counted():
    """What was accepted is acknowledged, superseded or fenced in the end."""
    outbox = outbox_of(event(1), event(2), event(3), event(1, "r2"))
    counters = outbox._counters
    taken(outbox, 2)
    outbox.answered([REFUSED, APPLIED])
    outbox.begin_report("r1")
    outbox.put(event(4))
    taken(outbox)
    outbox.disconnected()
    taken(outbox)
    outbox.answered([FENCED])
    assert counters.seen() == {
        "accepted": 4,
        "acknowledged": 2,
        "refused": 1,
        "superseded": 2,
        "repeated": 1,
        "fenced": 1,
    }


@pytest.mark.parametrize("results", [[], [APPLIED, APPLIED]])
def test_an_answer_that_fits_nothing_is_no_answer(results: list[PublishResult]):
    """A server that counts otherwise is not to be trusted with what it acknowledges."""
    outbox = outbox_of(event(1))
    taken(outbox)
    with pytest.raises(UnavailableError, match="does not fit"):
        outbox.answered(results)
    with pytest.raises(UnavailableError, match="does not fit"):
        Outbox(EPOCH).answered([])
