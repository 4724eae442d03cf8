"""Search in one partition: by meaning, by words, or by both, fused into one ranking.

    vectors --cosine------------------+
                                      +--> (1 - w) * meaning + w * words --> best first
    documents --BM25 and coverage-----+

meaning is the cosine, and words the score of tally.py divided by the query's best, so both lie
between 0 and 1: the convex combination of Bruch, Gai and Ingber, "An Analysis of Fusion
Functions for Hybrid Retrieval" (2023). How w was chosen, and what did worse: docs/search.md.

An entry that one arm does not rank has 0 of it. Two things differ from that:

- An entry without a vector cannot be near or far. So that the words arm can bring it up
  while vectors are still being computed, it is taken to be as near as the nearest entry,
  times its share of words.
- Where `max_distance` lets negative cosines in, the cosine's range is stretched to 0..1.

The product in float32 only picks the candidates; the ranking is made from cosines taken
again in float64, so equal vectors tie exactly, ties go by content hash, and the same index
gives the same answer bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from warmindex.index.blocks import NO_ROW
from warmindex.index.tally import best

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from warmindex.index.vectors import VectorStore
    from warmindex.index.words import WordIndex

# How far a cosine of the float32 product may be off; entries that are nearer to each other
# than this are all computed again.
COSINE_ERROR_MAX: Final = 2e-5

# The words arm hands over this many of its best: a word that half of a large partition has
# decides nothing.
WORDS_HITS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How the two arms are fused.

    words_weight: the words arm's share of the score, 0 (meaning alone decides where both
    arms are asked) to 1 (words alone).
    """

    words_weight: float = 1 / 6

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
    entries count; the others neither appear nor change a score.
    """
    if limit < 1:
        return []
    lexical = _Lexical({}, 0.0)
    if words is not None and (query_text or keywords):
        lexical = _lexical(words, query_text, keywords, allowed, alive)
    if vectors is None or query is None or not len(vectors):
        return _by_words(lexical, limit)
    weight = options.words_weight if query_text or keywords else 0.0
    meaning = _Meaning(vectors, query, allowed, max_distance)
    return _fused(meaning, lexical, weight, limit, alive)


class _Lexical(NamedTuple):
    """What the words arm found: scores by key, and the highest of them."""

    scores: dict[bytes, float]
    highest: float

    def share(self, key: bytes) -> float:
        score = self.scores.get(key)
        return score / self.highest if score else 0.0


def _lexical(
    words: WordIndex,
    query_text: str,
    keywords: Sequence[str],
    allowed: Collection[bytes] | None,
    alive: Callable[[bytes], bool] | None,
) -> _Lexical:
    rows, scores = words.matches(query_text, keywords, allowed)
    if alive is not None:
        kept = [alive(words.key_at(row)) for row in rows.tolist()]
        rows, scores = rows[kept], scores[kept]
    if len(scores) > WORDS_HITS_MAX:
        kept_best = best(scores, WORDS_HITS_MAX)
        rows, scores = rows[kept_best], scores[kept_best]
    found = dict(zip(map(words.key_at, rows.tolist()), scores.tolist(), strict=True))
    return _Lexical(found, max(found.values(), default=0.0))


def _by_words(lexical: _Lexical, limit: int) -> list[Hit]:
    ranked = sorted(lexical.scores.items(), key=lambda item: (-item[1], item[0]))
    return [Hit(key, score / lexical.highest, None, score) for key, score in ranked[:limit]]


class _Meaning:
    """The meaning arm: approximate shares of all eligible slots, exact ones where it matters."""

    def __init__(
        self,
        vectors: VectorStore,
        query: NDArray[np.float32],
        allowed: Collection[bytes] | None,
        max_distance: float,
    ) -> None:
        self.vectors = vectors
        self._query = query
        self._cosine_min = 1.0 - max_distance
        self._floor = min(0.0, self._cosine_min)
        if allowed is None:
            self.cosines = vectors.similarities(query)
        else:
            slots = vectors.slots(dict.fromkeys(allowed))
            slots = slots[slots >= 0]
            self.cosines = np.full(vectors.slot_count, NO_ROW, dtype=np.float32)
            self.cosines[slots] = vectors.similarities_at(query, slots)

    def shares(self) -> NDArray[np.float32]:
        """Give the share of every slot, NO_ROW where the arm does not rank it."""
        shares = (self.cosines - np.float32(self._floor)) / np.float32(1.0 - self._floor)
        shares[self.cosines < self._cosine_min - COSINE_ERROR_MAX] = NO_ROW
        return shares

    def exact(self, slots: NDArray[np.intp]) -> list[tuple[float, float] | None]:
        """Give share and distance of some slots; None where the arm does not rank it."""
        return [
            ((cosine - self._floor) / (1.0 - self._floor), 1.0 - cosine)
            if cosine >= self._cosine_min
            else None
            for cosine in self.vectors.cosines(self._query, slots).tolist()
        ]

    def nearest(self, alive: Callable[[bytes], bool] | None) -> float:
        """Give the share of the nearest entry; 1 where no entry has a vector."""
        ranked = np.argsort(-self.cosines, kind="stable") if alive else [self.cosines.argmax()]
        for slot in ranked:
            if self.cosines[slot] == NO_ROW:
                break
            if alive is None or alive(self.key_at(int(slot))):
                exact = self.exact(np.array([slot]))[0]
                return exact[0] if exact else 0.0
        return 1.0

    def key_at(self, slot: int) -> bytes:
        key = self.vectors.key_at(slot)
        assert key is not None  # noqa: S101 - a free slot is never ranked
        return key


def _fused(
    meaning: _Meaning,
    lexical: _Lexical,
    weight: float,
    limit: int,
    alive: Callable[[bytes], bool] | None,
) -> list[Hit]:
    scores = (1.0 - weight) * meaning.shares()
    loose = _add_words(meaning, lexical, weight, scores)
    hits: list[Hit] = []
    count = limit
    while True:
        slots = best(scores, count, COSINE_ERROR_MAX)
        slots = slots[scores[slots] > NO_ROW]
        hits = _exact_hits(meaning, lexical, weight, slots, alive)
        if len(hits) >= limit or len(slots) < count:
            break
        count *= 4  # too many of them were retired, or a hair too far
    hits += _loose_hits(meaning, lexical, weight, loose, alive)
    return sorted(hits, key=lambda hit: (-hit.score, hit.content_hash))[:limit]


def _add_words(
    meaning: _Meaning, lexical: _Lexical, weight: float, scores: NDArray[np.float32]
) -> list[bytes]:
    """Add the words arm's part to the scores of slots; give the keys that have no slot."""
    keys = list(lexical.scores)
    slots = meaning.vectors.slots(keys)
    placed = np.flatnonzero(slots >= 0)
    shares = np.fromiter(lexical.scores.values(), np.float64, len(keys))[placed]
    at = slots[placed]
    # One that is too far for the meaning arm keeps its part of the words.
    scores[at] = np.maximum(scores[at], 0.0) + weight * shares / (lexical.highest or 1.0)
    return [keys[position] for position in np.flatnonzero(slots < 0).tolist()]


