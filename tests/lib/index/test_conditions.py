"""Leases, reports, and records that apply only while what they were judged on still holds."""

from __future__ import annotations

from collections import Counter

import pytest
from support.history import (
    DEVICE,
    HOST,
    MODEL,
    A,
    B,
    C,
    History,
    cleared,
    embedded,
    evicted,
    rows,
)
from support.model import Effect, Hold
from support.questions import content, effects
from warmindex.errors import Reason
from warmindex.event import CacheEvent, Cause, Document, EventType
from warmindex.index import Outcome
from warmindex.record import Conditional, Lease, LeaseState, Report

LEASE = Lease(replica_id="r1", ttl_ms=5000)
LEASE_END = Lease(replica_id="r1", ttl_ms=0)


def report(*changes: CacheEvent) -> Report:
    return Report(replica_id="r1", model_id=MODEL, changes=changes)


# ---- leases --------------------------------------------------------------------------------


def test_a_leases_generation_is_the_revision_that_set_it():
    """Setting it again is a new generation, and its end leaves nothing."""
    history = History(embedded(A), LEASE)
    expected = LeaseState(replica_id="r1", ttl_ms=5000, generation=2)
    assert history.index.leases == {("", "r1"): expected}
    history.apply(Lease(replica_id="r1", ttl_ms=9000))
    assert history.index.leases["", "r1"].generation == 3
    assert history.index.leases["", "r1"].ttl_ms == 9000
    assert history.apply(LEASE_END).outcome is Outcome.APPLIED
    assert history.index.leases == {}
    assert history.apply(LEASE_END).outcome is Outcome.UNCHANGED
    assert history.holds(A), "holds go by the event that ends a lease, not with the lease"


def test_a_lease_is_of_one_tenant_and_replica():
    """Others of the same name in another tenant have their own."""
    history = History(LEASE, Lease(replica_id="r1", tenant_id="blue", ttl_ms=1000))
    history.apply(LEASE_END)
    assert list(history.index.leases) == [("blue", "r1")]


# ---- conditions ----------------------------------------------------------------------------

CLEAR = cleared(cause=Cause.LEASE)


@pytest.mark.parametrize(
    ("between", "applies"),
    [
        ([], True),
        ([embedded(B)], True),
        ([Lease(replica_id="r2", ttl_ms=1)], True),
        ([LEASE], False),
        ([LEASE_END], False),
        ([LEASE_END, LEASE], False),
    ],
)
def test_a_lease_that_ran_out_clears_only_while_it_is_the_same(
    between: list[object], applies: bool
):
    """A lease that was set again, or ended, after it was judged takes nothing away."""
    history = History(embedded(A), LEASE, *between)
    applied = history.apply(Conditional(record=CLEAR, lease_generation=2))
    assert applied.outcome is (Outcome.APPLIED if applies else Outcome.OVERTAKEN)
    assert bool(history.holds(A)) is not applies
    assert applied.resync_required is applies


def test_a_leases_end_can_be_conditional_too():
    """Only the generation that was judged is ended."""
    history = History(LEASE, LEASE)
    end = Conditional(record=LEASE_END, lease_generation=1)
    assert history.apply(end).outcome is Outcome.OVERTAKEN
    assert history.index.leases["", "r1"].generation == 2
    end = Conditional(record=LEASE_END, lease_generation=2)
    assert history.apply(end).outcome is Outcome.APPLIED
    assert history.index.leases == {}


@pytest.mark.parametrize(
    ("event", "overtakes"),
    [
        (embedded(B), True),
        (embedded(A, tier=HOST), True),
        (embedded(A, documents=[Document("x")]), True),
        (evicted(A), True),
        (cleared(), True),
        (report(embedded(B)), True),
        (embedded(A), False),
        (evicted(B), False),
        (embedded(A, epoch=1, sequence=1), False),
        (embedded(A, embeddings=rows([1, 2, 3])), False),
        (embedded(B, replica_id="r2"), False),
        (embedded(B, model_id="other"), False),
        (embedded(B, tenant_id="blue"), False),
        (report(), False),
        (LEASE, False),
    ],
)
def test_what_overtakes_a_record_is_a_change_of_the_producers_holds(event: object, overtakes: bool):
    """Not an event without effect, nor a number, nor anything that others do."""
    first = [embedded(A, embeddings=rows([1, 2])), embedded(C)]
    history = History(*first, event)
    judged = evicted(C, cause=Cause.IDLE)
    applied = history.apply(Conditional(record=judged, unchanged_since=2))
    assert applied.outcome is (Outcome.OVERTAKEN if overtakes else Outcome.APPLIED)
    assert applied.revision == history.index.revision == 4


