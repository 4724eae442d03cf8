"""An index and a stand-in embedding server, both real, as fixtures: import them in a conftest."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.embedding_server import EmbeddingServer, serving
from support.server import ServerHere, running


@pytest.fixture
async def index() -> AsyncIterator[ServerHere]:
    """A fresh index."""
    async with running(grace_s=0.2) as here:
        yield here


@pytest.fixture
async def backend() -> AsyncIterator[EmbeddingServer]:
    """A stand-in embedding server."""
    async with serving() as started:
        yield started
