"""A sentence encoder over onnxruntime and tokenizers. Synchronous; runs in a thread.

Mean pooling over the tokens, then unit length, as sentence-transformers does it. The
tokenizer's own truncation and padding are replaced: a shipped tokenizer.json may cut
texts at half of what the model takes, and pad each one to that length.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from warmindex.embedders.base import FloatMatrix
from warmindex.embedders.errors import MisconfiguredError
from warmindex.embedders.local_model import model_files
from warmindex.embedders.local_model.encoder import Batch
from warmindex.identity import ModelIdentity, truncation_at

# One run of the model: at most this many texts, and this many tokens with padding. Texts
# are sorted by length, so a batch pads little. Beyond about 800 tokens the activations no
# longer stay in a core's cache: measured, 10 to 20 % more CPU time for the same texts.
BATCH_TEXTS_MAX: Final = 32
BATCH_TOKENS_MAX: Final = 768
# Beyond this many threads a small encoder gains nothing and takes from its neighbours.
THREADS_MAX: Final = 8
_CGROUP_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")

IntMatrix = npt.NDArray[np.int64]


class OnnxEncoder:
    """One loaded model. `encode` may be called from several threads.

    Raises ExtraMissingError without the extra `local`, MisconfiguredError for a folder
    whose files are not a sentence encoder.
    """

    def __init__(self, folder: model_files.ModelFolder, threads: int) -> None:
        try:
            onnxruntime: Any = import_module("onnxruntime")
            tokenizers: Any = import_module("tokenizers")
        except ImportError as error:
            raise model_files.missing_extra(error.name or str(error)) from error
        files = model_files.digests(folder)
        self._tokenizer = open_tokenizer(tokenizers, folder)
        self._pad_id = pad_id(self._tokenizer)
        # Marks of a text's beginning and end: they stand for no word of it.
        self.special_ids = frozenset(
            token_id
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(folder.max_tokens)
        self._session = open_session(onnxruntime, folder, threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._output = _token_output(self._session, folder)
        self.identity = ModelIdentity(
            provider="local",
            model=folder.name,
            revision=model_files.revision(files),
            dtype="float32",
            pooling="mean",
            normalized=True,
            truncation=truncation_at("right", folder.max_tokens),
        )

    def plan(self, texts: Sequence[str]) -> list[Batch]:
        """Tokenise, sort by length, cut into batches."""
        encodings = self._tokenizer.encode_batch(list(texts))
        lengths = [len(encoding.ids) for encoding in encodings]
        return [
            Batch(
                places,
                [encodings[place].ids for place in places],
                sum(1 for place in places if encodings[place].overflowing),
            )
            for places in batch_places(lengths)
        ]

    def encode(self, batch: Batch) -> FloatMatrix:
        """Unit vectors of one batch, float32 (len(batch.places), d)."""
        return _pool(*self.token_states(batch))

    def token_states(self, batch: Batch) -> tuple[npt.NDArray[np.float32], IntMatrix]:
        """A vector a token, float32 (rows, tokens, d), and which tokens there are, 0 or 1
        (rows, tokens), for the rows of one batch. `batch.payload` has the tokens' ids.
        """
        rows: list[list[int]] = batch.payload
        length = max(len(row) for row in rows)
        ids = np.full((len(rows), length), self._pad_id, dtype=np.int64)
        mask = np.zeros((len(rows), length), dtype=np.int64)
        for position, row in enumerate(rows):
            ids[position, : len(row)] = row
            mask[position, : len(row)] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        known = {name: value for name, value in feed.items() if name in self._inputs}
        (states,) = self._session.run([self._output], known)
        return np.asarray(states, dtype=np.float32), mask


def batch_places(lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Places, shortest first, in batches that keep both limits.

    `lengths` are in tokens. A text longer than BATCH_TOKENS_MAX is a batch of its own.
    """
    result: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        last = result[-1] if result else None
        if (
            last is None
            or len(last) == BATCH_TEXTS_MAX
            or (len(last) + 1) * lengths[place] > BATCH_TOKENS_MAX
        ):
            result.append([place])
        else:
            last.append(place)
    return [tuple(places) for places in result]


def default_threads() -> int:
    """As many threads as this process may use cores, a container's quota included."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, _quota_cores(_CGROUP_CPU_MAX), THREADS_MAX))


def _quota_cores(path: Path) -> int:
    """A container's CPU quota in whole cores; THREADS_MAX where there is none."""
    try:
        quota, period = path.read_text(encoding="ascii").split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # No cgroup here, or "max": no quota.
        return THREADS_MAX


def _pool(states: npt.NDArray[np.float32], mask: IntMatrix) -> FloatMatrix:
    weights = mask.astype(np.float32)
    # (rows, 1, tokens) @ (rows, tokens, d): the sum over a row's own tokens.
    sums = np.matmul(weights[:, None, :], states)[:, 0, :]
    means = sums / weights.sum(axis=1, keepdims=True)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    # A row of zeros stays one, and is found by whoever checks vectors.
    return np.asarray(means / np.maximum(norms, np.finfo(np.float32).tiny), dtype=np.float32)


def open_tokenizer(tokenizers: Any, folder: model_files.ModelFolder) -> Any:
    """The folder's tokenizer. Raises MisconfiguredError."""
    file = folder.path / model_files.TOKENIZER
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # The library raises bare Exception.
        raise MisconfiguredError(f"{file} cannot be loaded: {error}", field="model") from error


def open_session(onnxruntime: Any, folder: model_files.ModelFolder, threads: int) -> Any:
    """The folder's graph, loaded. Raises MisconfiguredError."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # Waiting threads sleep: a gateway has other work for its cores than their spinning.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    graph = folder.path / model_files.GRAPH
    try:
        return onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own exceptions share no base.
        raise MisconfiguredError(f"{graph} cannot be loaded: {error}", field="model") from error


def _token_output(session: Any, folder: model_files.ModelFolder) -> str:
    outputs: dict[str, int] = {node.name: len(node.shape) for node in session.get_outputs()}
    for name in ("last_hidden_state", "token_embeddings", *outputs):
        if outputs.get(name) == 3:
            return name
    raise MisconfiguredError(
        f"{folder.path / model_files.GRAPH} has no output of one vector a token "
        f"(it has {', '.join(outputs)}); export the model for feature extraction",
        field="model",
    )


def pad_id(tokenizer: Any) -> int:
    """The id of what fills shorter rows; it is masked, so any will do."""
    if tokenizer.padding:
        return int(tokenizer.padding["pad_id"])
    ids = (tokenizer.token_to_id(token) for token in ("[PAD]", "<pad>"))
    return next((token_id for token_id in ids if token_id is not None), 0)
