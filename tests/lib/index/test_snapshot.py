"""A snapshot is what the index was when it opened, whatever happens while it is read."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    rule,
    run_state_machine_as_test,
)
from support import world
from support.model import Place, PlainIndex
from support.questions import content, same_answers, sound
from warmindex import limits
from warmindex.event import CacheEvent, Document, EventType, PartitionKey
from warmindex.index import Index
from warmindex.index import model as index_model
from warmindex.index import snapshot as index_snapshot
from warmindex.index.selection import Selection
from warmindex.index.snapshot import Snapshot
from warmindex.record import Lease, LeaseState, ProducerState, Record, Report, UsedNumber
from warmindex.wire import event_to_wire

KEY = PartitionKey("", "m", "own", "")


class Reading:
    """A snapshot under way, the index that its parts rebuild, and what that must become."""

    def __init__(self, index: Index, plain: PlainIndex, selection: Selection | None = None) -> None:
        self.expected = copy.copy(plain)
        self.expected.entries = dict(plain.entries)
        self.expected.producers = copy.deepcopy(plain.producers)
        self.expected.leases = dict(plain.leases)
        self.selection = selection
        self.snapshot = Snapshot(index, selection)
        self.steps = self.snapshot.steps()
        self.rebuilt = Index(self.snapshot.revision)
        self.told: set[Place] = set()

    def step(self) -> bool:
        """Take one step; whether there was one."""
        parts = next(self.steps, None)
        for part in parts or ():
            self.check(part)
            self.rebuilt.restore(part)
        return parts is not None

    def check(self, part: CacheEvent | ProducerState | LeaseState) -> None:
        if not isinstance(part, CacheEvent):
            assert self.selection is None
            return
        assert part.type is EventType.EMBEDDED
        assert not part.numbered
        assert len(part.content_hashes) <= index_snapshot.EVENT_HASHES
        key = PartitionKey(part.tenant_id, part.model_id, part.hash_scheme, part.adapter_id)
        if part.embeddings is None and not part.documents:
            return
        places = {Place(key, content_hash) for content_hash in part.content_hashes}
        assert not places & self.told, "a vector or a document is told once"
        self.told |= places

    def finish(self) -> None:
        while self.step():
            pass
        self.snapshot.close()
        sound(self.rebuilt)
        if self.selection is None:
            same_answers(self.rebuilt, self.expected)
            return
        assert content(self.rebuilt) == {
            place: (
                entry.holds,
                entry.vector if self.selection.embeddings else None,
                entry.document if self.selection.documents else None,
                entry.token_count,
            )
            for place, entry in self.expected.entries.items()
            if self.selection.has_model(place.key.tenant_id, place.key.model_id)
            and self.selection.has_adapter(place.key.adapter_id)
        }


class SnapshotMachine(RuleBasedStateMachine):
    """Records and snapshots, in any order; several snapshots at once, each at its own pace."""

    readings = Bundle("readings")

    def __init__(self) -> None:
        super().__init__()
        self.index = Index()
        self.plain = PlainIndex()

    def apply(self, record: Record) -> None:
        revision = self.plain.revision + 1
        self.plain.apply(revision, record)
        self.index.apply(revision, record)

    @initialize(events=st.lists(world.embedded(), max_size=8))
    def begin(self, events: list[CacheEvent]) -> None:
        for event in events:
            self.apply(event)

    @rule(events=st.lists(world.embedded() | world.evicted(), min_size=1, max_size=4))
    def change(self, events: list[CacheEvent]) -> None:
        for event in events:
            self.apply(event)

    @rule(event=world.cleared())
    def clear(self, event: CacheEvent) -> None:
        self.apply(event)

    @rule(event=world.embedded() | world.evicted() | world.cleared(), jump=st.integers(0, 2))
    def number(self, event: CacheEvent, jump: int) -> None:
        known = self.plain.producers[event.tenant_id, event.model_id, event.replica_id]
        number = {"epoch": known.epoch or 1, "sequence": known.sequence + 1 + jump}
        self.apply(replace(event, **number))
        producer = {name: getattr(event, name) for name in ("tenant_id", "model_id", "replica_id")}
        self.apply(UsedNumber(**producer, epoch=number["epoch"], sequence=number["sequence"] + 1))

    @rule(event=world.embedded())
    def report(self, event: CacheEvent) -> None:
        producer = {name: getattr(event, name) for name in ("tenant_id", "model_id", "replica_id")}
        self.apply(Report(**producer, changes=(event,)))

    @rule(replica=world.replicas, tenant=world.tenants, ttl=st.sampled_from((0, 1000, 5000)))
    def lease(self, replica: str, tenant: str, ttl: int) -> None:
        self.apply(Lease(replica_id=replica, tenant_id=tenant, ttl_ms=ttl))

    @rule(steps=st.integers(1, 6))
    def reclaim(self, steps: int) -> None:
        for _ in range(steps):
            self.index.reclaim_step()

    @rule(target=readings)
    def open(self) -> Reading:
        return Reading(self.index, self.plain)

    @rule(
        target=readings,
        tenant=world.tenants,
        model=st.sampled_from(("", *world.MODELS)),
        adapters=st.frozensets(world.adapters, max_size=2),
        embeddings=st.booleans(),
        documents=st.booleans(),
    )
    def open_part(
        self, tenant: str, model: str, adapters: frozenset[str], embeddings: bool, documents: bool
    ) -> Reading:
        selection = Selection(tenant, model, adapters, embeddings, documents)
        return Reading(self.index, self.plain, selection)

    @rule(reading=readings, steps=st.integers(1, 8))
    def read(self, reading: Reading, steps: int) -> None:
        for _ in range(steps):
            reading.step()

    @rule(reading=consumes(readings))
    def finish(self, reading: Reading) -> None:
        reading.finish()

    @rule(reading=consumes(readings))
    def give_up(self, reading: Reading) -> None:
        reading.snapshot.close()
        reading.snapshot.close()

    def teardown(self) -> None:
        same_answers(self.index, self.plain)
        sound(self.index)


@pytest.fixture
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of two entries, so that small indexes take many."""
    monkeypatch.setattr(index_model, "SWEEP_STEP_ENTRIES", 2)
    monkeypatch.setattr(index_snapshot, "WINDOW", 2)
    monkeypatch.setattr(index_snapshot, "EVENT_HASHES", 3)