def _exact_hits(
    meaning: _Meaning,
    lexical: _Lexical,
    weight: float,
    slots: NDArray[np.intp],
    alive: Callable[[bytes], bool] | None,
) -> list[Hit]:
    keys = [meaning.key_at(slot) for slot in slots.tolist()]
    if alive is not None:
        kept = [alive(key) for key in keys]
        slots = slots[kept]
        keys = [key for key, is_kept in zip(keys, kept, strict=True) if is_kept]
    hits = []
    for key, ranked in zip(keys, meaning.exact(slots), strict=True):
        lexical_score = lexical.scores.get(key)
        if ranked is None and lexical_score is None:
            continue
        share, distance = ranked or (0.0, None)
        score = (1.0 - weight) * share + weight * lexical.share(key)
        hits.append(Hit(key, min(max(score, 0.0), 1.0), distance, lexical_score))
    return hits


def _loose_hits(
    meaning: _Meaning,
    lexical: _Lexical,
    weight: float,
    keys: list[bytes],
    alive: Callable[[bytes], bool] | None,
) -> list[Hit]:
    """Rank entries without a vector: as near as the nearest, times their share of words."""
    if not keys:
        return []
    nearest = meaning.nearest(alive)
    return [
        Hit(
            key,
            lexical.share(key) * ((1.0 - weight) * nearest + weight),
            None,
            lexical.scores[key],
        )
        for key in keys
    ]
