"""Wire and domain: nothing is lost on the way, and nothing invalid gets in."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from support import world
from support.bad_events import BAD_EVENTS, BadEvent
from support.messages import EMBEDDED, block, block_of, event, key, partition
from warmindex import limits, wire
from warmindex.errors import InvalidError, Reason
from warmindex.event import CacheEvent, Cause, EventType, PartitionKey, Tier
from warmindex.index import Outcome
from warmindex.index.route import Reason as RouteReason
from warmindex.record import UsedNumber
from warmindex.v1 import index_service_pb2 as pb

any_event = st.one_of(world.embedded(), world.evicted(), world.cleared(cause=Cause.NONE))


def same(left: CacheEvent, right: CacheEvent) -> bool:
    """Whether two events say the same, bit for bit."""
    for field in fields(CacheEvent):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
            if (one.shape, one.tobytes()) != (other.shape, other.tobytes()):
                return False
        elif (list(one) if isinstance(one, tuple | list) else one) != (
            list(other) if isinstance(other, tuple | list) else other
        ):
            return False
    return True


@given(any_event, st.sampled_from([(0, 0), (1, 1), (2**64 - 1, 2**64 - 1)]))
def test_an_event_survives_the_wire(sent: CacheEvent, number: tuple[int, int]):
    """Whatever an event says, its message says, and so does the event made of that."""
    numbered = replace(sent, epoch=number[0], sequence=number[1], timestamp_us=-1)
    raw = wire.event_to_wire(numbered).SerializeToString()
    assert same(wire.event_from_wire(event().FromString(raw)), numbered)


def test_the_cause_is_only_believed_of_a_server():
    """A producer's cause is dropped, a change's is kept, and an unknown one is none."""
    evicted = CacheEvent(
        type=EventType.EVICTED,
        replica_id="pod-1",
        model_id="m",
        content_hashes=[key(1)],
        cause=Cause.LEASE,
    )
    message = wire.event_to_wire(evicted)
    assert wire.event_from_wire(message).cause is Cause.NONE
    assert wire.change_from_wire(message).cause is Cause.LEASE
    message.cause = 99
    assert wire.change_from_wire(message).cause is Cause.NONE


def test_vectors_and_documents_are_left_out_on_request():
    """For whoever does not want them."""
    sent = wire.event_from_wire(event(embeddings=block([1.0])))
    assert wire.event_to_wire(sent).HasField("embeddings")
    assert not wire.event_to_wire(sent, embeddings=False).HasField("embeddings")
    named = event(documents=[{"name": "a"}])
    assert not wire.event_to_wire(wire.event_from_wire(named), documents=False).documents


def test_vectors_are_not_copied_on_the_way_in():
    """Rows are a view of the message's bytes, and cannot be written to."""
    sent = wire.event_from_wire(event(embeddings=block([1.0, 2.0])))
    assert sent.embeddings is not None
    assert not sent.embeddings.flags.owndata
    assert not sent.embeddings.flags.writeable


@pytest.mark.parametrize("bad", BAD_EVENTS, ids=str)
def test_a_bad_event_does_not_get_in(bad: BadEvent):
    """Reason, field and message are the contract's."""
    with pytest.raises(InvalidError) as error:
        wire.event_from_wire(bad.message())
    assert error.value.reason is Reason[bad.reason]
    assert error.value.field == bad.at
    for words in (bad.at, *bad.says):
        assert words in error.value.message


@pytest.mark.parametrize("bad", BAD_EVENTS, ids=str)
def test_the_number_of_a_bad_event_is_used_up_where_it_is_one(bad: BadEvent):
    """Where producer, epoch and sequence are valid, and only there."""
    numbers = {"epoch": 3, "sequence": 4} if "epoch" not in bad.fields else {}
    used = wire.used_number_from_wire(bad.message(**{**numbers, **bad.fields}))
    if not bad.number and bad.reason != "CONFLICT":
        assert used is None
    elif bad.number:
        assert used == UsedNumber(replica_id="pod-1", model_id="acme/m1", epoch=3, sequence=4)
    assert wire.used_number_from_wire(bad.message()) is None


# ---- batches -----------------------------------------------------------------------------


def domain(**given_fields: object) -> CacheEvent:
    return wire.event_from_wire(event(**given_fields))


def test_batches_keep_order_and_limits():
    """Neither more events than a message takes, nor many more bytes than it should have."""
    small = [domain(content_hashes=[key(number)]) for number in range(2500)]
    messages = list(wire.batches(small))
    assert [len(message.events) for message in messages] == [1024, 1024, 452]
    hashes = [each.content_hashes[0] for message in messages for each in message.events]
    assert hashes == [key(number) for number in range(2500)]


