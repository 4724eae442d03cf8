"""Embedders: text in, vectors out, with an identity that says whose they are."""

from __future__ import annotations

from warmindex.embedders.base import (
    Embedded,
    Embedder,
    FailureKind,
    FloatMatrix,
    FloatVector,
    TextFailure,
)
from warmindex.embedders.errors import (
    BackendUnavailableError,
    BadAnswerError,
    DeadlinePassedError,
    EmbedderError,
    ExtraMissingError,
    IdentityRefusedError,
    IdentityUnavailableError,
    MisconfiguredError,
    TextRefusedError,
    UnauthorizedError,
)
from warmindex.embedders.local import LocalEmbedder

__all__ = [
    "BackendUnavailableError",
    "BadAnswerError",
    "DeadlinePassedError",
    "Embedded",
    "Embedder",
    "EmbedderError",
    "ExtraMissingError",
    "FailureKind",
    "FloatMatrix",
    "FloatVector",
    "IdentityRefusedError",
    "IdentityUnavailableError",
    "LocalEmbedder",
    "MisconfiguredError",
    "TextFailure",
    "TextRefusedError",
    "UnauthorizedError",
]
