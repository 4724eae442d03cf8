"""The words of one partition's documents, in SQLite's FTS5, in memory.

    put, discard ----> waiting (a dictionary) ----> FTS5, at the next search
    query ----> terms ----> one FTS5 query a term ----> BM25 and coverage, added up

Why FTS5, and what else was measured: docs/decisions/0015-words-engine.md. The engine is made
at the first search, so a partition that nobody searches by words costs references to its
documents alone; `rest` lets go of an engine, and the next search makes it again.

What tokens.py cuts is all that FTS5 ever sees, as quoted words of letters, digits, marks,
pictographs, + and #, so a query has no syntax. How a document is scored: tally.py.
"""

from __future__ import annotations

import sqlite3
from itertools import islice
from sys import getsizeof, intern
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from warmindex.index.spelling import CORRECTED_CHARACTERS_MIN
from warmindex.index.tally import Tally, best
from warmindex.index.tokens import chosen_terms, description_words, name_words

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from warmindex.event import Document

# Small pages: most partitions are small, and each of FTS5's five tables takes one at least.
PAGE_BYTES: Final = 1024

# What a connection occupies beside its pages, measured over 300 of them.
CONNECTION_BYTES: Final = 42_000

_CREATE: Final = f"""
pragma page_size = {PAGE_BYTES};
pragma journal_mode = off;
create virtual table words using fts5(
    name, description, content = '', tokenize = "porter ascii tokenchars '+#'"
);
"""
_INSERT: Final = "insert into words(rowid, name, description) values (?, ?, ?)"
_DELETE: Final = "insert into words(words, rowid, name, description) values ('delete', ?, ?, ?)"


class Matches(NamedTuple):
    """Documents that have a word of the query: their rows, and their scores, above 0.

    misspelt: the share of the query's words that were found only by correcting them.
    """

    rows: NDArray[np.intp]
    scores: NDArray[np.float64]
    misspelt: float = 0.0


