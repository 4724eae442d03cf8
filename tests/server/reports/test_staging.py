"""What a report comes to, against the plain model of the index."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import world
from support.model import PlainIndex, partition_of
from support.questions import content
from warmindex import limits
from warmindex.errors import FencedError, OvertakenError, QuotaError
from warmindex.event import CacheEvent, Cause, EventType, Tier
from warmindex.index import Index, Outcome
from warmindex.record import Report
from warmindex_server.reports import additions, staging
from warmindex_server.reports.additions import Additions
from warmindex_server.reports.staging import Budget, StagedReport

WHO = {"tenant_id": "", "model_id": "m1", "replica_id": "r1"}
ADDRESSED = {"tenant_id": "", "model_id": "m1"}


def one_width(events: list[CacheEvent]) -> list[CacheEvent]:
    return [each for each in events if each.embeddings is None or each.embeddings.shape[1] == 2]


async def nothing() -> None:
    await asyncio.sleep(0)


async def difference(index: Index, entries: list[CacheEvent], head: Report | None = None) -> Report:
    """The record of a report of these entries."""
    budget = Budget()
    staged = StagedReport(index, head or Report(**WHO), budget)
    for entry in entries:
        await staged.add(entry)
    record = await staged.record(nothing)
    staged.drop()
    assert budget.bytes == 0
    assert record.unchanged_since == index.revision
    assert isinstance(record.record, Report)
    return record.record


@given(
    before=st.lists(
        world.embedded(**WHO) | world.embedded(**ADDRESSED) | world.evicted(**WHO), max_size=6
    ),
    cleared=st.booleans(),
    entries=st.lists(world.embedded(**WHO), max_size=5),
)
@settings(deadline=None, max_examples=100)
def test_after_a_report_the_producer_holds_what_it_lists(
    before: list[CacheEvent], cleared: bool, entries: list[CacheEvent]
):
    """Nothing else, with the vectors, documents and counts told last; and it is the least."""
    index, plain = Index(), PlainIndex()
    before, entries = one_width(before), one_width(entries)
    if cleared:
        before.insert(3, CacheEvent(type=EventType.ALL_CLEARED, **WHO))
    for revision, event in enumerate(before, 1):
        index.apply(revision, event)
        plain.apply(revision, event)
    report = asyncio.run(difference(index, entries))
    listed = {
        (partition_of(entry), each, entry.tier)
        for entry in entries
        for each in entry.content_hashes
    }
    held = {(place.key, place.content_hash, tier) for place, tier in plain.held_by("", "m1", "r1")}
    revision = len(before) + 1
    for entry in entries:
        plain.apply(revision, entry)
    for key, content_hash, tier in held - listed:
        plain.apply(
            revision,
            CacheEvent(
                type=EventType.EVICTED,
                **WHO,
                hash_scheme=key.hash_scheme,
                adapter_id=key.adapter_id,
                adapter_scoped=True,
                content_hashes=[content_hash],
                tier=tier,
            ),
        )
    applied = index.apply(revision, report)
    assert content(index) == plain.entries
    assert applied.holds_added == len(listed - held)
    assert applied.holds_removed == len(held - listed)
    assert {event.cause for event in report.changes} <= {Cause.NONE, Cause.REPORT}
    again = asyncio.run(difference(index, entries))
    contested = len({(key, each) for key, each, _ in listed}) < sum(
        len(set(entry.content_hashes)) for entry in entries
    )
    if not contested:
        assert again.changes == ()


@given(entries=st.lists(world.embedded(**WHO), max_size=8), limit=st.sampled_from((4, 6, 4096)))
@settings(deadline=None)
def test_events_put_together_say_what_their_parts_said(entries: list[CacheEvent], limit: int):
    """However entries are grouped, each key ends as it was told last."""
    entries = one_width(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additions.limits, "CONTENT_HASHES_MAX", 8)
        patch.setattr(additions, "EVENT_BYTES", limit * 8)
        together = Additions("r1", "m1", "")
        for entry in entries:
            together.add(entry)
        events = together.events()
    one_by_one, grouped = Index(), Index()
    for revision, event in enumerate(entries, 1):
        one_by_one.apply(revision, event)
    for revision, event in enumerate(events, 1):
        grouped.apply(revision, event)
    assert content(grouped) == content(one_by_one)


def embedded(count: int, start: int = 0, **fields: object) -> CacheEvent:
    hashes = [(start + number).to_bytes(32, "big") for number in range(count)]
    return CacheEvent(type=EventType.EMBEDDED, **WHO, content_hashes=hashes, **fields)


async def test_small_entries_become_large_events():
    """A producer that lists its keys one by one costs no more than one that does not."""
    report = await difference(Index(), [embedded(1, number) for number in range(5000)])
    assert [len(event.content_hashes) for event in report.changes] == [4096, 904]
    wide = np.ones((1, 1024), dtype=np.float32)
    report = await difference(Index(), [embedded(1, n, embeddings=wide) for n in range(600)])
    assert all(event.embeddings.nbytes <= 2 * limits.MIB for event in report.changes)
    assert len(report.changes) == 2


async def test_what_is_listed_again_and_again_is_packed(monkeypatch: pytest.MonkeyPatch):
    """The memory of a report goes with what the producer holds, not with what it sends."""
    monkeypatch.setattr(staging, "REPEATS_MAX", 100)
    index = Index()
    index.apply(1, embedded(10))
    staged = StagedReport(index, Report(**WHO), Budget())
    for _ in range(100):
        await staged.add(embedded(10))
    (bag,) = staged._kept.values()
    assert len(bag) <= 130
    assert (await staged.record(nothing)).record.changes == ()


async def test_vectors_that_are_there_are_not_kept():
    """Only those that the index lacks, or has otherwise, to the last bit."""
    rows = np.ones((3, 4), dtype=np.float32)
    rows[2] = 0.0
    rows[2, 0] = 1.0
    index = Index()
    index.apply(1, embedded(3, embeddings=rows))
    assert (await difference(index, [embedded(3, embeddings=rows)])).changes == ()
    rows = rows.copy()
    rows[2, 1] = -0.0
    (change,) = (await difference(index, [embedded(3, embeddings=rows)])).changes
    assert change.content_hashes == [(2).to_bytes(32, "big")]
    assert change.embeddings.tobytes() == rows[2].tobytes()


async def test_a_large_difference_is_taken_in_steps(monkeypatch: pytest.MonkeyPatch):
    """Others have their turn while the keys of a partition are gone through."""
    index = Index()
    for start in range(0, 20_000, 4000):
        index.apply(start + 1, embedded(4000, start))
        index.apply(start + 2, embedded(4000, start, tier=Tier.HOST))
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1
        await asyncio.sleep(0)

    staged = StagedReport(index, Report(**WHO), Budget())
    for start in range(0, 12_000, 4000):
        await staged.add(embedded(4000, start))
    record = (await staged.record(turn)).record
    gone = [(event.tier, each) for event in record.changes for each in event.content_hashes]
    assert sorted(gone) == [
        *((Tier.DEVICE, number.to_bytes(32, "big")) for number in range(12_000, 20_000)),
        *((Tier.HOST, number.to_bytes(32, "big")) for number in range(20_000)),
    ]
    assert turns >= 10
    assert index.apply(99_999, record).holds_removed == 28_000


async def test_a_report_that_adds_too_much_is_refused(monkeypatch: pytest.MonkeyPatch):
    """By itself, or together with others; what it has taken is given back."""
    monkeypatch.setattr(staging, "REPORT_BYTES_MAX", 1000)
    budget = Budget(1500)
    first = StagedReport(Index(), Report(**WHO), budget)
    with pytest.raises(QuotaError, match="publish what it lists"):
        await first.add(embedded(20))
    first.drop()
    first, second = (StagedReport(Index(), Report(**WHO), budget) for _ in range(2))
    await first.add(embedded(10))
    with pytest.raises(QuotaError, match="later"):
        await second.add(embedded(10))
    second.drop()
    first.drop()
    assert budget.bytes == 0


def test_a_report_that_cannot_apply_ends_at_once():
    """A newer life, a higher number, a changed hold, another index."""
    index = Index()
    numbered = embedded(1, epoch=5, sequence=7)
    index.apply(1, numbered)
    for head, error in (
        (Report(**WHO, epoch=4, sequence=9), FencedError),
        (Report(**WHO, epoch=5, sequence=6), OvertakenError),
    ):
        with pytest.raises(error):
            StagedReport(index, head, Budget())
    staged = StagedReport(index, Report(**WHO, epoch=5, sequence=7), Budget())
    index.apply(2, embedded(1))
    staged.check(index)
    index.apply(3, embedded(1, 9))
    with pytest.raises(OvertakenError):
        staged.check(index)
    staged = StagedReport(index, Report(**WHO), Budget())
    with pytest.raises(OvertakenError, match="loaded"):
        staged.check(Index())


async def test_the_condition_is_judged_where_it_is_applied():
    """What was published after the header makes the record a no-op, on every server alike."""
    index = Index()
    index.apply(1, embedded(3))
    staged = StagedReport(index, Report(**WHO), Budget())
    record = await staged.record(nothing)
    index.apply(2, embedded(1, 50))
    applied = index.apply(3, record)
    assert applied.outcome is Outcome.OVERTAKEN
    assert len(content(index)) == 4
