"""A stand-in server over real HTTP, and embedders that talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import pytest
from support.embedding_server import EmbeddingServer, serving
from warmindex.embedders import Embedder, EmbedderOptions, open_embedder

Open: TypeAlias = Callable[..., Any]


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    """One stand-in server with everything in order."""
    async with serving() as started:
        yield started


@pytest.fixture
async def open_tei(server: EmbeddingServer) -> AsyncIterator[Open]:
    """Opens TEI embedders, of the stand-in unless URLs are given, and closes them."""
    opened: list[Embedder] = []

    def open_one(*urls: str, **options: Any) -> Embedder:
        options = {"kind": "tei", "urls": urls or (server.url,)} | options
        opened.append(open_embedder(EmbedderOptions(**options)))
        return opened[-1]

    yield open_one
    for embedder in opened:
        await embedder.close()


@pytest.fixture
def open_openai(open_tei: Open) -> Open:
    """Opens embedders of the OpenAI form."""

    def open_one(*urls: str, **options: Any) -> Any:
        return open_tei(*urls, **({"kind": "openai", "model": "lines"} | options))

    return open_one
