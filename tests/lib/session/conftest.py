"""An index and a stand-in embedding server, both real, and sessions between them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from support.embedding_server import EmbeddingServer
from support.fleet import backend, index
from support.server import ServerHere
from warmindex.embedders import Embedder, EmbedderOptions, open_embedder
from warmindex.session import Session

__all__ = ["backend", "index", "open_session"]


@pytest.fixture
async def open_session(
    index: ServerHere, backend: EmbeddingServer
) -> AsyncIterator[Callable[..., Session]]:
    """Opens sessions; an embedder over the stand-in and the index's client by default."""
    embedders: list[Embedder] = []
    sessions: list[Session] = []

    def open_one(tools: Any, **options: Any) -> Session:
        if "embedder" not in options:
            embedders.append(
                open_embedder(
                    EmbedderOptions(kind="tei", urls=(backend.url,), request_timeout_s=1.0)
                )
            )
            options["embedder"] = embedders[-1]
        sessions.append(Session(tools, **({"client": index.client} | options)))
        return sessions[-1]

    yield open_one
    for session in sessions:
        await session.close()
    for embedder in embedders:
        await embedder.close()
