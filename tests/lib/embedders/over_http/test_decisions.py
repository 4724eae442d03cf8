"""What follows from an answer: the table of decisions, and the books of a call."""

from __future__ import annotations

import numpy as np
import pytest
from warmindex.embedders import (
    BackendUnavailableError,
    BadAnswerError,
    FailureKind,
    MisconfiguredError,
    UnauthorizedError,
)
from warmindex.embedders.over_http.answers import Judgement, Verdict
from warmindex.embedders.over_http.decisions import (
    Action,
    decide,
    error_of,
    failure_kind,
    tries_of_half,
)
from warmindex.embedders.over_http.decode import Rows
from warmindex.embedders.over_http.ledger import HOPELESS, Ledger
from warmindex.embedders.over_http.retry import BUILD

R, S, F, L = Action.RETRY, Action.SPLIT, Action.FAIL, Action.LEAVE


@pytest.mark.parametrize(
    ("verdict", "alone", "several"),
    [
        (Verdict.TOO_MANY, [F], [S]),
        (Verdict.BODY_TOO_BIG, [F], [S]),
        (Verdict.TEXT_TOO_LONG, [F], [S]),
        (Verdict.REFUSED, [F], [S]),
        (Verdict.BROKEN, [R, F], [R, S]),
        (Verdict.BAD_ANSWER, [R, F], [R, S]),
        (Verdict.BUSY, [R, R, R, R, R, F], [R, S, R, R, R, F]),
        (Verdict.SILENT, [R, R, F], [R, S, F]),
        (Verdict.AWAY, [R, R, R, R, R, F], [R, R, R, R, R, F]),
        (Verdict.UNAUTHORIZED, [L], [L]),
        (Verdict.MISCONFIGURED, [L], [L]),
    ],
)
def test_each_verdict_leads_to_its_action(
    verdict: Verdict, alone: list[Action], several: list[Action]
):
    """After the first, second, … request for a batch of one and of several texts."""
    assert [decide(verdict, 1, tries + 1, BUILD) for tries in range(len(alone))] == alone
    assert [decide(verdict, 32, tries + 1, BUILD) for tries in range(len(several))] == several


def test_every_verdict_but_done_has_an_action_that_ends():
    """However long a backend keeps giving the same answer, a single text comes to an end."""
    for verdict in set(Verdict) - {Verdict.DONE}:
        actions = {decide(verdict, 1, tries, BUILD) for tries in range(1, 50)}
        assert actions & {F, L}, verdict
        assert S not in actions, verdict


def test_halves_do_not_start_all_over():
    """A backend that breaks on everything is not asked twice for each half of each half."""
    most = BUILD.wrong_answers_max
    assert tries_of_half(Verdict.BROKEN, most, 16) == most - 1
    assert tries_of_half(Verdict.BROKEN, most, 1) == 0
    assert tries_of_half(Verdict.BUSY, 2, 16) == 2
    assert tries_of_half(Verdict.REFUSED, 1, 16) == 0


def test_a_wrong_answer_is_checked_with_each_replica():
    """With three replicas a text has failed only when it could have been asked of all."""
    actions = [decide(Verdict.BROKEN, 1, tries, BUILD, 3) for tries in (1, 2, 3, 4)]
    assert actions == [R, R, R, F]


@pytest.mark.parametrize(
    ("verdict", "kind", "error"),
    [
        (Verdict.TOO_MANY, FailureKind.REJECTED, MisconfiguredError),
        (Verdict.BODY_TOO_BIG, FailureKind.TOO_LONG, MisconfiguredError),
        (Verdict.TEXT_TOO_LONG, FailureKind.TOO_LONG, MisconfiguredError),
        (Verdict.REFUSED, FailureKind.REJECTED, MisconfiguredError),
        (Verdict.BROKEN, FailureKind.REJECTED, BackendUnavailableError),
        (Verdict.BAD_ANSWER, FailureKind.REJECTED, BadAnswerError),
        (Verdict.BUSY, FailureKind.UNAVAILABLE, BackendUnavailableError),
        (Verdict.SILENT, FailureKind.UNAVAILABLE, BackendUnavailableError),
        (Verdict.AWAY, FailureKind.UNAVAILABLE, BackendUnavailableError),
        (Verdict.UNAUTHORIZED, FailureKind.REJECTED, UnauthorizedError),
        (Verdict.MISCONFIGURED, FailureKind.REJECTED, MisconfiguredError),
    ],
)
def test_each_verdict_has_its_failure_and_its_error(
    verdict: Verdict, kind: FailureKind, error: type[Exception]
):
    """What a text is told and what a caller catches follow from one verdict."""
    assert failure_kind(verdict) is kind
    made = error_of(Judgement(verdict, "words", retry_after_s=3.0), "h:1/p")
    assert type(made) is error
    assert "h:1/p" in str(made)
    if isinstance(made, BackendUnavailableError):
        assert made.retry_after_s == 3.0
        assert made.retryable


