"""Late interaction: each word of the query finds the word of the text that is most like it.

The score is the average, over the query's tokens, of the highest cosine that any token of the
text has with it (MaxSim: Khattab and Zaharia, "ColBERT", 2020). Texts' token vectors are kept,
so that a second question about the same tools computes only its own.

Works with any sentence encoder of the local embedder's layout, the one that comes with the
extra `local` too. That was trained for one vector a text: see docs/search.md for what to
expect of it here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from warmindex.embedders.base import FloatVector
from warmindex.embedders.errors import MisconfiguredError
from warmindex.embedders.local_model.embedder import shared_encoder
from warmindex.embedders.local_model.encoder import Batch
from warmindex.embedders.local_model.onnx_encoder import OnnxEncoder, default_threads
from warmindex.rerank.worker import Worker

# Token vectors that are kept, the least lately used going first: 48 MiB at 384 wide, enough
# for 700 tools of 90 tokens.
KEPT_TOKENS_MAX: Final = 65536

# Unit vectors of a text's tokens, (tokens, d). Half precision moves a cosine by 0.001.
TokenVectors = npt.NDArray[np.float16]


class LateInteraction:
    """A `Scorer` over the tokens of a sentence encoder.

    `model` is as in `LocalEmbedder`: empty for the one that the extra `local` brings, or a
    folder; both share one copy in memory. Loading errors show at the first call.
    """

    def __init__(
        self,
        model: str = "",
        *,
        max_tokens: int | None = None,
        threads: int | None = None,
        kept_tokens_max: int = KEPT_TOKENS_MAX,
    ) -> None:
        self._worker = Worker(
            lambda: _TokenEncoder(model, max_tokens, threads or default_threads())
        )
        self._kept: OrderedDict[str, TokenVectors] = OrderedDict()
        self._kept_tokens = 0
        self._kept_tokens_max = kept_tokens_max

    async def scores(
        self, query: str, texts: Sequence[str], *, deadline: float | None = None
    ) -> FloatVector:
        """See `Scorer`: average of the highest cosines, -1 to 1."""
        # The query is kept like any text: people ask twice.
        wanted = list(dict.fromkeys([query, *texts]))
        found = {text: self._kept[text] for text in wanted if text in self._kept}
        missing = [text for text in wanted if text not in found]
        batches = await self._worker.run(lambda model: model.encoder.plan(missing), deadline)
        for batch in batches:
            rows = await self._worker.run(
                lambda model, batch=batch: model.token_vectors(batch),  # type: ignore[misc]
                deadline,
            )
            for place, vectors in zip(batch.places, rows, strict=True):
                found[missing[place]] = vectors
                # At once: where a deadline ends this call, the next one goes on from here.
                self._keep(missing[place], vectors)
        for text in wanted:
            if text in self._kept:
                self._kept.move_to_end(text)
        return await self._worker.run(
            lambda _: max_similarities(found[query], [found[text] for text in texts]), deadline
        )

    async def close(self) -> None:
        """See `Scorer`."""
        await self._worker.close()
        self._kept.clear()
        self._kept_tokens = 0

    def _keep(self, text: str, vectors: TokenVectors) -> None:
        if text not in self._kept:
            self._kept_tokens += len(vectors)
        self._kept[text] = vectors
        while self._kept_tokens > self._kept_tokens_max:
            _, dropped = self._kept.popitem(last=False)
            self._kept_tokens -= len(dropped)


def max_similarities(query: TokenVectors, texts: Sequence[TokenVectors]) -> FloatVector:
    """MaxSim of a query's tokens (q, d) with those of each text, float32 (len(texts),).

    A query or a text without tokens has 0: it is like nothing.
    """
    result = np.zeros(len(texts), dtype=np.float32)
    lengths = [len(text) for text in texts]
    if len(query) == 0 or sum(lengths) == 0:
        return result
    # One product for all texts, in float32: half precision is slow on most processors.
    cosines = query.astype(np.float32) @ np.concatenate(texts).astype(np.float32).T
    starts = np.cumsum([0, *lengths[:-1]])
    filled = [place for place, length in enumerate(lengths) if length]
    best = np.maximum.reduceat(cosines, starts[filled], axis=1)
    result[filled] = best.mean(axis=0)
    return result


class _TokenEncoder:
    """A sentence encoder, asked for its tokens. Synchronous."""

    def __init__(self, model: str, max_tokens: int | None, threads: int) -> None:
        encoder = shared_encoder(model, max_tokens, threads)
        if not isinstance(encoder, OnnxEncoder):
            raise MisconfiguredError(
                "this model has one vector a text and none a token; give a folder with "
                "tokenizer.json and onnx/model.onnx",
                field="model",
            )
        self.encoder = encoder

    def token_vectors(self, batch: Batch) -> list[TokenVectors]:
        """Unit vectors of each row's tokens, marks of beginning and end left out."""
        states, _ = self.encoder.token_states(batch)
        norms = np.linalg.norm(states, axis=2, keepdims=True)
        units = (states / np.maximum(norms, np.finfo(np.float32).tiny)).astype(np.float16)
        special = self.encoder.special_ids
        rows: list[list[int]] = batch.payload
        return [
            units[position, [at for at, token in enumerate(ids) if token not in special]]
            for position, ids in enumerate(rows)
        ]