class WordIndex:
    """Documents of one partition by content hash, ranked by words; see the module's text."""

    def __init__(self) -> None:
        """Make an index without documents."""
        self._engine: sqlite3.Connection | None = None
        self._rows: dict[bytes, int] = {}
        self._keys: list[bytes | None] = []  # row -> key; None where the row is free
        self._documents: list[Document | None] = []  # row -> what the engine has of it
        self._parts: list[int] = []  # row -> distinct parts of its name
        self._free: list[int] = []
        # Every word since the engine was made: enough to guess what a misspelt one was
        # meant to be, and FTS5 says whether it is still there.
        self._vocabulary: set[str] = set()
        self._waiting: dict[bytes, Document | None] = {}  # None: to be taken out
        self._size = 0

    def __len__(self) -> int:
        """Count the documents."""
        return self._size

    @property
    def memory_bytes(self) -> int:
        """Estimate what the engine and its bookkeeping occupy, documents' texts apart."""
        lists = (self._keys, self._documents, self._parts, self._free)
        books = sum(map(getsizeof, (self._rows, self._waiting, self._vocabulary, *lists)))
        if self._engine is None:
            return books
        pages: int = self._engine.execute("pragma page_count").fetchone()[0]
        return books + CONNECTION_BYTES + pages * PAGE_BYTES

    # -- changes ---------------------------------------------------------------------

    def put(self, key: bytes, document: Document) -> None:
        """Have `document` under `key`, in place of an earlier one."""
        if not self._has(key):
            self._size += 1
        self._waiting[key] = document

    def discard(self, key: bytes) -> None:
        """Forget the document of `key`, if there is one."""
        if not self._has(key):
            return
        self._size -= 1
        if key in self._rows:
            self._waiting[key] = None
        else:
            del self._waiting[key]

    def absorb(self, documents_max: int | None = None) -> bool:
        """Hand waiting changes to the engine, some at a time; say whether any are left.

        A search does this by itself; a server can do it in small steps before.
        """
        if self._engine is None:
            self._engine = self._make_engine()
        some = list(islice(self._waiting, documents_max))
        with self._engine:
            self._engine.execute("begin")
            for key in some:
                self._apply(self._engine, key, self._waiting.pop(key))
        if not self._size:
            self._forget_engine()
        return bool(self._waiting)

    def rest(self) -> None:
        """Let go of the engine; the next search makes it again from the documents."""
        for key, row in self._rows.items():
            document = self._documents[row]
            if document is not None:
                self._waiting.setdefault(key, document)
        self._waiting = {key: doc for key, doc in self._waiting.items() if doc is not None}
        self._forget_engine()

    # -- reads -----------------------------------------------------------------------

    def search(
        self,
        query_text: str,
        keywords: Sequence[str],
        limit: int,
        allowed: Collection[bytes] | None = None,
    ) -> list[tuple[bytes, float]]:
        """Rank the documents that have a word of the query, the best `limit` of them.

        Scores are finite and above 0, higher is better; ties go by key.
        """
        matches = self.matches(query_text, keywords, allowed)
        order = best(matches.scores, limit)
        pairs = [
            (self.key_at(row), score)
            for row, score in zip(
                matches.rows[order].tolist(), matches.scores[order].tolist(), strict=True
            )
        ]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:limit]

    def matches(
        self, query_text: str, keywords: Sequence[str], allowed: Collection[bytes] | None = None
    ) -> Matches:
        """Give every document that has a word of the query, in no order."""
        if self._waiting:
            self.absorb()
        if self._engine is None or not self._size:
            return Matches(np.empty(0, np.intp), np.empty(0, np.float64))
        tally = Tally(self._engine, self._vocabulary, len(self._keys), self._size)
        tally.add_all(*chosen_terms(query_text, keywords))
        found = tally.matched()
        if allowed is not None:
            get = self._rows.get
            mask = np.zeros(len(self._keys), dtype=bool)
            mask[[row for row in map(get, allowed) if row is not None]] = True
            found = found[mask[found]]
        return Matches(found, tally.scores(found, self._parts), tally.misspelt)

    def key_at(self, row: int) -> bytes:
        """Give the key of a row that `matches` named."""
        key = self._keys[row]
        if key is None:
            raise KeyError(f"row {row} has no document")
        return key

    # -- inside ----------------------------------------------------------------------

    def _has(self, key: bytes) -> bool:
        if key in self._waiting:
            return self._waiting[key] is not None
        return key in self._rows

    def _make_engine(self) -> sqlite3.Connection:
        # Any one thread at a time may use it: a server may search in a thread of its pool.
        engine = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=8
        )
        engine.executescript(_CREATE)
        return engine

    def _forget_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = None
        self._rows = {}
        self._keys, self._documents, self._parts, self._free = [], [], [], []
        self._vocabulary = set()

    def _apply(self, engine: sqlite3.Connection, key: bytes, document: Document | None) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            earlier = self._documents[row]
            assert earlier is not None  # noqa: S101 - what has a row has a document
            # A table without content must be told what to take out.
            engine.execute(_DELETE, (row, *_cut(earlier).columns))
            self._keys[row] = self._documents[row] = None
            self._free.append(row)
        if document is None:
            return
        cut = _cut(document)
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._keys)
            self._keys.append(None)
            self._documents.append(None)
            self._parts.append(0)
        engine.execute(_INSERT, (row, *cut.columns))
        self._vocabulary.update(
            # The same words stand in many partitions: one string serves them all.
            intern(word)
            for word in cut.words
            if len(word) >= CORRECTED_CHARACTERS_MIN - 1
        )
        self._rows[key] = row
        self._keys[row], self._documents[row], self._parts[row] = key, document, cut.parts


class _Cut(NamedTuple):
    columns: tuple[str, str]
    words: list[str]
    parts: int


def _cut(document: Document) -> _Cut:
    name, parts = name_words(document.name)
    description = description_words(document.description)
    return _Cut((" ".join(name), " ".join(description)), name + description, parts)
