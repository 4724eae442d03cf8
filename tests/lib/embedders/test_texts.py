"""Which texts are sent, and whose vectors go where."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.embedders import FailureKind, TextFailure
from warmindex.embedders.texts import assemble, prepare, unreadable

LIST = st.lists(st.sampled_from(["a", "b", "c", "", "  ", "\n\t", "\ud83d", " a", "a "]))


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u00a0\u2003", "\x1f"])
def test_blank_texts_are_never_sent(text: str):
    """White space of any kind is nothing to embed."""
    failure = unreadable(text)
    assert failure is not None
    assert failure.kind is FailureKind.BLANK
    assert not failure.retryable


def test_a_lone_surrogate_is_never_sent():
    """A text without a UTF-8 form fails before any request is made."""
    failure = unreadable("ok \ud83d ok")
    assert failure is not None
    assert failure.kind is FailureKind.NOT_UNICODE


@given(LIST)
def test_every_text_of_the_caller_has_exactly_one_outcome(texts: list[str]):
    """Each index is either a row of its own text or a failure; equal texts are sent once."""
    prepared = prepare(texts)
    assert len(set(prepared.unique)) == len(prepared.unique)
    vectors = {
        place: np.full(3, ord(text[0]) + len(text), dtype=np.float32)
        for place, text in enumerate(prepared.unique)
    }
    embedded = assemble(prepared, vectors, {})
    assert embedded.vectors.shape == (len(texts), 3 if prepared.unique else 0)
    assert embedded.vectors.dtype == np.float32
    assert embedded.sent_count == len(prepared.unique)
    for index, text in enumerate(texts):
        if unreadable(text) is None:
            assert (embedded.vectors[index] == ord(text[0]) + len(text)).all()
            assert embedded.valid[index]
        else:
            assert np.isnan(embedded.vectors[index]).all()
            assert not embedded.valid[index]
            assert index in embedded.failures


def test_a_failed_text_fails_at_each_of_its_indices():
    """A text that stands twice in the list fails twice, and its neighbour has its vector."""
    prepared = prepare(["bad", "good", "bad"])
    failure = TextFailure(FailureKind.REJECTED, "no")
    embedded = assemble(prepared, {1: np.ones(2, dtype=np.float32)}, {0: failure})
    assert dict(embedded.failures) == {0: failure, 2: failure}
    assert embedded.valid.tolist() == [False, True, False]


def test_nothing_is_trimmed():
    """Texts that differ in white space are different texts."""
    assert prepare(["x", "x ", " x", "x"]).unique == ("x", "x ", " x")
