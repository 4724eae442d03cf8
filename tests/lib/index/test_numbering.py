"""Numbering: what a producer's epoch and sequence make of an event, row by row."""

from __future__ import annotations

import pytest
from support.history import MODEL, A, B, History, cleared, embedded, evicted, rows
from warmindex.errors import Reason
from warmindex.event import CacheEvent, Cause
from warmindex.index import Outcome
from warmindex.record import ProducerState, Record, Report, UsedNumber

APPLIED, UNCHANGED, DUPLICATE = Outcome.APPLIED, Outcome.UNCHANGED, Outcome.DUPLICATE
REFUSED, FENCED = Outcome.REFUSED, Outcome.FENCED


def producer_at(epoch: int, sequence: int, resync: bool, *events: CacheEvent) -> History:
    """A producer that has used `sequence` of `epoch`, and holds what `events` say."""
    history = History(*events)
    history.index.restore(
        ProducerState(
            replica_id="r1",
            model_id=MODEL,
            epoch=epoch,
            sequence=sequence,
            resync_required=resync,
        )
    )
    return history


def numbers(history: History) -> tuple[int, int, bool]:
    producer = history.index.producer("", MODEL, "r1")
    return (
        (producer.epoch, producer.sequence, producer.resync_required) if producer else (0, 0, False)
    )


# The producer is at epoch 5, number 3 and holds B. What comes, its outcome, the number
# afterwards, and whether a resync is asked for where it was not, and where it was.
ROWS = [
    ("without a number", embedded(A), APPLIED, (5, 3), False, True),
    ("of an older epoch", embedded(A, epoch=4, sequence=9), FENCED, (5, 3), False, True),
    ("the highest number", embedded(A, epoch=5, sequence=3), DUPLICATE, (5, 3), False, True),
    ("a lower number", embedded(A, epoch=5, sequence=1), DUPLICATE, (5, 3), False, True),
    ("the next number", embedded(A, epoch=5, sequence=4), APPLIED, (5, 4), False, True),
    (
        "the next number, no change",
        embedded(B, epoch=5, sequence=4),
        UNCHANGED,
        (5, 4),
        False,
        True,
    ),
    ("a number above the next", embedded(A, epoch=5, sequence=5), APPLIED, (5, 5), True, True),
    ("a gap without a change", embedded(B, epoch=5, sequence=9), UNCHANGED, (5, 9), True, True),
    ("newer epoch, number 1", embedded(A, epoch=6, sequence=1), APPLIED, (6, 1), True, True),
    ("newer epoch, another", embedded(A, epoch=6, sequence=2), APPLIED, (6, 2), True, True),
    (
        "newer epoch by far",
        embedded(A, epoch=2**64 - 1, sequence=1),
        APPLIED,
        (2**64 - 1, 1),
        True,
        True,
    ),
    ("a clear", cleared(epoch=5, sequence=4), APPLIED, (5, 4), False, False),
    ("a clear behind a gap", cleared(epoch=5, sequence=9), APPLIED, (5, 9), False, False),
    ("a clear as a duplicate", cleared(epoch=5, sequence=3), DUPLICATE, (5, 3), False, True),
    ("a clear of an older epoch", cleared(epoch=4, sequence=4), FENCED, (5, 3), False, True),
    ("a new life's clear", cleared(epoch=6, sequence=1), APPLIED, (6, 1), False, False),
    ("a new life's late clear", cleared(epoch=6, sequence=4), APPLIED, (6, 4), False, False),
    ("a clear without a number", cleared(), APPLIED, (5, 3), False, False),
    ("the server's clear", cleared(cause=Cause.LEASE), APPLIED, (5, 3), True, True),
    ("the server's eviction", evicted(B, cause=Cause.IDLE), APPLIED, (5, 3), False, True),
]


@pytest.mark.parametrize("resync", [False, True], ids=["healthy", "with a gap"])
@pytest.mark.parametrize(
    ("event", "outcome", "number", "when_healthy", "when_not"),
    [row[1:] for row in ROWS],
    ids=[row[0] for row in ROWS],
)
def test_what_a_number_makes_of_an_event(
    event: CacheEvent,
    outcome: Outcome,
    number: tuple[int, int],
    when_healthy: bool,
    when_not: bool,
    resync: bool,
):
    """The table of `producers`: outcome, number and resync, for a producer with holds."""
    history = producer_at(5, 3, resync, embedded(B))
    applied = history.apply(event)
    expected = when_not if resync else when_healthy
    assert applied.outcome is outcome
    assert numbers(history) == (*number, expected)
    if outcome is FENCED:
        assert (applied.reason, applied.current_epoch) == (Reason.EPOCH_FENCED, 5)
    else:
        assert applied.resync_required is expected
    assert bool(history.holds(A)) is (outcome is APPLIED and A in event.content_hashes)


