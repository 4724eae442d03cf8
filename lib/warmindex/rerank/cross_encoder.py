"""A cross-encoder: query and text read together by one model, which gives one number.

The usual export for sequence classification: a folder with tokenizer.json, onnx/model.onnx
(input_ids, attention_mask and maybe token_type_ids in, one logit a pair out) and a
tokenizer_config.json that says how long a pair may be. Nogueira and Cho, "Passage Re-ranking
with BERT" (2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from warmindex.embedders.base import FloatVector
from warmindex.embedders.errors import ExtraMissingError, MisconfiguredError
from warmindex.embedders.local_model import model_files
from warmindex.embedders.local_model.onnx_encoder import (
    batch_places,
    default_threads,
    open_session,
    open_tokenizer,
    pad_id,
)
from warmindex.rerank.worker import Worker

_INSTALL: Final = "pip install 'warmindex[rerank]'"


class CrossEncoder:
    """A `Scorer` over the model in a folder.

    `max_tokens` of a pair overrides what the folder says; longer ones are cut, the longer
    side first. The model is loaded at the first call, and its errors (ExtraMissingError,
    MisconfiguredError) show there.
    """

    def __init__(
        self, folder: str | Path, *, max_tokens: int | None = None, threads: int | None = None
    ) -> None:
        path = Path(folder)
        self._worker = Worker(lambda: _Model(path, max_tokens, threads or default_threads()))

    async def scores(
        self, query: str, texts: Sequence[str], *, deadline: float | None = None
    ) -> FloatVector:
        """See `Scorer`: the model's logits."""
        found = np.empty(len(texts), dtype=np.float32)
        pairs = [(query, text) for text in texts]
        encodings = await self._worker.run(lambda model: model.tokenize(pairs), deadline)
        for batch in batch_places([len(encoding.ids) for encoding in encodings]):
            rows = [encodings[place] for place in batch]
            found[list(batch)] = await self._worker.run(
                lambda model, rows=rows: model.logits(rows),  # type: ignore[misc]
                deadline,
            )
        return found

    async def close(self) -> None:
        """See `Scorer`."""
        await self._worker.close()


class _Model:
    """A loaded model. Synchronous."""

    def __init__(self, path: Path, max_tokens: int | None, threads: int) -> None:
        try:
            onnxruntime: Any = import_module("onnxruntime")
            tokenizers: Any = import_module("tokenizers")
        except ImportError as error:
            raise ExtraMissingError(
                f"a cross-encoder needs {error.name}; run: {_INSTALL}"
            ) from error
        self._folder = model_files.open_folder(path, max_tokens)
        self._tokenizer = open_tokenizer(tokenizers, self._folder)
        self._pad_id = pad_id(self._tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self._folder.max_tokens, strategy="longest_first")
        self._session = open_session(onnxruntime, self._folder, threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        outputs = [node.name for node in self._session.get_outputs()]
        self._output = "logits" if "logits" in outputs else outputs[0]

    def tokenize(self, pairs: Sequence[tuple[str, str]]) -> list[Any]:
        encodings: list[Any] = self._tokenizer.encode_batch(pairs)
        return encodings

    def logits(self, rows: Sequence[Any]) -> FloatVector:
        """One number a row, float32 (rows,)."""
        shape = (len(rows), max(len(row.ids) for row in rows))
        ids = np.full(shape, self._pad_id, dtype=np.int64)
        mask, types = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        for position, row in enumerate(rows):
            ids[position, : len(row.ids)] = row.ids
            mask[position, : len(row.ids)] = 1
            types[position, : len(row.ids)] = row.type_ids
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        known = {name: value for name, value in feed.items() if name in self._inputs}
        (logits,) = self._session.run([self._output], known)
        if logits.size != len(rows):
            raise MisconfiguredError(
                f"{self._folder.path} gives an array of shape {logits.shape} for {len(rows)} "
                "pairs, and one number a pair is wanted; give a model with one label",
                field="folder",
            )
        return np.asarray(logits, dtype=np.float32).reshape(-1)
