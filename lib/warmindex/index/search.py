"""Search in one partition: by meaning, by words, or by both, fused into one ranking.

    vectors --cosine------------------+
                                      +--> (1 - w) * meaning + w * words --> best first
    documents --BM25 and coverage-----+

The convex combination of Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid
Retrieval" (2023). How the arms come to one scale: fusion.py. Meaning
alone is ranked by cosine, words alone by their score.

The product in float32 only picks the candidates. The ranking is made from cosines taken
again in float64 and rounded to the contract's float, so equal vectors tie exactly, ties go by
content hash, and the same index gives the same answer bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from warmindex.index.fusion import (
    COSINE_ERROR_MAX,
    Pool,
    Scale,
    alone,
    fused,
    pool_of,
    weight_of_words,
)
from warmindex.index.tally import best

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from warmindex.index.vectors import VectorStore
    from warmindex.index.words import WordIndex

# The words arm hands over this many of its best: a word that half of a large partition has
# decides nothing.
WORDS_HITS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How the two arms are fused.

    words_weight: the words arm's share of the score where both arms are asked, 0 (meaning
    alone decides) to 1 (words alone).
    """

    words_weight: float = 0.3

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if not 0 <= self.words_weight <= 1:
            raise ValueError(
                f"words_weight is {self.words_weight}; give the words arm's share, 0 to 1"
            )


DEFAULT_OPTIONS: Final = SearchOptions()


class Hit(NamedTuple):
    """One ranked entry.

    score: 0 to 1, higher is better. distance: cosine distance, where the meaning arm ranked
    the entry. lexical_score: the words arm's, where that ranked it.
    """

    content_hash: bytes
    score: float
    distance: float | None
    lexical_score: float | None


def search(
    vectors: VectorStore | None,
    words: WordIndex | None,
    *,
    query: NDArray[np.float32] | None,
    query_text: str = "",
    keywords: Sequence[str] = (),
    allowed: Collection[bytes] | None = None,
    limit: int,
    max_distance: float = 1.0,
    alive: Callable[[bytes], bool] | None = None,
    options: SearchOptions = DEFAULT_OPTIONS,
) -> list[Hit]:
    """Rank the entries of a partition, best first, at most `limit`.

    query: (dimensions,) float32, finite, not all zero; None searches by words alone. An arm
    without its store or its query ranks nothing. allowed: the only keys wanted. max_distance:
    entries at a greater cosine distance are not the meaning arm's. alive: says which
    entries count; the others do not appear and take no place (until they are taken out, the
    words arm counts their documents when it says how rare a word is).
    """
    if limit < 1:
        return []
    both = bool(query_text or keywords)
    lexical = Lexical({}, 0.0)
    if words is not None and both:
        lexical = _lexical(words, query_text, keywords, allowed, alive)
    if vectors is None or query is None:
        return _by_words(lexical, limit)
    pool = pool_of(vectors, query, allowed, alive)
    if not len(pool.slots):
        return _by_words(lexical, limit)
    if both:
        weight = weight_of_words(options.words_weight, lexical.misspelt)
        scale = fused(vectors, query, pool, max_distance, weight)
    else:
        scale = alone(max_distance)
    hits = _with_vectors(_Ranked(vectors, query, scale, lexical), pool, limit)
    hits += _without_vectors(vectors, scale, lexical)
    return _best_first(hits, limit)


class Lexical(NamedTuple):
    """What the words arm found: scores by key, the highest, the share of misspelt words."""

    scores: dict[bytes, float]
    highest: float
    misspelt: float = 0.0

    def share(self, key: bytes) -> float:
        """Give an entry's share of the best score, 0 where words do not rank it."""
        score = self.scores.get(key)
        return score / self.highest if score else 0.0


def _lexical(
    words: WordIndex,
    query_text: str,
    keywords: Sequence[str],
    allowed: Collection[bytes] | None,
    alive: Callable[[bytes], bool] | None,
) -> Lexical:
    rows, scores, misspelt = words.matches(query_text, keywords, allowed)
    if alive is not None:
        kept = [alive(words.key_at(row)) for row in rows.tolist()]
        rows, scores = rows[kept], scores[kept]
    if len(scores) > WORDS_HITS_MAX:
        highest = best(scores, WORDS_HITS_MAX)
        rows, scores = rows[highest], scores[highest]
    found = dict(zip(map(words.key_at, rows.tolist()), scores.tolist(), strict=True))
    return Lexical(found, max(found.values(), default=0.0), misspelt)


def _by_words(lexical: Lexical, limit: int) -> list[Hit]:
    hits = [
        Hit(key, _rounded(lexical.share(key)), None, _rounded(score))
        for key, score in lexical.scores.items()
    ]
    return _best_first(hits, limit)


class _Ranked(NamedTuple):
    """Turns slots into hits, with cosines in float64."""

    vectors: VectorStore
    query: NDArray[np.float32]
    scale: Scale
    lexical: Lexical

    def hits(self, slots: NDArray[np.intp]) -> list[Hit]:
        hits = []
        cosines = self.vectors.cosines(self.query, slots).tolist()
        for slot, cosine in zip(slots.tolist(), cosines, strict=True):
            key = self.vectors.key_at(slot)
            lexical_score = self.lexical.scores.get(key)
            is_near = cosine >= self.scale.cosine_min
            if not is_near and lexical_score is None:
                continue
            score = self.scale.score(cosine if is_near else None, self.lexical.share(key))
            hits.append(
                Hit(
                    key,
                    _rounded(score),
                    _rounded(1.0 - cosine) if is_near else None,
                    None if lexical_score is None else _rounded(lexical_score),
                )
            )
        return hits


def _with_vectors(ranked: _Ranked, pool: Pool, limit: int) -> list[Hit]:
    """Rank the entries that have a vector; more than `limit` where the last ones tie."""
    slots, scores = _candidates(ranked, pool)
    slack = COSINE_ERROR_MAX * ranked.scale.meaning_weight
    count = limit
    while True:
        chosen = best(scores, count, slack)
        hits = ranked.hits(slots[chosen])
        if len(hits) >= limit or len(chosen) < count:
            return hits
        count *= 4  # some were a hair beyond max_distance


def _candidates(ranked: _Ranked, pool: Pool) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Give the slots that either arm may rank, with their approximate scores."""
    scale, lexical = ranked.scale, ranked.lexical
    is_near = pool.cosines >= scale.cosine_min - COSINE_ERROR_MAX
    scores = np.where(is_near, scale.meaning_weight * (pool.cosines - scale.floor), 0.0)
    slots = ranked.vectors.slots(lexical.scores)
    shares = np.fromiter(lexical.scores.values(), np.float64, len(slots))
    shares /= lexical.highest or 1.0
    # What the words arm found is in the pool wherever it has a vector.
    places = np.searchsorted(pool.slots, slots[slots >= 0])
    scores[places] += scale.words_weight * shares[slots >= 0]
    is_near[places] = True
    if is_near.all():
        return pool.slots, scores
    return pool.slots[is_near], scores[is_near]


def _without_vectors(vectors: VectorStore, scale: Scale, lexical: Lexical) -> list[Hit]:
    return [
        Hit(key, _rounded(scale.score_unknown(lexical.share(key))), None, _rounded(score))
        for key, score in lexical.scores.items()
        if key not in vectors
    ]


def _best_first(hits: list[Hit], limit: int) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.content_hash))[:limit]


def _rounded(number: float) -> float:
    """Round to the contract's float, so that what is equal on the wire is equal here."""
    return float(np.float32(number))