# The same producer without holds: nothing of an earlier life can be stale.
WITHOUT_HOLDS = [
    ("newer epoch, number 1", embedded(A, epoch=6, sequence=1), (6, 1), False, False),
    ("newer epoch, another", embedded(A, epoch=6, sequence=2), (6, 2), True, True),
    ("the next number", embedded(A, epoch=5, sequence=4), (5, 4), False, True),
    ("an eviction of nothing", evicted(A, epoch=6, sequence=1), (6, 1), False, False),
    ("the server's clear", cleared(cause=Cause.LEASE), (5, 3), False, True),
    ("a clear", cleared(epoch=6, sequence=1), (6, 1), False, False),
]


@pytest.mark.parametrize("resync", [False, True], ids=["healthy", "with a gap"])
@pytest.mark.parametrize(
    ("event", "number", "when_healthy", "when_not"),
    [row[1:] for row in WITHOUT_HOLDS],
    ids=[row[0] for row in WITHOUT_HOLDS],
)
def test_what_a_number_makes_of_an_event_without_holds(
    event: CacheEvent, number: tuple[int, int], when_healthy: bool, when_not: bool, resync: bool
):
    """A new life that begins at 1 is healthy, whatever the last one missed."""
    history = producer_at(5, 3, resync)
    history.apply(event)
    assert numbers(history) == (*number, when_not if resync else when_healthy)


FIRST = [
    ("number 1", [], (7, 1), False),
    ("another number", [], (7, 2), True),
    ("number 1, holds without a number", [embedded(B)], (7, 1), True),
    ("number 1, holds that have gone", [embedded(B), evicted(B)], (7, 1), False),
    ("number 1, holds of others", [embedded(B, replica_id="r2")], (7, 1), False),
    ("number 1, holds in another model", [embedded(B, model_id="other")], (7, 1), False),
    ("number 1, holds in another tenant", [embedded(B, tenant_id="blue")], (7, 1), False),
]


@pytest.mark.parametrize(
    ("before", "number", "resync"), [row[1:] for row in FIRST], ids=[row[0] for row in FIRST]
)
def test_a_producers_first_number(before: list[CacheEvent], number: tuple[int, int], resync: bool):
    """Any epoch is newer than none; what it held without numbers counts as its last life's."""
    history = History(*before)
    applied = history.apply(embedded(A, epoch=number[0], sequence=number[1]))
    assert (applied.outcome, applied.resync_required) == (APPLIED, resync)
    assert numbers(history) == (*number, resync)


def test_a_new_life_keeps_all_holds():
    """They may be stale, so a resync is asked for, and they stay until it comes."""
    history = History(embedded(A, epoch=1, sequence=1), embedded(B, epoch=2, sequence=1))
    assert history.holds(A)
    assert history.holds(B)
    assert numbers(history) == (2, 1, True)


def test_a_gap_stays_until_it_is_healed():
    """Later numbers in order do not heal it; a number inside it is a duplicate."""
    history = History(embedded(A, epoch=1, sequence=1))
    assert history.apply(embedded(B, epoch=1, sequence=4)).resync_required
    late = history.apply(cleared(epoch=1, sequence=2))
    assert (late.outcome, late.resync_required, late.holds_removed) == (DUPLICATE, True, 0)
    assert history.apply(evicted(B, epoch=1, sequence=5)).resync_required
    assert not history.apply(cleared(epoch=1, sequence=6)).resync_required


def test_a_retry_is_harmless():
    """An event that comes twice with its number is applied once, whatever came between."""
    history = History()
    event = evicted(A, epoch=1, sequence=1)
    assert history.apply(event).outcome is UNCHANGED
    history.apply(embedded(A, epoch=1, sequence=2))
    again = history.apply(event)
    assert (again.outcome, again.resync_required) == (DUPLICATE, False)
    assert history.holds(A)


def test_producers_number_for_themselves():
    """Tenant, model and replica each make a producer of their own."""
    history = History(embedded(A, epoch=9, sequence=9))
    for other in ({"tenant_id": "blue"}, {"model_id": "other"}, {"replica_id": "r2"}):
        applied = history.apply(embedded(A, epoch=1, sequence=1, **other))
        assert (applied.outcome, applied.resync_required) == (APPLIED, False)


