"""A session's own tools, with their vectors and words: searched in process, in microseconds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from warmindex.event import Document, FloatMatrix
from warmindex.index.search import Hit, SearchOptions, search
from warmindex.index.vectors import VectorStore
from warmindex.index.words import WordIndex
from warmindex.tools import Tool


class SessionTools:
    """Tools by the key of their text; several tools may share one."""

    def __init__(self, options: SearchOptions | None = None) -> None:
        self._options = options or SearchOptions()
        self._tools: dict[bytes, list[Tool]] = {}
        self._documents: dict[bytes, Document] = {}
        self._words: WordIndex | None = None
        self._vectors: VectorStore | None = None
        self._wordless: frozenset[bytes] = frozenset()

    def replace(self, grouped: Mapping[bytes, list[Tool]], refused: Sequence[Tool]) -> None:
        """Take another set of tools; what stays keeps its vector.

        `refused` tools have a text that is not valid Unicode: they are found by words alone.
        """
        mended = {_local_key(tool): [tool] for tool in refused}
        self._wordless = frozenset(mended)
        self._tools = {**grouped, **mended}
        for content_hash in self._documents.keys() - self._tools.keys():
            del self._documents[content_hash]
            if self._words is not None:
                self._words.discard(content_hash)
            if self._vectors is not None:
                self._vectors.discard((content_hash,))
        for content_hash in self._tools.keys() - self._documents.keys():
            tool = self._tools[content_hash][0]
            document = Document(_mended(tool.name), _mended(tool.description))
            self._documents[content_hash] = document
            if self._words is not None:
                self._words.put(content_hash, document)

    def without_vector(self) -> Iterator[tuple[bytes, Tool]]:
        """The texts that could have a vector and have none, one tool for each."""
        for content_hash, tools in self._tools.items():
            has = self._vectors is not None and content_hash in self._vectors
            if not has and content_hash not in self._wordless:
                yield content_hash, tools[0]

    @property
    def has_vectors(self) -> bool:
        """Whether any tool can be found by meaning."""
        return self._vectors is not None and len(self._vectors) > 0

    def drop_vectors(self) -> None:
        """Forget all vectors: they are of another model."""
        self._vectors = None

    def put_vectors(self, vectors: Mapping[bytes, FloatMatrix]) -> None:
        """Keep vectors, float32 (dimensions,) each and all of one width, of tools still here."""
        wanted = [content_hash for content_hash in vectors if content_hash in self._tools]
        if not wanted:
            return
        rows = np.stack([vectors[content_hash] for content_hash in wanted])
        if self._vectors is None or self._vectors.dimensions != rows.shape[1]:
            self._vectors = VectorStore(rows.shape[1])
        self._vectors.put(wanted, rows)

    def _word_index(self) -> WordIndex:
        """The words of all tools, indexed when the first search asks for them."""
        if self._words is None:
            self._words = WordIndex()
            for content_hash, document in self._documents.items():
                self._words.put(content_hash, document)
        return self._words

    def absorb(self, documents_max: int) -> bool:
        """Index the words of some tools that are new; whether any are left.

        A search does the rest by itself.
        """
        return self._word_index().absorb(documents_max)

    def search(
        self,
        query: FloatMatrix | None,
        text: str,
        keywords: Sequence[str],
        limit: int,
        max_distance: float,
    ) -> list[tuple[Tool, Hit]]:
        """The best tools, best first; tools of one text are answers of their own."""
        vectors = self._vectors
        if query is not None and (vectors is None or vectors.dimensions != len(query)):
            query = None
        if query is None and not (text.strip() or any(word.strip() for word in keywords)):
            return []
        hits = search(
            vectors if query is not None else None,
            self._word_index(),
            query=query,
            query_text=text,
            keywords=keywords,
            allowed=None,
            limit=limit,
            max_distance=max_distance,
            options=self._options,
        )
        found = [(tool, hit) for hit in hits for tool in self._tools[hit.content_hash]]
        return found[:limit]


def _local_key(tool: Tool) -> bytes:
    """A key for a text that has no content hash; it never leaves the session."""
    return hashlib.sha256(b"local\0" + tool.text.encode("utf-8", "surrogatepass")).digest()


def _mended(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()
