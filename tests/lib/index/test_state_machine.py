"""The index against the plain model, step by step, whatever comes in whatever order.

Three indexes get the same records and differ in when they reclaim: one at arbitrary points,
one at once, one never. A fourth is a mirror: it gets the effects of the first and nothing
else. All of them must have what the plain model has.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support import world
from support.model import PlainIndex, Verdict, partition_of
from support.questions import content, effects, same_answers, same_route, sound, vectors
from warmindex.event import CacheEvent, Cause, EventType, PartitionKey, Tier
from warmindex.index import Applied, Index, Outcome
from warmindex.index import model as index_model
from warmindex.index.index import Query
from warmindex.index.search import SearchOptions
from warmindex.record import Conditional, Lease, Record, Report, UsedNumber

# How an event is numbered: without, the next, a repeat, a gap, a new life, an old one.
NUMBERINGS = ("none", "none", "next", "next", "repeat", "gap", "new life", "new gap", "old life")


class IndexMachine(RuleBasedStateMachine):
    """One world of records; see the module's text."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = PlainIndex()
        self.index = Index()
        self.eager = Index()
        self.lazy = Index()
        self.mirror = Index()
        self.revision = 0

    # ---- records -----------------------------------------------------------------------

    @rule(event=world.embedded() | world.embedded(tenant_id="", model_id="m1"))
    def embed(self, event: CacheEvent) -> None:
        self.apply(event)

    @rule(event=world.evicted())
    def evict(self, event: CacheEvent) -> None:
        self.apply(event)

    @rule(event=world.cleared())
    def clear(self, event: CacheEvent) -> None:
        self.apply(event)

    @precondition(lambda self: self.plain.entries)
    @rule(data=st.data(), clear=st.booleans())
    def remove_what_is_there(self, data: st.DataObject, clear: bool) -> None:
        """A removal that surely removes: all of a replica's, or some of one partition's."""
        place = data.draw(st.sampled_from(sorted(self.plain.entries)))
        hold = data.draw(st.sampled_from(sorted(self.plain.entries[place].holds)))
        names = {**place.key._asdict(), "replica_id": hold.replica_id}
        if clear:
            self.apply(CacheEvent(type=EventType.ALL_CLEARED, **names))
            return
        neighbours = [other.content_hash for other in self.plain.entries if other.key == place.key]
        others = data.draw(st.lists(st.sampled_from(neighbours)))
        self.apply(
            CacheEvent(
                type=EventType.EVICTED,
                **names,
                adapter_scoped=True,
                content_hashes=[place.content_hash, *others],
                tier=data.draw(st.sampled_from((hold.tier, Tier.UNSPECIFIED))),
            )
        )

    @rule(
        event=world.embedded() | world.evicted() | world.cleared(cause=Cause.NONE),
        numbering=st.sampled_from(NUMBERINGS),
        jump=st.integers(2, 4),
        valid=st.sampled_from((True, True, True, False)),
    )
    def number(self, event: CacheEvent, numbering: str, jump: int, valid: bool) -> None:
        """Number an event, or use the number alone, as an event does that was invalid."""
        known = self.plain.producers[event.tenant_id, event.model_id, event.replica_id]
        epoch, sequence = {
            "none": (0, 0),
            "next": (known.epoch, known.sequence + 1),
            "repeat": (known.epoch, max(known.sequence - jump + 2, 1)),
            "gap": (known.epoch, known.sequence + jump),
            "new life": (known.epoch + jump, 1),
            "new gap": (known.epoch + 1, jump),
            "old life": (known.epoch - 1, jump),
        }[numbering]
        if epoch <= 0:
            epoch = sequence = 0
        if valid:
            self.apply(dataclasses.replace(event, epoch=epoch, sequence=sequence))
        elif epoch:
            self.apply(
                UsedNumber(
                    replica_id=event.replica_id,
                    model_id=event.model_id,
                    tenant_id=event.tenant_id,
                    epoch=epoch,
                    sequence=sequence,
                )
            )

    @rule(replica=world.replicas, tenant=world.tenants, ttl=st.sampled_from((0, 1000, 5000)))
    def lease(self, replica: str, tenant: str, ttl: int) -> None:
        self.apply(Lease(replica_id=replica, tenant_id=tenant, ttl_ms=ttl))

    @rule(
        data=st.data(),
        tenant=world.tenants,
        model=world.models,
        replica=world.replicas,
        ahead=st.sampled_from((None, (0, 0), (0, 0), (0, 3), (1, 0), (0, -1), (-1, 0))),
        removals_first=st.booleans(),
    )
    def report(
        self,
        data: st.DataObject,
        tenant: str,
        model: str,
        replica: str,
        ahead: tuple[int, int] | None,
        removals_first: bool,
    ) -> None:
        """Replace all that a producer holds by something else, in one step."""
        producer = {"tenant_id": tenant, "model_id": model, "replica_id": replica}
        listed = data.draw(st.lists(world.embedded(**producer), max_size=3))
        known = self.plain.producers[tenant, model, replica]
        epoch, sequence = 0, 0
        if ahead is not None and known.epoch + ahead[0] > 0:
            epoch = known.epoch + ahead[0]
            sequence = max(0, known.sequence + ahead[1]) if ahead[0] == 0 else 0
        parts = [listed, list(self.unlisted(listed, producer))]
        report = Report(
            **producer,
            epoch=epoch,
            sequence=sequence,
            changes=tuple(chain(*reversed(parts) if removals_first else parts)),
        )
        verdict = self.apply(report)
        if verdict.outcome in (Outcome.APPLIED, Outcome.UNCHANGED):
            held = self.plain.held_by(tenant, model, replica)
            assert {(place.key, place.content_hash, tier) for place, tier in held} == {
                (partition_of(event), content_hash, event.tier)
                for event in listed
                for content_hash in event.content_hashes
            }

    def unlisted(self, listed: list[CacheEvent], producer: dict[str, str]) -> Iterator[CacheEvent]:
        """The EVICTED events for what a producer holds and a report does not list."""
        kept = {
            (partition_of(event), event.tier, h) for event in listed for h in event.content_hashes
        }
        held = self.plain.held_by(
            producer["tenant_id"], producer["model_id"], producer["replica_id"]
        )
        for place, tier in sorted(held):
            if (place.key, tier, place.content_hash) not in kept:
                yield CacheEvent(
                    type=EventType.EVICTED,
                    **producer,
                    hash_scheme=place.key.hash_scheme,
                    adapter_id=place.key.adapter_id,
                    adapter_scoped=True,
                    content_hashes=[place.content_hash],
                    tier=tier,
                    cause=Cause.REPORT,
                )

    @rule(
        data=st.data(),
        event=world.cleared(cause=Cause.LEASE) | world.evicted(cause=Cause.IDLE),
        generation=st.sampled_from(("any", "known", "another")),
        age=st.sampled_from((None, 0, 1, 5)),
    )
    def judge(
        self, data: st.DataObject, event: CacheEvent, generation: str, age: int | None
    ) -> None:
        """What a server does by itself, on a state that may have changed since."""
        known = self.plain.leases.get((event.tenant_id, event.replica_id))
        number = {
            "any": None,
            "known": known[0] if known else None,
            "another": known[0] + 1 if known else 1,
        }[generation]
        ends_lease = Lease(replica_id=event.replica_id, tenant_id=event.tenant_id, ttl_ms=0)
        self.apply(
            Conditional(
                record=data.draw(st.sampled_from((event, event, ends_lease))),
                lease_generation=number,
                unchanged_since=None if age is None else max(0, self.revision - age),
            )
        )

    # ---- between records ---------------------------------------------------------------

    @precondition(lambda self: self.index._to_sweep)
    @rule(steps=st.integers(1, 6))
    def reclaim(self, steps: int) -> None:
        """Give back a little, and no more than a little: the rest comes between records."""
        for _ in range(steps):
            self.index.reclaim_step()

    @rule(
        key=world.partition_keys,
        text=st.sampled_from(("", "database", "send mail")),
        first=st.sampled_from((None, 1.0, -2.5)),
    )
    def search(self, key: PartitionKey, text: str, first: float | None) -> None:
        """Every entry that has what is asked for is found, none that has gone, and alike."""
        there = {p.content_hash: e for p, e in self.plain.entries.items() if p.key == key}
        width = self.plain.dimensions(key) or 2
        embedding = None if first is None else np.full(width, first, dtype=np.float32)
        query = Query(embedding, text, limit=100, max_distance=2.0)
        expected = {
            content_hash
            for content_hash, entry in there.items()
            if (embedding is not None and entry.vector)
            or any(word in " ".join(entry.document or ()) for word in text.split())
        }
        answers = []
        for index in (self.index, self.eager, self.lazy):
            hits = index.search(key, query, SearchOptions())
            assert {hit.content_hash for hit in hits} == expected
            model = index.models.get((key.tenant_id, key.model_id))
            # Words are weighed by how many documents have them, and those of retired entries
            # count until they are reclaimed.
            if not text or model is None or not model.holders.retired:
                answers.append(hits)
        assert all(hits == answers[0] for hits in answers)

    @rule(
        key=world.partition_keys,
        chains=st.dictionaries(
            world.schemes,
            st.lists(st.integers(0, 3).map(lambda n: world.CHAIN_HASHES[n]), max_size=6),
            max_size=3,
        )
        | st.integers(1, 8).map(lambda count: {world.CHAIN: world.CHAIN_HASHES[:count]}),
        limit=st.integers(0, 2),
        replica_ids=st.sets(st.sampled_from((*world.REPLICAS, "nobody")), max_size=2),
    )
    def look_up(
        self, key: PartitionKey, chains: dict[str, list[bytes]], limit: int, replica_ids: set[str]
    ) -> None:
        for index in (self.index, self.eager, self.lazy, self.mirror):
            same_route(index, self.plain, key, chains, limit=limit, replica_ids=replica_ids)

    @rule(key=world.partition_keys, rows_max=st.integers(1, 16))
    def fetch(self, key: PartitionKey, rows_max: int) -> None:
        """Vectors come back bit for bit, in the order asked for, and none of retired entries."""
        asked = [*world.HASHES[key.hash_scheme], *world.HASHES[key.hash_scheme]]
        expected = vectors(self.plain, key, asked)
        rows = [row for row in expected if row is not None][:rows_max]
        for index in (self.index, self.eager, self.lazy, self.mirror):
            fetched = index.fetch(key, asked, rows_max * 4 * self.plain.dimensions(key))
            assert fetched.found == [row is not None for row in expected]
            assert fetched.values == b"".join(rows)
            assert fetched.rows == len(rows)
            if rows:
                assert fetched.dimensions == self.plain.dimensions(key)

    def apply_in_steps(self, record: Record) -> Applied:
        """As a server does with large reports; what is retired may go in between."""
        steps = []
        for step in self.eager.apply_in_steps(self.revision, record):
            steps.append(step)
            self.eager.reclaim_step()
        assert not any(steps[:-1])
        return steps[-1]

    @invariant()
    def everything_is_as_in_the_model(self) -> None:
        for index in (self.index, self.eager, self.lazy):
            same_answers(index, self.plain)
            sound(index)
            for adapter_id in world.ADAPTERS[:2]:
                key = PartitionKey("", "m1", world.CHAIN, adapter_id)
                same_route(index, self.plain, key, {world.CHAIN: world.CHAIN_HASHES})
        assert_reclaimed(self.eager)
        assert content(self.mirror) == self.plain.entries
        sound(self.mirror)

    def teardown(self) -> None:
        """What was retired can be given back, whatever the sweeps met."""
        for index in (self.index, self.lazy, self.mirror):
            while index.reclaim_step():
                pass
            assert_reclaimed(index)
            assert content(index) == self.plain.entries
            sound(index)

    # ---- how it is done ----------------------------------------------------------------

    def apply(self, record: Record) -> Verdict:
        """Apply a record everywhere, and compare what each says of it."""
        self.revision += 1
        expected = self.plain.apply(self.revision, record)
        for index in (self.index, self.eager, self.lazy):
            if index is self.eager:
                applied = self.apply_in_steps(record)
            else:
                applied = index.apply(self.revision, record)
            assert verdict_of(applied) == expected._replace(effects=())
            assert effects(applied) == Counter(expected.effects)
            assert applied.revision == self.revision
            if index is self.index:
                for change in applied.changes:
                    self.mirror.apply(self.revision, change.as_event())
        while self.eager.reclaim_step():
            pass
        return expected


def assert_reclaimed(index: Index) -> None:
    for model in index.models.values():
        assert not model.holders.retired
        for scope in model.schemes.values():
            for partition in scope.partitions.values():
                assert partition.entries
                assert not any(bits & ~model.holders.live for bits in partition.entries.values())


def verdict_of(applied: Applied) -> Verdict:
    return Verdict(
        applied.outcome,
        applied.resync_required,
        applied.holds_added,
        applied.holds_removed,
        applied.vectors_replaced,
        applied.current_epoch,
    )


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of two entries, so that a sweep of a small index takes many."""
    monkeypatch.setattr(index_model, "SWEEP_STEP_ENTRIES", 2)


def test_the_index_is_the_plain_model():
    """Whatever records come, three indexes and a mirror have what the plain model has."""
    run_state_machine_as_test(
        IndexMachine,
        settings=settings(max_examples=60, stateful_step_count=30, deadline=None),
    )


@pytest.mark.slow
def test_the_index_is_the_plain_model_for_long():
    """The same over more and longer histories."""
    run_state_machine_as_test(
        IndexMachine,
        settings=settings(
            max_examples=200,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
