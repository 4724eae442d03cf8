"""An index and a stand-in embedding server, both real, and builders between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.embedding_server import EmbeddingServer
from support.fleet import backend, index
from support.server import ServerHere
from warmindex.build import Builder
from warmindex.embedders import Embedder, EmbedderOptions, open_embedder

__all__ = ["backend", "index", "open_builder"]


@pytest.fixture
async def open_builder(
    index: ServerHere, backend: EmbeddingServer
) -> AsyncIterator[Callable[..., Builder]]:
    """Opens builders over the stand-in; `client=None` for one without an index."""
    opened: list[Embedder] = []

    def open_one(*, embedder: dict[str, Any] | None = None, **options: Any) -> Builder:
        chosen = {"kind": "tei", "urls": (backend.url,)} | (embedder or {})
        opened.append(open_embedder(EmbedderOptions(**chosen)))
        return Builder(opened[-1], **({"client": index.client, "replica_id": "gateway"} | options))

    yield open_one
    for each in opened:
        await each.close()
