"""The local embedder: a sentence encoder in this process, computed in a thread.

    texts -> prepare -> plan (tokens, batches) -> one batch at a time in the thread -> assemble

Batches go to the thread one by one, so that a question asked during a large build waits
for one batch and not for the build.

The model has no adapters: `adapter_id` only names the partition that its caller has in
mind, and the vectors of all partitions are the same.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from warmindex.embedders import vectors
from warmindex.embedders.base import (
    Embedded,
    FailureKind,
    FloatVector,
    TextFailure,
)
from warmindex.embedders.errors import DeadlinePassedError, TextRefusedError
from warmindex.embedders.local_model import model_files, use_encoder
from warmindex.embedders.local_model.encoder import Batch, Encoder
from warmindex.embedders.local_model.onnx_encoder import OnnxEncoder, default_threads
from warmindex.embedders.local_model.use_encoder import USE_MODEL, UseEncoder
from warmindex.embedders.texts import assemble, prepare
from warmindex.identity import ModelIdentity

T = TypeVar("T")

_NAME: Final = "local"
_TOO_LATE: Final = "the deadline came before this text's turn"


class LocalEmbedder:
    """An `Embedder` over a model in this process.

    `model` is empty for the one that comes with the extra `local`, the name of one that
    warmindex knows ("all-MiniLM-L6-v2", "universal-sentence-encoder-multilingual"), or a
    folder with tokenizer.json and onnx/model.onnx. The model is loaded at the first call, and
    shared by all embedders of the process. Raises nothing here: a missing package or a
    folder that is no model shows at the first call.
    """

    def __init__(
        self,
        model: str = "",
        *,
        max_tokens: int | None = None,
        threads: int | None = None,
        document_prompt: str = "",
        query_prompt: str = "",
    ) -> None:
        self._load = lambda: shared_encoder(model, max_tokens, threads or default_threads())
        self._document_prompt = document_prompt
        self._query_prompt = query_prompt
        self._encoder: Encoder | None = None
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="warmindex-local")

    async def identity(self) -> ModelIdentity:
        """The identity of the loaded files, prompt included."""
        encoder = await self._loaded()
        return replace(encoder.identity, document_prompt=self._document_prompt)

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        adapter_id: str = "",  # noqa: ARG002 - the model has no adapters
        deadline: float | None = None,
    ) -> Embedded:
        """See `Embedder`. `truncated_count` is known where the model cuts texts."""
        return await self._embed(texts, self._document_prompt, deadline)

    async def embed_query(
        self,
        text: str,
        *,
        adapter_id: str = "",  # noqa: ARG002 - the model has no adapters
        deadline: float | None = None,
    ) -> FloatVector:
        """See `Embedder`."""
        embedded = await self._embed([text], self._query_prompt, deadline)
        if embedded.failures:
            raise TextRefusedError(f"the text {embedded.failures[0].message}", backend=_NAME)
        vector: FloatVector = embedded.vectors[0]
        return vector

    async def close(self) -> None:
        """Let the thread end. A batch that runs is not waited for."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._encoder = None

    async def _loaded(self) -> Encoder:
        if self._encoder is None:
            self._encoder = await self._in_thread(self._load)
        return self._encoder

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _embed(self, texts: Sequence[str], prompt: str, deadline: float | None) -> Embedded:
        prepared = prepare(texts)
        if not prepared.unique:
            return assemble(prepared, {}, {})
        prompted = [prompt + text for text in prepared.unique]
        found: dict[int, FloatVector] = {}
        failures: dict[int, TextFailure] = {}
        truncated: int | None = None
        try:
            async with asyncio.timeout_at(deadline):
                encoder = await self._loaded()
                for batch in await self._in_thread(lambda: encoder.plan(prompted)):
                    await self._run(encoder, batch, found, failures)
                    if batch.truncated_count is not None:
                        truncated = (truncated or 0) + batch.truncated_count
        except TimeoutError:
            if not found:
                raise DeadlinePassedError("the deadline came first", backend=_NAME) from None
            late = TextFailure(FailureKind.UNAVAILABLE, _TOO_LATE)
            for place in range(len(prompted)):
                if place not in found:
                    failures.setdefault(place, late)
        return assemble(prepared, found, failures, truncated_count=truncated)

    async def _run(
        self,
        encoder: Encoder,
        batch: Batch,
        found: dict[int, FloatVector],
        failures: dict[int, TextFailure],
    ) -> None:
        matrix = await self._in_thread(lambda: encoder.encode(batch))
        bad = vectors.bad_rows(matrix)
        for row, place in enumerate(batch.places):
            if row in bad:
                failures[place] = bad[row]
            else:
                found[place] = matrix[row]


_shared: weakref.WeakValueDictionary[object, Encoder] = weakref.WeakValueDictionary()
_shared_lock = threading.Lock()


def shared_encoder(model: str, max_tokens: int | None, threads: int) -> Encoder:
    """The process's one copy of a model, loaded and verified at its first use.

    Raises ExtraMissingError or MisconfiguredError.
    """
    folder = _folder(model, max_tokens)
    with _shared_lock:
        key: object = (USE_MODEL, threads)
        if folder is not None:
            # A file that was replaced on disk is another model, also in one process.
            key = (folder.path, folder.max_tokens, threads, model_files.signature(folder))
        encoder = _shared.get(key)
        if encoder is None:
            encoder = UseEncoder(threads) if folder is None else OnnxEncoder(folder, threads)
            _shared[key] = encoder
        return encoder


def _folder(model: str, max_tokens: int | None) -> model_files.ModelFolder | None:
    """The folder that a name means; None for the encoder that has none."""
    if model == USE_MODEL:
        return None
    if model in {"", model_files.DEFAULT_MODEL}:
        folder = model_files.default_folder()
        if folder is not None:
            return folder if max_tokens is None else replace(folder, max_tokens=max_tokens)
        if not model and use_encoder.is_installed():
            return None
        raise model_files.missing_extra(f"the model {model or model_files.DEFAULT_MODEL}")
    return model_files.open_folder(Path(model), max_tokens)
