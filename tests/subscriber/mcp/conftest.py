"""An index and a stand-in embedding server, both real, and MCP servers followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from support.embedding_server import EmbeddingServer, serving
from support.server import ServerHere, running
from warmindex_subscriber.mcp.config import ServerConfig
from warmindex_subscriber.mcp.connection import McpConnection

WAIT_S = 30


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


class Followed:
    """A connection that is followed, with a way to wait for what its tools become."""

    def __init__(self, config: ServerConfig) -> None:
        self._changed = asyncio.Event()
        self.connection = McpConnection(config, lambda _: self._changed.set())

    @property
    def names(self) -> list[str]:
        """The tools as they are known now."""
        return [tool.name for tool in self.connection.tools]

    async def until(self, *names: str) -> None:
        """Wait until these are the tools."""
        async with asyncio.timeout(WAIT_S):
            while self.names != list(names):
                self._changed.clear()
                await self._changed.wait()

    async def asked(self, name: str, **arguments: Any) -> Any:
        """What a tool answers."""
        return (await self.connection.call(name, arguments)).structured_content


@pytest.fixture
def follow() -> Callable[[ServerConfig], Any]:
    """Follow a server as long as a context is open, once it has listed its tools."""

    @asynccontextmanager
    async def open_one(config: ServerConfig) -> AsyncIterator[Followed]:
        followed = Followed(config)
        task = asyncio.create_task(followed.connection.run())
        try:
            async with asyncio.timeout(WAIT_S):
                await followed.connection.settled.wait()
            yield followed
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return open_one
