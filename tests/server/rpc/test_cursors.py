"""Cursors: a revision that only the same watch of the same history can read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.index.selection import Selection
from warmindex_server.rpc.cursors import CursorScope

names = st.text(max_size=4)
selections = st.builds(
    Selection, names, names, st.frozensets(names, max_size=3), st.booleans(), st.booleans()
)


@given(names, selections, st.integers(0, 2**64 - 1))
def test_a_cursor_gives_back_its_revision(history: str, selection: Selection, revision: int):
    """Whatever the history, the selection and the revision."""
    scope = CursorScope(history, selection)
    assert scope.revision(scope.cursor(revision)) == revision


@given(names, selections, names, selections)
def test_a_cursor_is_read_by_its_own_scope_alone(
    history: str, selection: Selection, other_history: str, other_selection: Selection
):
    """Another history or another selection reads nothing out of it."""
    one = CursorScope(history, selection)
    other = CursorScope(other_history, other_selection)
    same = (history, selection) == (other_history, other_selection)
    assert (one == other) == same
    assert (other.revision(one.cursor(5)) == 5) == same


@given(st.text(max_size=60))
def test_no_other_text_is_a_cursor(text: str):
    """Nor an error."""
    assert CursorScope("h", Selection()).revision(text) is None


@pytest.mark.parametrize("cut", range(1, 33))
def test_a_cut_cursor_is_none(cut: int):
    """Neither from the front nor from the back."""
    scope = CursorScope("h", Selection())
    cursor = scope.cursor(7)
    assert scope.revision(cursor[cut:]) is None
    assert scope.revision(cursor[:-cut]) is None
    assert scope.revision(cursor + "A" * cut) is None