def test_a_producer_of_which_nothing_is_known_cannot_overtake():
    """Its report is taken on whatever revision it was judged."""
    history = History(embedded(A, replica_id="r2"))
    applied = history.apply(Conditional(record=report(embedded(A)), unchanged_since=0))
    assert applied.outcome is Outcome.APPLIED


def test_a_report_that_was_overtaken_says_so():
    """Its answer names the reason that its producer is to be told."""
    history = History(embedded(A))
    applied = history.apply(Conditional(record=report(evicted(A)), unchanged_since=0))
    assert (applied.outcome, applied.reason) == (Outcome.OVERTAKEN, Reason.REPORT_OVERTAKEN)
    assert history.holds(A)


# ---- reports -------------------------------------------------------------------------------


def test_a_report_is_applied_as_one_step():
    """All of its changes have one revision, its counts are their sums, and so its effects."""
    history = History(embedded(A, B), embedded(A, adapter_id="a"))
    applied = history.apply(
        report(
            embedded(B, C, tier=HOST),
            evicted(A, tier=DEVICE, cause=Cause.REPORT),
            evicted(A, adapter_id="a", tier=DEVICE, cause=Cause.REPORT),
        )
    )
    assert (applied.outcome, applied.holds_added, applied.holds_removed) == (Outcome.APPLIED, 2, 2)
    assert applied.revision == history.index.revision == 3
    gone = frozenset({A})
    assert effects(applied) == Counter(
        [
            Effect(EventType.EMBEDDED, "own", "", HOST, frozenset({B, C})),
            Effect(EventType.EVICTED, "own", "", DEVICE, gone),
            Effect(EventType.EVICTED, "own", "a", DEVICE, gone),
        ]
    )
    assert history.holds(B) == {Hold("r1", DEVICE), Hold("r1", HOST)}


@pytest.mark.parametrize(
    "changes",
    [
        [embedded(B), embedded(C, embeddings=rows([1, 2, 3])), evicted(A)],
        [embedded(B, embeddings=rows([1, 2])), embedded(C, embeddings=rows([1]))],
        [
            embedded(B, adapter_id="new", embeddings=rows([1, 2])),
            embedded(C, adapter_id="new", embeddings=rows([1])),
        ],
        [evicted(A), embedded(A, embeddings=rows([1, 2, 3]))],
    ],
    ids=["not the partition's", "not both", "not each other's", "in place of what goes"],
)
def test_a_report_with_another_width_changes_nothing(changes: list[CacheEvent]):
    """One event that does not fit refuses all of it, and it heals nothing."""
    history = History(
        embedded(A, embeddings=rows([1, 2]), epoch=1, sequence=1), embedded(A, epoch=1, sequence=3)
    )
    before = content(history.index)
    applied = history.apply(report(*changes))
    assert (applied.outcome, applied.reason) == (Outcome.REFUSED, Reason.DIMENSIONS_MISMATCH)
    assert list(applied.changes) == []
    assert content(history.index) == before
    producer = history.index.producer("", MODEL, "r1")
    assert producer is not None
    assert producer.resync_required


def test_a_report_may_have_a_width_for_each_partition():
    """Vectors are of one width within a partition, not within a report."""
    history = History()
    applied = history.apply(
        report(
            embedded(A, embeddings=rows([1, 2])),
            embedded(A, adapter_id="a", embeddings=rows([1, 2, 3])),
            embedded(B),
        )
    )
    assert (applied.outcome, applied.holds_added) == (Outcome.APPLIED, 3)
    assert history.vector(A) == [1, 2]
