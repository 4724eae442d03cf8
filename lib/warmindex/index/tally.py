"""The score of a document for a query: BM25 term by term, and how much of both is covered.

FTS5 stems (Porter) and gives each term's part of BM25 (k1 1.2, b 0.75; a word in a name counts
twice). It is asked for one term at a time because its inverse document frequency is floored
at 1e-6 from half of the documents on, which blinds it in a session of ten tools; Lucene's
takes its place here, ln(1 + (N - n + 0.5) / (n + 0.5)), which is never zero.

A document's score is its BM25, plus the query's whole weight (the sum of its terms' inverse
document frequencies) times

    QUERY_COVERAGE x the share of the query's terms that the document has
    NAME_COVERAGE  x the share of the parts of its name that the query has

both of which say what BM25 does not: that nothing is missing.

A word that no document has is taken for a misspelling where there is a word one edit away
(spelling.py), and where nothing at all is found, for the beginning of others.
"""

from __future__ import annotations

from itertools import accumulate
from math import log, log1p
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from warmindex.index.spelling import candidates
from warmindex.index.tokens import Term

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from numpy.typing import NDArray

# See the module's text; chosen on labelled queries, docs/search.md.
QUERY_COVERAGE: Final = 0.5
NAME_COVERAGE: Final = 0.1

# Two words with these first letters in common that are found in the same documents as often
# are forms of one word, which FTS5 has stemmed alike.
STEM_CHARACTERS_MIN: Final = 3

# A word that is only guessed at (corrected, or taken for the beginning of another) weighs less.
GUESS_WEIGHT: Final = 0.8
# So many words of a query are guessed at, which bounds what nonsense can cost.
CORRECTIONS_MAX: Final = 8
# One letter begins too many words.
PREFIX_CHARACTERS_MIN: Final = 2

# Scoring takes about 1 us a row, so this bounds a query in a large partition to some 20 ms. The
# words that it leaves out are in so many documents that they hardly tell them apart.
ROWS_MAX: Final = 20_000
# A term is in far fewer documents than there are; only beyond this many times ROWS_MAX is it
# worth counting first.
ROWS_MAX_FACTOR: Final = 4

# A word in a tool's name counts twice what it does in the description. The last column says
# whether the name has it.
_MATCH: Final = """
select rowid, -bm25(words, 2.0, 1.0), bm25(words, 1.0, 0.0) < 0 from words where words match ?
"""


_Found: TypeAlias = "list[tuple[int, float, int]]"


