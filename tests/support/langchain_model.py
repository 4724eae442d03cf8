"""A model of LangChain's for tests, that counts and that can be told to refuse."""

from __future__ import annotations

from collections import Counter

import numpy as np
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

WIDTH = 16
TEXTS = [f"text number {n}" for n in range(140)]


class Model(Embeddings):
    """Gives each text its own row, always the same."""

    def __init__(self, width: int = WIDTH) -> None:
        self._fake = DeterministicFakeEmbedding(size=width)
        self.texts: Counter[str] = Counter()
        self.batches: list[int] = []
        self.queries = 0
        self.guilty: set[str] = set()
        self.away = False
        self.rows: dict[str, list[float]] = {}
        self.running = 0
        self.running_max = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            self.batches.append(len(texts))
            if self.away:
                raise ConnectionError("the model is away")
            if refused := self.guilty & set(texts):
                raise ValueError(f"refused: {sorted(refused)}")
            self.texts.update(texts)
            return [self.row(text) for text in texts]
        finally:
            self.running -= 1

    def row(self, text: str) -> list[float]:
        """What it gives for a text."""
        return self.rows.get(text) or self._fake.embed_query(ascii(text))

    def embed_query(self, text: str) -> list[float]:
        self.queries += 1
        return self.row(text)


def same(rows: list[list[float]], model: Model, texts: list[str]) -> bool:
    """Whether rows are the model's own, as float32."""
    expected = np.array([model.row(text) for text in texts], np.float32)
    return np.array_equal(np.array(rows), expected.astype(np.float64))
