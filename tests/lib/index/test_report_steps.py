"""A report that is applied a step at a time is the same report."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support import world
from support.questions import content
from warmindex.event import CacheEvent, EventType
from warmindex.index import Applied, Index, Outcome, is_large
from warmindex.index import reports as index_reports
from warmindex.record import Conditional, Record, Report

WHO = {"tenant_id": "", "model_id": "m1", "replica_id": "r1"}


def numbers(index: Index) -> list[tuple[int, int, bool, int]]:
    return [
        producer.numbers for model in index.models.values() for producer in model.producers.values()
    ]


@given(
    before=st.lists(world.embedded() | world.evicted() | world.cleared(), max_size=4),
    changes=st.lists(world.embedded(**WHO) | world.evicted(**WHO), max_size=5),
    epoch=st.sampled_from((0, 1, 2)),
    unchanged_since=st.sampled_from((None, 0, 10)),
)
@settings(deadline=None)
def test_steps_come_to_the_same(
    before: list[CacheEvent],
    changes: list[CacheEvent],
    epoch: int,
    unchanged_since: int | None,
):
    """The verdict, the changes, the numbers and the state; and the revision comes last."""
    at_once, in_steps = Index(), Index()
    revision = 0
    for revision, event in enumerate(before, 1):
        at_once.apply(revision, event)
        in_steps.apply(revision, event)
    record: Record = Report(**WHO, epoch=epoch, sequence=3, changes=tuple(changes))
    if unchanged_since is not None:
        record = Conditional(record=record, unchanged_since=unchanged_since)
    expected = at_once.apply(revision + 1, record)
    given_way = 0
    applied: Applied | None = None
    for applied in in_steps.apply_in_steps(revision + 1, record):
        if applied is None:
            given_way += 1
            assert in_steps.revision == revision
    assert applied == expected
    applies = applied.outcome in (Outcome.APPLIED, Outcome.UNCHANGED)
    assert given_way == (len(changes) if applies else 0)
    assert in_steps.revision == at_once.revision == revision + 1
    assert content(in_steps) == content(at_once)
    assert numbers(in_steps) == numbers(at_once)


def test_only_reports_are_large(monkeypatch):
    """By the hashes, or by the bytes, that they change."""
    monkeypatch.setattr(index_reports, "HASHES_AT_ONCE", 3)
    event = CacheEvent(
        type=EventType.EMBEDDED, **WHO, content_hashes=[bytes([n]) * 32 for n in range(2)]
    )
    assert not is_large(event)
    assert not is_large(Report(**WHO, changes=(event,)))
    assert is_large(Conditional(record=Report(**WHO, changes=(event, event)), unchanged_since=1))
