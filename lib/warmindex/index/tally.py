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
"""

from __future__ import annotations

from math import log, log1p
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from warmindex.index.tokens import Term

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from numpy.typing import NDArray

# See the module's text; chosen on labelled queries, docs/search.md.
QUERY_COVERAGE: Final = 0.5
NAME_COVERAGE: Final = 0.1

# Two words with these first letters in common that are found in the same documents as often
# are forms of one word, which FTS5 has stemmed alike.
STEM_CHARACTERS_MIN: Final = 3

# A word in a tool's name counts twice what it does in the description. The last column says
# whether the name has it.
_MATCH: Final = """
select rowid, -bm25(words, 2.0, 1.0), bm25(words, 1.0, 0.0) < 0 from words where words match ?
"""


_Found: TypeAlias = "list[tuple[int, float, int]]"


class Tally:
    """Adds up what the terms of one query say of each row."""

    def __init__(self, engine: sqlite3.Connection, rows: int, documents: int) -> None:
        self._engine = engine
        self._documents = documents
        self._score = np.zeros(rows)
        self._terms_found = np.zeros(rows)
        self._parts_found = np.zeros(rows)
        self._seen: dict[str, list[_Found]] = {}  # by the first letters of a word
        self._terms = 0
        self._weight = 0.0

    def add(self, term: Term, weight: float, in_names_only: bool) -> None:
        """Ask for one term; `weight` is how often the query asks for it."""
        found = self._find(term.word, in_names_only)
        if not found:
            if term.instead:
                for word in term.instead:
                    self.add(Term(word), weight, in_names_only)
            elif not term.whole:
                self._terms += 1
                self._weight += self._idf(0)
            return
        if self._is_repeated(term.word, found):
            return
        rows, scores, in_name = map(np.array, zip(*found, strict=True))
        # FTS5's inverse document frequency, and its floor, are divided out.
        theirs = max(log((self._documents - len(found) + 0.5) / (len(found) + 0.5)), 1e-6)
        self._score[rows] += scores * (weight * self._idf(len(found)) / theirs)
        if not term.whole:
            self._terms += 1
            self._weight += self._idf(len(found))
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

    def _find(self, word: str, in_names_only: bool) -> _Found:
        match = f'{{name}} : "{word}"' if in_names_only else f'"{word}"'
        return self._engine.execute(_MATCH, (match,)).fetchall()

    def _is_repeated(self, word: str, found: _Found) -> bool:
        """Whether another form of the word has been counted: issue, then issues."""
        alike = self._seen.setdefault(word[:STEM_CHARACTERS_MIN], [])
        if found in alike:
            return True
        alike.append(found)
        return False

    def _idf(self, found: int) -> float:
        return log1p((self._documents - found + 0.5) / (found + 0.5))


def best(scores: NDArray[np.floating[Any]], count: int, slack: float = 0.0) -> NDArray[np.intp]:
    """Give the positions of the `count` highest scores, and of all within `slack` of the last."""
    if len(scores) <= count:
        return np.arange(len(scores))
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.flatnonzero(scores >= least - slack)
