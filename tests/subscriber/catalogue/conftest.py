"""Catalogues between a stand-in embedding server and an index."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.embedding_server import EmbeddingServer
from support.fleet import backend, index
from support.server import ServerHere
from warmindex.embedders import Embedder, EmbedderOptions, open_embedder
from warmindex_subscriber.catalogue import Catalogue

Open = Callable[..., Catalogue]

__all__ = ["backend", "index", "open_catalogue"]


@pytest.fixture
async def open_catalogue(index: ServerHere, backend: EmbeddingServer) -> AsyncIterator[Open]:
    """Opens catalogues over the stand-in embedder and the index."""
    embedders: list[Embedder] = []

    def open_one(replica_id: str = "catalogue/a", **options: Any) -> Catalogue:
        embedders.append(open_embedder(EmbedderOptions(kind="tei", urls=(backend.url,))))
        return Catalogue(embedders[-1], index.client, replica_id=replica_id, **options)

    yield open_one
    for embedder in embedders:
        await embedder.close()
