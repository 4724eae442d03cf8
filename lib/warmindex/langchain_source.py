"""A LangChain `Embeddings` as the embedder of one build.

LangChain's interface has no answer for one text that fails: a whole call raises. A batch that
failed is therefore asked for again in halves, so that a text which is refused does not take its
neighbours down. Where nothing at all succeeds that is stopped soon: then it is not the texts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from warmindex.embedders import (
    BadAnswerError,
    Embedded,
    FailureKind,
    FloatVector,
    MisconfiguredError,
    TextFailure,
)
from warmindex.identity import ModelIdentity

# Failures of batches and halves without one success between them, before the backend is taken
# to be away: enough to look at eighths of a batch.
FAILURES_MAX: Final = 16
# A backend that is away may take long to say so: then halves are not tried for longer.
FAILURES_S_MAX: Final = 10.0

Compute = Callable[[list[str]], Awaitable[Sequence[Sequence[float]]]]


class LangChainSource:
    """Embeds the texts of one build by `compute`; one call at a time, as LangChain does.

    `errors` has what was raised for each text without a vector. `unpublished` has vectors that
    no index could hold (a zero, an infinity, another width): they are the caller's alone.
    """

    def __init__(self, identity: ModelIdentity, compute: Compute, batch_size: int | None) -> None:
        self.errors: dict[str, Exception] = {}
        self.unpublished: dict[str, list[float]] = {}
        self._identity = identity
        self._compute = compute
        self._batch_size = batch_size
        self._turn = asyncio.Lock()
        self._failures = 0
        self._failed_at_s = 0.0
        self._gave_up: Exception | None = None

    async def identity(self) -> ModelIdentity:
        """The identity that the user has named."""
        return self._identity

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        adapter_id: str = "",  # noqa: ARG002 - an adapter is a matter of the model behind
        deadline: float | None = None,  # noqa: ARG002 - LangChain has none
    ) -> Embedded:
        """The vectors of texts; a text that fails, fails alone. Raises nothing."""
        async with self._turn:
            rows = await self._rows(texts)
        return self._embedded(texts, rows)

    async def embed_query(
        self, text: str, *, adapter_id: str = "", deadline: float | None = None
    ) -> FloatVector:
        """Queries do not come here: they go to the model behind, straight."""
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""

    # ---- computing ---------------------------------------------------------------------

    async def _rows(self, texts: Sequence[str]) -> dict[int, Sequence[float]]:
        """Rows by position; what is missing is in `errors`."""
        rows: dict[int, Sequence[float]] = {}
        waiting = deque(self._batches(len(texts)))
        while waiting:
            positions = waiting.popleft()
            if self._gave_up is not None:
                self.errors.update((texts[each], self._gave_up) for each in positions)
                continue
            try:
                computed = await self._computed([texts[each] for each in positions])
            except Exception as error:  # noqa: BLE001 - whatever a foreign model raises
                self._note_failure(error)
                middle = len(positions) // 2
                if middle:
                    # Behind what waits: a success anywhere is seen before going deeper.
                    waiting += (positions[:middle], positions[middle:])
                else:
                    self.errors[texts[positions[0]]] = error
            else:
                self._failures = 0
                rows.update(zip(positions, computed, strict=True))
        return rows

    async def _computed(self, batch: list[str]) -> Sequence[Sequence[float]]:
        rows = await self._compute(batch)
        if len(rows) != len(batch):
            raise BadAnswerError(f"{len(rows)} vectors came back for {len(batch)} texts")
        return rows

    def _batches(self, count: int) -> Iterator[range]:
        size = self._batch_size or max(1, count)
        for start in range(0, count, size):
            yield range(start, min(count, start + size))

    def _note_failure(self, error: Exception) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._failures:
            self._failed_at_s = now_s
        self._failures += 1
        if self._failures >= FAILURES_MAX or (
            self._failures > 1 and now_s - self._failed_at_s > FAILURES_S_MAX
        ):
            self._gave_up = error

    # ---- what came back ----------------------------------------------------------------

    def _embedded(self, texts: Sequence[str], rows: dict[int, Sequence[float]]) -> Embedded:
        failures: dict[int, TextFailure] = {}
        good: dict[int, FloatVector] = {}
        width = self._identity.dimensions
        for position, text in enumerate(texts):
            if position not in rows:
                error = self.errors[text]
                failures[position] = TextFailure(FailureKind.REJECTED, str(error)[:200])
                continue
            row = _as_row(rows[position])
            width = width or row.size
            if row.size == width and np.isfinite(row).all() and row.any():
                good[position] = row
            else:
                failures[position] = self._keep_back(text, rows[position], row)
        vectors = np.full((len(texts), width if good else 0), np.nan, np.float32)
        for position, row in good.items():
            vectors[position] = row
        return Embedded(vectors, failures, sent_count=len(rows))

    def _keep_back(self, text: str, given: Sequence[float], row: FloatVector) -> TextFailure:
        """Give a vector to the caller alone; one that contradicts the identity to nobody."""
        if self._identity.dimensions and row.size != self._identity.dimensions:
            self.errors[text] = MisconfiguredError(
                f"the model gives vectors of {row.size} numbers, and its identity says "
                f"{self._identity.dimensions}: name the identity of this model",
                field="identity",
            )
        else:
            self.unpublished[text] = [float(value) for value in given]
        return TextFailure(FailureKind.BAD_VECTOR, "a vector that no index can hold")


def _as_row(given: Any) -> FloatVector:
    """float32 (d,); what is too large for it becomes infinite, and is seen as that."""
    with np.errstate(over="ignore"):
        return np.asarray(given, np.float64).astype(np.float32).reshape(-1)
