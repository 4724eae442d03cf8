"""How a cosine and a share of words become one score.

    score = meaning_weight x (cosine - floor) + words_weight x share of words

Models differ in where their cosines lie and in how far they spread: unrelated texts have 0.1
under all-MiniLM-L6-v2 and 0.78 under e5-small-v2. So the meaning arm is measured in spreads,
from the average entry to the nearest, of this query; the words arm in shares of its best.
Each arm's answer is then as far above what is nothing to it as the other's. What else was
tried, and what it did: docs/search.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from warmindex.index.tally import best

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from numpy.typing import NDArray

    from warmindex.index.vectors import VectorStore

# How far a cosine of the float32 product may be off; entries that are nearer to each other
# than this are all computed again.
COSINE_ERROR_MAX: Final = 2e-5

# A spread is at least this share of the way from the average entry to the same text: where
# a few entries are all about as near, it is not meaning that tells them apart.
SPREAD_SHARE_MIN: Final = 0.25

# The average is kept to this many decimals: it comes from the float32 product, and its last
# digits depend on where the rows lie.
AVERAGE_DECIMALS: Final = 4


# A model reads a misspelt word as fragments, the words arm can correct it: of a query that is
# all misspelt, meaning weighs this much less.
MISSPELT_FACTOR: Final = 4.0


class Pool(NamedTuple):
    """The entries that count and have a vector.

    slots: (n,), ascending. cosines: (n,) float32, off by COSINE_ERROR_MAX at the most.
    """

    slots: NDArray[np.intp]
    cosines: NDArray[np.float32]


def pool_of(
    vectors: VectorStore,
    query: NDArray[np.float32],
    allowed: Collection[bytes] | None,
    alive: Callable[[bytes], bool] | None,
) -> Pool:
    """Take the entries that are allowed and alive, and their approximate cosines."""
    if allowed is None and alive is None:
        slots = vectors.live_slots()
        cosines = vectors.similarities(query)
        return Pool(slots, cosines if len(slots) == len(cosines) else cosines[slots])
    if allowed is None:
        slots = vectors.live_slots()
    else:
        slots = np.unique(vectors.slots(allowed))
        slots = slots[slots >= 0]
    if alive is not None:
        keys = map(vectors.key_at, slots.tolist())
        slots = slots[np.fromiter(map(alive, keys), np.bool_, len(slots))]
    return Pool(slots, vectors.similarities_at(query, slots))


class Scale(NamedTuple):
    """How cosines and shares of words become scores of 0 to 1; see the module's text.

    cosine_min: what lies below is not ranked by meaning. floor: the cosine that counts
    as nothing, 0 unless max_distance lets negative ones in.
    """

    cosine_min: float
    floor: float
    meaning_weight: float
    words_weight: float
    average: float = 0.0
    spread: float = 0.0

    def score(self, cosine: float | None, share: float) -> float:
        """Give an entry's score; the cosine is None where meaning does not rank it."""
        near = 0.0 if cosine is None else self.meaning_weight * (cosine - self.floor)
        return min(max(near + self.words_weight * share, 0.0), 1.0)

    def score_unknown(self, share: float) -> float:
        """Give the score of an entry without a vector, which is neither near nor far.

        So that words can bring it up while vectors are still being computed, it is taken
        to be as near as the nearest, times its share of words.
        """
        return self.score(self.average + share * self.spread, share)


def weight_of_words(weight: float, misspelt: float) -> float:
    """Give the words arm's share of the score, of which a share of the words is misspelt."""
    words = weight * (1.0 + (MISSPELT_FACTOR - 1.0) * misspelt)
    return words / (words + 1.0 - weight)


def alone(max_distance: float) -> Scale:
    """Scale for meaning alone: the cosine itself, where none is negative."""
    cosine_min = 1.0 - max_distance
    floor = min(0.0, cosine_min)
    return Scale(cosine_min, floor, 1.0 / (1.0 - floor), 0.0)


def fused(
    vectors: VectorStore,
    query: NDArray[np.float32],
    pool: Pool,
    max_distance: float,
    words_weight: float,
) -> Scale:
    """Scale for both arms, from the entries that count, at least one."""
    at_front = pool.slots[best(pool.cosines, 1, COSINE_ERROR_MAX)]
    nearest = float(vectors.cosines(query, at_front).max())
    mean = float(pool.cosines.mean(dtype=np.float64))
    average = min(round(mean, AVERAGE_DECIMALS), nearest)
    spread = max(nearest - average, SPREAD_SHARE_MIN * (1.0 - average), COSINE_ERROR_MAX)
    cosine_min = 1.0 - max_distance
    floor = min(0.0, cosine_min)
    meaning = (1.0 - words_weight) / spread
    # So that the nearest entry, if words put it first too, has a score of 1 (or less, where
    # it is hardly nearer than nothing).
    highest = meaning * max(nearest - floor, spread) + words_weight
    return Scale(cosine_min, floor, meaning / highest, words_weight / highest, average, spread)
