"""A sentence encoder in this process: the default, and what needs no server."""

from __future__ import annotations

from warmindex.embedders.local_model.embedder import LocalEmbedder

__all__ = ["LocalEmbedder"]
