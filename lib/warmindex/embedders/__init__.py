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
from warmindex.embedders.factory import AdapterRule, EmbedderOptions, open_embedder, split_urls
from warmindex.embedders.local_model import LocalEmbedder
from warmindex.embedders.openai import OpenAIEmbedder
from warmindex.embedders.tei import TeiEmbedder

__all__ = [
    "AdapterRule",
    "BackendUnavailableError",
    "BadAnswerError",
    "DeadlinePassedError",
    "Embedded",
    "Embedder",
    "EmbedderError",
    "EmbedderOptions",
    "ExtraMissingError",
    "FailureKind",
    "FloatMatrix",
    "FloatVector",
    "IdentityRefusedError",
    "IdentityUnavailableError",
    "LocalEmbedder",
    "MisconfiguredError",
    "OpenAIEmbedder",
    "TeiEmbedder",
    "TextFailure",
    "TextRefusedError",
    "UnauthorizedError",
    "open_embedder",
    "split_urls",
]
