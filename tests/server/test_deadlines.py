"""Deadlines against a dictionary of the same items."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from warmindex_server import deadlines
from warmindex_server.deadlines import Deadlines, Timed


class DeadlineMachine(RuleBasedStateMachine):
    """Items are put in, moved, dropped; those that are due come out once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.deadlines: Deadlines[Timed] = Deadlines()
        self.there: list[Timed] = []

    @rule(delay_s=st.integers(0, 20))
    def put(self, delay_s: int) -> None:
        item = Timed(self.now_s + delay_s)
        self.deadlines.put(item)
        self.there.append(item)

    @rule(data=st.data(), delay_s=st.integers(0, 20))
    def move(self, data: st.DataObject, delay_s: int) -> None:
        if self.there:
            item = data.draw(st.sampled_from(self.there))
            item.due_s = self.now_s + delay_s
            self.deadlines.put(item)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        if self.there:
            item = data.draw(st.sampled_from(self.there))
            self.deadlines.drop(item)
            self.there.remove(item)
            self.deadlines.drop(item)

    @rule(seconds=st.integers(0, 10), most=st.integers(1, 4))
    def look(self, seconds: int, most: int) -> None:
        self.now_s += seconds
        due = [item for item in self.there if item.due_s <= self.now_s]
        found = self.deadlines.due(self.now_s, most)
        assert len(found) == min(most, len(due))
        assert set(found) <= set(due)
        for item in found:
            self.there.remove(item)

    @invariant()
    def nothing_is_overlooked(self) -> None:
        """The next look comes no later than the first item is due."""
        if self.there:
            next_s = self.deadlines.next_s
            assert next_s is not None
            assert next_s <= min(item.due_s for item in self.there)

    @invariant()
    def the_heap_stays_small(self) -> None:
        assert len(self.deadlines._heap) <= max(deadlines.STALE_MIN, 2 * len(self.there)) + 1

    def teardown(self) -> None:
        self.now_s += 100
        assert set(self.deadlines.due(self.now_s, 10**6)) == set(self.there)
        assert self.deadlines.next_s is None


def test_deadlines_are_as_in_a_dictionary(monkeypatch):
    """Whatever is moved and dropped, what is due comes out, and nothing piles up."""
    monkeypatch.setattr(deadlines, "STALE_MIN", 3)
    run_state_machine_as_test(
        DeadlineMachine, settings=settings(max_examples=100, stateful_step_count=40, deadline=None)
    )