def rows(*values: list[float], model: str = "") -> Rows:
    return Rows(np.array(values, dtype=np.float32), model)


def test_texts_at_fault_alone_raise_nothing():
    """Where every text is refused for itself, the call has succeeded in saying so."""
    ledger = Ledger(0)
    ledger.fail([0, 1], Judgement(Verdict.REFUSED, "no"), "h")
    ledger.check()
    assert {failure.kind for failure in ledger.failures.values()} == {FailureKind.REJECTED}


def test_a_backend_at_fault_raises_only_where_nothing_was_embedded():
    """One vector is enough to give what there is, with the rest as failures."""
    empty, partly = Ledger(0), Ledger(0)
    partly.accept([0], rows([1, 0]), "h")
    for ledger in (empty, partly):
        ledger.fail([1], Judgement(Verdict.AWAY, "gone"), "h")
    with pytest.raises(BackendUnavailableError):
        empty.check()
    partly.check()
    assert partly.failures[1].retryable


@pytest.mark.parametrize("verdict", [Verdict.REFUSED, Verdict.BROKEN, Verdict.BAD_ANSWER])
def test_texts_that_all_fail_end_a_call(verdict: Verdict):
    """After a few failures alone and no success, the backend is what is wrong."""
    ledger = Ledger(0)
    for place in range(HOPELESS):
        assert ledger.ended is None
        ledger.fail([place], Judgement(verdict, "no"), "h")
    assert ledger.ended is not None
    with pytest.raises(type(ledger.ended)):
        ledger.check()


def test_a_success_keeps_a_call_going():
    """Guilty texts among good ones never end a call, however many they are."""
    ledger = Ledger(0)
    ledger.accept([99], rows([1, 0]), "h")
    for place in range(HOPELESS * 3):
        ledger.fail([place], Judgement(Verdict.REFUSED, "no"), "h")
    assert ledger.ended is None
    ledger.check()


def test_texts_that_are_plainly_too_long_never_end_a_call():
    """The longest texts come first; that all of them are too long says nothing of others."""
    ledger = Ledger(0)
    for place in range(HOPELESS * 3):
        ledger.fail([place], Judgement(Verdict.TEXT_TOO_LONG, "no"), "h")
    assert ledger.ended is None
    ledger.check()


@pytest.mark.parametrize(
    ("dimensions", "second", "error"),
    [
        (0, rows([1, 2, 3]), BadAnswerError),
        (0, rows([1, 2], model="b"), BadAnswerError),
        (4, rows([1, 2]), MisconfiguredError),
    ],
)
def test_vectors_of_two_models_spoil_a_call(dimensions: int, second: Rows, error: type[Exception]):
    """Another width or another model's name in between: none of the vectors is given out."""
    ledger = Ledger(dimensions)
    if not dimensions:
        ledger.accept([0], rows([1, 2], model="a"), "h")
        ledger.accept([1], rows([3, 4]), "h")
        assert ledger.ended is None
    ledger.accept([2, 3], Rows(np.repeat(second.matrix, 2, axis=0), second.model), "h")
    assert ledger.ended is not None
    with pytest.raises(error):
        ledger.check()


def test_a_single_text_of_another_width_is_bad_alone():
    """One text with another width, however often, has no vector; a second one means two models."""
    ledger = Ledger(0)
    ledger.accept([0], rows([1, 2]), "h")
    for _ in range(2):
        assert set(ledger.accept([1], rows([1, 2, 3]), "h")) == {1}
    ledger.check()
    ledger.accept([2], rows([1, 2, 3]), "h")
    with pytest.raises(BadAnswerError):
        ledger.check()


def test_a_bad_vector_is_handed_back_and_its_neighbours_entered():
    """Of one answer the good rows are kept; the bad ones are for the caller to try again."""
    ledger = Ledger(0)
    bad = ledger.accept([5, 6, 7], rows([1, 0], [np.nan, 0], [0, 0]), "h")
    assert set(bad) == {6, 7}
    assert set(ledger.vectors) == {5}
