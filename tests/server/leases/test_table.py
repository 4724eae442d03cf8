"""The rules of leases, on a clock that tests move."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from warmindex.record import LeaseState
from warmindex_server.leases.table import LeaseTable
from warmindex_server.replicas import Heard, ReplicaKey

KEYS: tuple[ReplicaKey, ...] = (("", "a"), ("", "b"), ("t", "a"))
keys = st.sampled_from(KEYS)


class LeaseMachine(RuleBasedStateMachine):
    """Leases against a dictionary of (generation, ttl, when it was last heard or set)."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.heard = Heard(lambda: self.now_s)
        self.table = LeaseTable(self.heard.last_s)
        self.model: dict[ReplicaKey, tuple[int, float, float]] = {}
        self.generation = 0

    @rule(key=keys, ttl_s=st.sampled_from((1.0, 2.0, 10.0)))
    def set(self, key: ReplicaKey, ttl_s: float) -> None:
        self.generation += 1
        self.table.set(
            LeaseState(
                tenant_id=key[0],
                replica_id=key[1],
                ttl_ms=int(ttl_s * 1000),
                generation=self.generation,
            ),
            self.now_s,
        )
        self.model[key] = (self.generation, ttl_s, self.now_s)

    @rule(key=keys)
    def hear(self, key: ReplicaKey) -> None:
        self.heard.note(key)
        if key in self.model:
            self.model[key] = (*self.model[key][:2], self.now_s)

    @rule(key=keys)
    def end(self, key: ReplicaKey) -> None:
        self.table.end(key)
        self.model.pop(key, None)

    @rule()
    def held_up(self) -> None:
        self.table.begin_again(self.now_s)
        self.model = {key: (*lease[:2], self.now_s) for key, lease in self.model.items()}

    @rule(seconds=st.sampled_from((0.5, 1.0, 3.0, 12.0)), ended=st.booleans())
    def time_passes(self, seconds: float, ended: bool) -> None:
        self.now_s += seconds
        for key, (_, ttl_s, since_s) in self.model.items():
            assert self.table.ends_s(key) == since_s + ttl_s
        over = self.table.over(self.now_s)
        assert {lease.key: lease.generation for lease in over} == {
            key: generation
            for key, (generation, ttl_s, since_s) in self.model.items()
            if since_s + ttl_s <= self.now_s
        }
        for lease in over:
            if ended:
                self.end(lease.key)
            else:
                self.table.put_back(lease, self.now_s)

    def teardown(self) -> None:
        for key in KEYS:
            if key not in self.model:
                assert self.table.ends_s(key) is None


def test_leases_end_when_nothing_was_heard_for_their_time():
    """Setting, hearing, ending and being held up, in any order."""
    run_state_machine_as_test(
        LeaseMachine, settings=settings(max_examples=100, stateful_step_count=40, deadline=None)
    )


def test_who_is_worked_for_is_heard():
    """While a replica's message is under way it is heard from, and then it was just now."""
    now_s = 0.0
    heard = Heard(lambda: now_s)
    with heard.during([("", "a")]), heard.during([("", "a")]):
        now_s = 50.0
        assert heard.last_s(("", "a")) == 50.0
    now_s = 60.0
    assert heard.last_s(("", "a")) == 50.0
    assert heard.ago_s(("", "a")) == 10.0
    assert heard.ago_s(("", "b")) is None


def test_after_a_start_each_lease_runs_anew():
    """For its whole time, whatever had been heard before."""
    table = LeaseTable(Heard(lambda: 0.0).last_s)
    states = [
        LeaseState(replica_id=name, tenant_id="", ttl_ms=ttl_ms, generation=5)
        for name, ttl_ms in (("a", 1000), ("b", 5000))
    ]
    table.begin_all(states, 70.0)
    assert table.over(70.9) == []
    assert [lease.key for lease in table.over(71.0)] == [("", "a")]
    table.begin_all(states[1:], 72.0)
    assert table.ends_s(("", "a")) is None
    assert table.ends_s(("", "b")) == 77.0