def test_a_large_event_goes_alone():
    """A batch is cut by bytes too; an event that is larger than a batch is one."""
    large = domain(content_hashes=[key(n) for n in range(700)], embeddings=block_of(700, 1024))
    small = domain()
    messages = list(wire.batches([small, large, small, small]))
    assert [len(message.events) for message in messages] == [1, 1, 2]
    assert all(message.ByteSize() < limits.MESSAGE_BYTES_MAX for message in messages)


def test_nothing_is_no_batch():
    """Without events there is no message."""
    assert list(wire.batches([])) == []


def test_parts_put_together_are_a_message():
    """A numbered event is encoded once, for whichever message it goes into."""
    parts = [wire.event_to_part(domain(), 7, number) for number in (1, 2)]
    message = pb.PublishEventsRequest.FromString(b"".join(parts))
    assert [(each.epoch, each.sequence) for each in message.events] == [(7, 1), (7, 2)]
    assert message.events[0] == event(
        hash_scheme="text-sha256", tier=1, epoch=7, sequence=1, type=EMBEDDED
    )


# ---- what a newer peer sends -------------------------------------------------------------


def test_an_unknown_outcome_is_not_taken_for_success():
    """Nor for one after which sending again would help."""
    result = wire.result_from_wire(pb.EventResult(outcome=99, reason=999, revision=5), "h")
    assert (result.outcome, result.reason) == (Outcome.REFUSED, Reason.UNSPECIFIED)
    assert (result.revision, result.history_id) == (5, "h")


def test_unknown_numbers_of_a_route_are_read_plainly():
    """A tier nobody knows is unspecified; a reason follows from the matches."""
    match = pb.LookupRouteResponse.ReplicaMatch(replica_id="a", matched_blocks=1, tier=77)
    found = wire.route_from_wire(pb.LookupRouteResponse(matches=[match], reason=88))
    assert found.reason is RouteReason.PREFIX_MATCH
    assert found.matches[0].tier is Tier.UNSPECIFIED
    assert wire.route_from_wire(pb.LookupRouteResponse(reason=88)).reason is RouteReason.NO_MATCH


# ---- keys, rows, durations, requests -----------------------------------------------------


def test_a_partitions_key_has_its_scheme_filled_in():
    """Empty is text-sha256, and the rest is as it came."""
    found = wire.partition_from_wire(partition("sql-lora", tenant_id="blue"))
    assert found == PartitionKey("blue", "acme/m1", "text-sha256", "sql-lora")
    assert wire.partition_from_wire(wire.partition_to_wire(found)) == found


@given(
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(st.floats(width=32), min_size=width, max_size=width), min_size=1, max_size=4
        )
    )
)
def test_rows_survive_the_wire(rows: list[list[float]]):
    """Every bit of them, NaNs included: what is allowed is another's question."""
    matrix = np.array(rows, dtype=np.float32)
    back = wire.rows_from_wire(wire.rows_to_wire(matrix), len(rows), "x")
    assert back.tobytes() == matrix.tobytes()
    assert back.shape == matrix.shape


def test_rows_of_any_layout_are_sent_row_by_row():
    """Columns first, every other row, another width of number: the bytes are the rows'."""
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (np.asfortranarray(matrix), matrix[::2], matrix.astype(np.float64)):
        assert wire.rows_to_wire(view).values == view.astype("<f4").tobytes()


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        (Duration(seconds=1), 1.0),
        (Duration(nanos=500_000_000), 0.5),
        (Duration(seconds=60), 60.0),
        (Duration(), 0.0),
    ],
)
def test_durations_are_seconds(duration: Duration, seconds: float):
    """Whole and parts of them."""
    assert wire.seconds_from_wire(duration, "wait", minimum_s=0, maximum_s=60) == seconds


@pytest.mark.parametrize(
    "duration",
    [
        Duration(seconds=-1),
        Duration(seconds=61),
        Duration(seconds=60, nanos=1),
        Duration(nanos=10**9),
        Duration(seconds=1, nanos=-1),
        Duration(seconds=-1, nanos=1),
        Duration(seconds=2**63 - 1, nanos=2**31 - 1),
    ],
)
def test_durations_have_a_range_and_rules(duration: Duration):
    """Outside its range, or with parts that contradict each other, it is none."""
    with pytest.raises(InvalidError) as error:
        wire.seconds_from_wire(duration, "wait", minimum_s=0, maximum_s=60)
    assert (error.value.field, error.value.reason) == ("wait", Reason.OUT_OF_RANGE)


@pytest.mark.parametrize(
    "values", [{"limit": -1}, {"limit": 2**32}, {"query_text": "\ud83d"}, {"min_revision": 2**64}]
)
def test_a_value_that_fits_no_field_is_invalid(values):
    """Before anything is sent: a number too large, half a surrogate pair."""
    with pytest.raises(InvalidError):
        wire.request_of(pb.SearchRequest, **values)
