"""The second stage: what it orders anew, what it leaves alone, and that it never loses a hit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.embedders import EmbedderError
from warmindex.embedders.errors import BadAnswerError, DeadlinePassedError
from warmindex.errors import InvalidError
from warmindex.rerank import Reranker, stage

NUMBERS = st.floats(-1e6, 1e6, width=32)


class Fixed:
    """A scorer that knows one answer, or one failure."""

    def __init__(self, *scores: float, error: Exception | None = None) -> None:
        self.answer = scores
        self.error = error
        self.asked: list[Sequence[str]] = []

    async def scores(
        self, query: str, texts: Sequence[str], *, deadline: float | None = None
    ) -> np.ndarray:
        assert query
        assert deadline
        self.asked.append(texts)
        if self.error is not None:
            raise self.error
        return np.array(self.answer, np.float32)

    async def close(self) -> None:
        self.asked.clear()


@pytest.mark.parametrize(
    ("weight", "order"), [(0.0, [0, 1, 2, 3]), (1.0, [2, 1, 0, 3]), (0.5, [2, 0, 1, 3])]
)
async def test_weight_is_the_scorers_share(weight: float, order: list[int]):
    """At 0 the first stage's order stands, at 1 the scorer's; hits past the limit stay behind."""
    reranker = Reranker(Fixed(1, 2, 4), hits=3, weight=weight)
    assert await reranker.order("q", list("abcd"), [0.9, 0.3, 0.2, 0.1]) == order


async def test_only_the_first_hits_are_scored():
    """The scorer sees as many texts as asked for; one hit or a blank query needs no opinion."""
    scorer = Fixed(1, 2)
    reranker = Reranker(scorer, hits=2)
    await reranker.order("q", list("abc"), [3, 2, 1])
    assert scorer.asked == [["a", "b"]]
    assert await reranker.order("q", ["a"], [1]) == [0]
    assert await reranker.order("  ", list("abc"), [3, 2, 1]) == [0, 1, 2]
    assert await reranker.order("q", [], []) == []
    assert len(scorer.asked) == 1


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20), st.floats(0, 1))
def test_no_hit_is_lost(scores: list[tuple[float, float]], weight: float):
    """Every hit is in the new order once, whatever the scores."""
    first, second = np.array(scores, np.float32).T
    assert sorted(stage.mixed(first, second, weight)) == list(range(len(scores)))


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_a_scorer_without_an_opinion_changes_nothing(first: list[float]):
    """Equal scores leave the first stage's order as it is."""
    ordered = np.array(sorted(first, reverse=True))
    assert stage.mixed(ordered, np.full(len(first), 7.0), 0.5) == list(range(len(first)))


@pytest.mark.parametrize(
    ("scorer", "kind"),
    [
        (Fixed(1.0), BadAnswerError),
        (Fixed(1.0, float("nan")), BadAnswerError),
        (Fixed(error=RuntimeError("no memory")), BadAnswerError),
        (Fixed(error=BadAnswerError("as it is")), BadAnswerError),
    ],
)
async def test_a_bad_scorer_is_an_error_of_one_kind(scorer: Fixed, kind: type[EmbedderError]):
    """Too few scores, NaN, and whatever a runtime raises: callers catch one thing."""
    with pytest.raises(kind):
        await Reranker(scorer).order("q", ["a", "b"], [2, 1])


async def test_a_slow_scorer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A deadline passes, and says so."""

    class Slow(Fixed):
        async def scores(
            self, query: str, texts: Sequence[str], *, deadline: float | None = None
        ) -> np.ndarray:
            await asyncio.Event().wait()
            return await super().scores(query, texts, deadline=deadline)

    monkeypatch.setattr(stage, "RERANK_S_MAX", 0.01)
    with pytest.raises(DeadlinePassedError, match="fewer hits"):
        await Reranker(Slow()).order("q", ["a", "b"], [2, 1])


@pytest.mark.parametrize("options", [{"hits": 0}, {"hits": 201}, {"weight": -0.1}, {"weight": 2}])
def test_options_are_checked(options: dict[str, float]):
    """An option outside its range is refused by name."""
    with pytest.raises(InvalidError, match=next(iter(options))):
        Reranker(Fixed(), **options)  # type: ignore[arg-type]