class Tally:
    """Adds up what the terms of one query say of each row."""

    def __init__(
        self,
        engine: sqlite3.Connection,
        vocabulary: AbstractSet[str],
        rows: int,
        documents: int,
    ) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._documents = documents
        self._score = np.zeros(rows)
        self._terms_found = np.zeros(rows)
        self._parts_found = np.zeros(rows)
        self._seen: dict[str, list[_Found]] = {}  # by the first letters of a word
        self._terms = 0
        self._weight = 0.0
        self._corrected = 0
        self._corrections_left = CORRECTIONS_MAX

    @property
    def misspelt(self) -> float:
        """Give the share of the query's terms that were found only by correcting them."""
        return self._corrected / max(self._terms, 1)

    def add_all(self, terms: dict[Term, float], in_names_only: bool) -> None:
        """Ask for all terms of a query, with how often it asks for each."""
        if self._documents * len(terms) > ROWS_MAX * ROWS_MAX_FACTOR:
            terms = self._affordable(terms)
        for term, weight in terms.items():
            self._add(term, weight, in_names_only)
        if in_names_only or self._score.any():
            return
        # Perhaps the words are only begun: kube, repo.
        for term, weight in list(terms.items())[:CORRECTIONS_MAX]:
            if len(term.word) >= PREFIX_CHARACTERS_MIN:
                found = self._ask(f'"{term.word}"*')
                if found:
                    self._count(found, weight * GUESS_WEIGHT, is_part=True)

    def _affordable(self, terms: dict[Term, float]) -> dict[Term, float]:
        """Leave out the most common words, so that ROWS_MAX rows are scored, or one term's."""
        sql = "select count(*) from words where words match ?"
        counts = {
            term: self._engine.execute(sql, (f'"{term.word}"',)).fetchone()[0] for term in terms
        }
        rarest_first = sorted(terms, key=counts.__getitem__)
        total = list(accumulate(counts[term] for term in rarest_first))
        first = next((at for at, count in enumerate(total) if count), len(total))
        kept = {
            term for at, term in enumerate(rarest_first) if total[at] <= ROWS_MAX or at <= first
        }
        return {term: weight for term, weight in terms.items() if term in kept}

    def _add(self, term: Term, weight: float, in_names_only: bool) -> None:
        quoted = f'"{term.word}"'
        found = self._ask(f"{{name}} : {quoted}" if in_names_only else quoted)
        if found:
            if not self._is_repeated(term.word, found):
                self._count(found, weight, is_part=not term.whole)
        elif term.instead:
            for word in term.instead:
                self._add(Term(word), weight, in_names_only)
        elif not term.whole:
            guess, found = ("", []) if in_names_only else self._guess(term.word)
            if not found or not self._is_repeated(guess, found):
                self._count(found, weight * GUESS_WEIGHT, is_part=True)
                self._corrected += bool(found)

    def _guess(self, word: str) -> tuple[str, _Found]:
        """Ask for the most frequent word that this one may have been meant to be."""
        best_guess: tuple[str, _Found] = ("", [])
        if self._corrections_left:
            self._corrections_left -= 1
            for candidate in candidates(word, self._vocabulary):
                found = self._ask(f'"{candidate}"')
                if len(found) > len(best_guess[1]):
                    best_guess = (candidate, found)
        return best_guess

    def _count(self, found: _Found, weight: float, *, is_part: bool) -> None:
        """Add one term's findings. `is_part`: it is missed where it is not found."""
        frequency = log1p((self._documents - len(found) + 0.5) / (len(found) + 0.5))
        if is_part:
            self._terms += 1
            self._weight += frequency
        if not found:
            return
        columns = zip(*found, strict=True)
        rows = np.fromiter(next(columns), np.intp, len(found))
        scores = np.fromiter(next(columns), np.float64, len(found))
        in_name = np.fromiter(next(columns), np.float64, len(found))
        # FTS5's inverse document frequency, and its floor, are divided out.
        theirs = max(log((self._documents - len(found) + 0.5) / (len(found) + 0.5)), 1e-6)
        self._score[rows] += scores * (weight * frequency / theirs)
        if is_part:
            self._terms_found[rows] += 1
            self._parts_found[rows] += in_name

    def matched(self) -> NDArray[np.intp]:
        """Give the rows that have a term."""
        return np.flatnonzero(self._score)

    def scores(self, rows: NDArray[np.intp], parts: Sequence[int]) -> NDArray[np.float64]:
        """Give the scores of some rows; `parts` is how many parts each row's name has."""
        name_parts = np.array([parts[row] or 1 for row in rows.tolist()], dtype=np.float64)
        of_query = self._terms_found[rows] / max(self._terms, 1)
        of_name = np.minimum(self._parts_found[rows] / name_parts, 1.0)
        coverage = QUERY_COVERAGE * of_query + NAME_COVERAGE * of_name
        scores: NDArray[np.float64] = self._score[rows] + self._weight * coverage
        return scores

    def _ask(self, match: str) -> _Found:
        return self._engine.execute(_MATCH, (match,)).fetchall()

    def _is_repeated(self, word: str, found: _Found) -> bool:
        """Whether another form of the word has been counted: issue, then issues."""
        alike = self._seen.setdefault(word[:STEM_CHARACTERS_MIN], [])
        if found in alike:
            return True
        alike.append(found)
        return False


def best(scores: NDArray[np.floating[Any]], count: int, slack: float = 0.0) -> NDArray[np.intp]:
    """Give the positions of the `count` highest scores, and of all within `slack` of the last."""
    if len(scores) <= count:
        return np.arange(len(scores))
    last = len(scores) - count
    least = scores.max() if count == 1 else np.partition(scores, last)[last]
    return np.flatnonzero(scores >= least - slack)