@pytest.mark.usefixtures("_small_steps")
def test_a_snapshot_rebuilds_the_index_it_was_opened_on():
    """Whatever is changed between its steps, and whatever other snapshots are open."""
    run_state_machine_as_test(
        SnapshotMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )


@pytest.mark.slow
@pytest.mark.usefixtures("_small_steps")
def test_a_snapshot_rebuilds_the_index_it_was_opened_on_for_long():
    """The same over more and longer histories."""
    run_state_machine_as_test(
        SnapshotMachine,
        settings=settings(max_examples=200, stateful_step_count=60, deadline=None),
    )


def embedded(hashes: list[bytes], replica_id: str = "r", **fields: Any) -> CacheEvent:
    return CacheEvent(
        type=EventType.EMBEDDED,
        replica_id=replica_id,
        model_id=KEY.model_id,
        hash_scheme=KEY.hash_scheme,
        content_hashes=hashes,
        **fields,
    )


def keys(count: int) -> list[bytes]:
    return [number.to_bytes(64, "big") for number in range(count)]


def events_of(index: Index) -> list[CacheEvent]:
    with Snapshot(index) as snapshot:
        return [part for step in snapshot.steps() for part in step if isinstance(part, CacheEvent)]


def test_an_event_has_at_most_as_many_hashes_as_an_event_may():
    """Ten thousand keys of two holders come in events of 4096."""
    index = Index()
    for start in range(0, 10_000, 1000):
        for replica_id in ("a", "b"):
            index.apply(
                index.revision + 1, embedded(keys(10_000)[start : start + 1000], replica_id)
            )
    counts = sorted(len(event.content_hashes) for event in events_of(index))
    assert counts == sorted(2 * [limits.CONTENT_HASHES_MAX, limits.CONTENT_HASHES_MAX, 1808])


def test_an_event_with_the_widest_vectors_and_the_longest_texts_fits_a_message():
    """Cut by the bytes of vectors and texts; one key alone always fits."""
    index = Index()
    long = Document("n" * limits.DOCUMENT_NAME_BYTES_MAX, "é" * (32 * limits.KIB))
    for content_hash in keys(80):
        matrix = np.ones((1, limits.DIMENSIONS_MAX), np.float32)
        event = embedded([content_hash], embeddings=matrix, documents=[long])
        index.apply(index.revision + 1, event)
    events = events_of(index)
    assert sum(len(event.content_hashes) for event in events) == 80
    assert len(events) < 20
    assert all(event_to_wire(event).ByteSize() <= limits.EVENT_BYTES_MAX for event in events)


def test_entries_with_and_without_a_vector_a_document_a_count_come_apart():
    """An event has one row for each of its hashes, and one token count."""
    index = Index()
    one, two, three = keys(3)
    index.apply(1, embedded([one, two], token_count=16))
    index.apply(2, embedded([two], embeddings=np.ones((1, 2), np.float32)))
    index.apply(3, embedded([three], token_count=7, documents=[Document("three")]))
    rebuilt = Index(3)
    for event in events_of(index):
        rebuilt.restore(event)
    assert content(rebuilt) == content(index)


def test_what_was_put_aside_goes_with_the_last_snapshot_that_needs_it():
    """A closed snapshot costs nothing; one that is open keeps what it needs and no more."""
    index = Index()
    index.apply(1, embedded(keys(100)))
    old, new = Snapshot(index), None
    index.apply(2, embedded(keys(100), "other"))
    first = index.versions.layer
    assert first is not None
    new = Snapshot(index)
    index.apply(3, embedded(keys(100), "third"))
    second = index.versions.layer
    assert second is not first
    assert sum(len(image.bits) for image in first.images.values()) == 100
    old.close()
    assert index.versions.layer is second
    new.close()
    assert index.versions.layer is None
    index.apply(4, embedded(keys(100), "fourth"))
    assert index.versions.layer is None


def test_snapshots_opened_together_share_what_is_put_aside():
    """A hundred watchers that begin at once cost a publisher what one does."""
    index = Index()
    index.apply(1, embedded(keys(3)))
    snapshots = [Snapshot(index) for _ in range(100)]
    index.apply(2, embedded(keys(3), "other"))
    layer = index.versions.layer
    assert layer is not None
    assert layer.newer is None
    assert all(snapshot._layer is layer for snapshot in snapshots)
    for snapshot in snapshots:
        snapshot.close()
