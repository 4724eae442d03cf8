"""The stage itself: which hits are scored again, and how both scores make one order.

    first stage --hits--> scorer --+
                 |                 +--> (1 - weight) * first + weight * second --> best first
                 +-----------------+

Each stage's scores are brought to one scale among the hits in question, 0 the average and 1
the best, as the first stage does with its arms: a scorer's own scale (logits, cosines) means
nothing beside another's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from warmindex.embedders.base import FloatVector
from warmindex.embedders.errors import BadAnswerError, DeadlinePassedError, EmbedderError
from warmindex.errors import InvalidError, Reason

# The right tool is among the first 10 for 86 of 100 questions, and hardly ever past 30.
HITS_DEFAULT: Final = 30
# Each hit is a run of a model: past this a search box is no longer one.
HITS_MAX: Final = 200
# Half each: a scorer that knows less than the first stage then costs little.
WEIGHT_DEFAULT: Final = 0.5
# A search box waits no longer for a second opinion; the first stage's order answers then.
RERANK_S_MAX: Final = 2.0


class Scorer(Protocol):
    """How well texts answer a query. Safe to call from many tasks of one event loop at once."""

    async def scores(
        self, query: str, texts: Sequence[str], *, deadline: float | None = None
    ) -> FloatVector:
        """Float32 (len(texts),), higher is better, on a scale of the scorer's own.

        `deadline` is a time of the running event loop. Raises EmbedderError.
        """
        ...

    async def close(self) -> None:
        """Give up threads. The scorer cannot be used afterwards."""
        ...


class Reranker:
    """A scorer, and how much is left to it.

    hits: how many of the first stage's are scored, 1 to 200. weight: the scorer's share of
    the order, 0 to 1; 1 leaves it to the scorer alone. Raises InvalidError.
    """

    def __init__(
        self, scorer: Scorer, *, hits: int = HITS_DEFAULT, weight: float = WEIGHT_DEFAULT
    ) -> None:
        if not 1 <= hits <= HITS_MAX:
            raise _out_of_range("hits", hits, f"1..{HITS_MAX}")
        if not 0 <= weight <= 1:
            raise _out_of_range("weight", weight, "0..1, the scorer's share")
        self.hits = hits
        self.weight = weight
        self._scorer = scorer

    async def order(self, query: str, texts: Sequence[str], first: Sequence[float]) -> list[int]:
        """Places of the hits, best first; those past `hits` follow as they came.

        `texts` are the hits', best first, and `first` their scores. Equals keep the first
        stage's order. Raises EmbedderError: DeadlinePassedError after RERANK_S_MAX,
        BadAnswerError for whatever a scorer does that it should not.
        """
        count = min(len(texts), self.hits)
        rest = list(range(count, len(texts)))
        if count < 2 or not query.strip():
            return [*range(count), *rest]
        deadline = asyncio.get_running_loop().time() + RERANK_S_MAX
        try:
            async with asyncio.timeout_at(deadline):
                second = await self._scores(query, texts[:count], deadline)
        except TimeoutError:
            raise DeadlinePassedError(
                f"no scores within {RERANK_S_MAX:g} s; score fewer hits or take a smaller model",
                backend="reranker",
            ) from None
        if second.shape != (count,) or not np.isfinite(second).all():
            raise BadAnswerError(
                f"gave no {count} finite scores for {count} texts", backend="reranker"
            )
        return [*mixed(np.asarray(first[:count]), second, self.weight), *rest]

    async def _scores(self, query: str, texts: Sequence[str], deadline: float) -> FloatVector:
        try:
            return await self._scorer.scores(query, texts, deadline=deadline)
        except (EmbedderError, TimeoutError):
            raise
        except Exception as error:  # Runtimes raise what they like, and a search must go on.
            raise BadAnswerError(f"failed: {error!r:.300}", backend="reranker") from error

    async def close(self) -> None:
        """Close the scorer."""
        await self._scorer.close()


def mixed(
    first: npt.NDArray[np.floating], second: npt.NDArray[np.floating], weight: float
) -> list[int]:
    """Places by both stages' scores, best first; equals by the first stage's order."""
    score = (1 - weight) * _scaled(first) + weight * _scaled(second)
    return [int(place) for place in np.argsort(-score, kind="stable")]


def _scaled(scores: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """0 for the average, 1 for the best; zeros where all are alike."""
    above = scores.astype(np.float64) - scores.mean(dtype=np.float64)
    best = above.max()
    return above / best if best > 0 else np.zeros_like(above)


def _out_of_range(field: str, value: float, allowed: str) -> InvalidError:
    return InvalidError(
        f"{field} is {value}; allowed is {allowed}", field=field, reason=Reason.OUT_OF_RANGE
    )