def test_a_refused_event_uses_its_number_up():
    """Vectors of another width are answered as REFUSED once, and then as a duplicate."""
    history = History(embedded(A, embeddings=rows([1, 2]), epoch=1, sequence=1))
    event = embedded(A, embeddings=rows([1, 2, 3]), epoch=1, sequence=2)
    assert history.apply(event).outcome is REFUSED
    assert history.apply(event).outcome is DUPLICATE
    applied = history.apply(embedded(B, epoch=1, sequence=3))
    assert (applied.outcome, applied.resync_required) == (APPLIED, False)


def test_a_refused_event_can_open_a_gap():
    """Its number counts, even where nothing else of it does."""
    history = History(embedded(A, embeddings=rows([1, 2]), epoch=1, sequence=1))
    applied = history.apply(embedded(A, embeddings=rows([1, 2, 3]), epoch=1, sequence=3))
    assert (applied.outcome, applied.resync_required) == (REFUSED, True)
    assert numbers(history) == (1, 3, True)


# ---- numbers of invalid events -------------------------------------------------------------


def used(epoch: int, sequence: int) -> UsedNumber:
    return UsedNumber(replica_id="r1", model_id=MODEL, epoch=epoch, sequence=sequence)


@pytest.mark.parametrize(
    ("record", "number", "resync"),
    [
        (used(5, 4), (5, 4), False),
        (used(5, 5), (5, 5), True),
        (used(5, 3), (5, 3), False),
        (used(4, 9), (5, 3), False),
        (used(6, 1), (6, 1), True),
        (used(6, 2), (6, 2), True),
    ],
)
def test_an_invalid_event_leaves_its_number(
    record: UsedNumber, number: tuple[int, int], resync: bool
):
    """It counts like any other number, changes no holds, and is answered REFUSED."""
    history = producer_at(5, 3, False, embedded(B))
    applied = history.apply(record)
    assert (applied.outcome, list(applied.changes)) == (REFUSED, [])
    assert numbers(history) == (*number, resync)
    assert history.holds(B)


def test_an_invalid_events_number_can_be_a_producers_first():
    """A producer may begin with a fault; its second event is then the next in order."""
    history = History(used(1, 1))
    applied = history.apply(embedded(A, epoch=1, sequence=2))
    assert (applied.outcome, applied.resync_required) == (APPLIED, False)
    history = History(used(1, 2))
    assert history.apply(embedded(A, epoch=1, sequence=3)).resync_required


# ---- reports -------------------------------------------------------------------------------


def report(epoch: int, sequence: int, *changes: CacheEvent) -> Report:
    return Report(replica_id="r1", model_id=MODEL, epoch=epoch, sequence=sequence, changes=changes)


@pytest.mark.parametrize(
    ("record", "outcome", "number", "resync"),
    [
        (report(0, 0, embedded(A)), APPLIED, (5, 3), False),
        (report(0, 0), UNCHANGED, (5, 3), False),
        (report(5, 3, embedded(A)), APPLIED, (5, 3), False),
        (report(5, 8, embedded(A)), APPLIED, (5, 8), False),
        (report(5, 2, embedded(A)), Outcome.OVERTAKEN, (5, 3), True),
        (report(4, 9, embedded(A)), FENCED, (5, 3), True),
        (report(6, 0, embedded(A)), APPLIED, (6, 0), False),
        (report(6, 7), UNCHANGED, (6, 7), False),
    ],
)
def test_a_report_heals_and_sets_the_number(
    record: Report, outcome: Outcome, number: tuple[int, int], resync: bool
):
    """Unless a newer life is known, or the producer has used a number above the report's."""
    history = producer_at(5, 3, True, embedded(B))
    applied = history.apply(record)
    assert applied.outcome is outcome
    assert numbers(history) == (*number, resync)
    if outcome not in (APPLIED, UNCHANGED):
        assert not history.holds(A)
        assert applied.error


def test_numbering_goes_on_behind_a_report():
    """The number after the report's is the next one; a new life's report may begin at 0."""
    history = History(embedded(A, epoch=1, sequence=1), report(2, 0))
    assert not history.apply(embedded(B, epoch=2, sequence=1)).resync_required
    history.apply(report(2, 7))
    assert history.apply(embedded(B, epoch=2, sequence=7)).outcome is DUPLICATE
    assert not history.apply(embedded(B, epoch=2, sequence=8)).resync_required


@pytest.mark.parametrize(
    "record",
    [embedded(A, epoch=5, sequence=4), used(5, 4), report(5, 4), cleared(epoch=5, sequence=4)],
)
def test_numbers_are_kept_without_holds(record: Record):
    """A producer that holds nothing is known by its number all the same."""
    history = producer_at(5, 3, False)
    history.apply(record)
    history.apply(cleared())
    assert numbers(history) == (5, 4, False)
