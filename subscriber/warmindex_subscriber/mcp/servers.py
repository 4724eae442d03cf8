"""A set of MCP servers, each followed by itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from warmindex_subscriber.mcp.config import ServerConfig
from warmindex_subscriber.mcp.connection import McpConnection

# They log every request, with URLs that may hold secrets.
_CHATTY = ("httpx2", "httpcore2", "mcp")


class McpServers:
    """Connections by name, followed while the context is open."""

    def __init__(
        self,
        configs: Iterable[ServerConfig],
        changed: Callable[[McpConnection], None] = lambda _connection: None,
    ) -> None:
        """`changed` is called with a connection whose tools are known first, or are others."""
        self.connections = {config.name: McpConnection(config, changed) for config in configs}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for name in _CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._tasks = [
            asyncio.create_task(connection.run()) for connection in self.connections.values()
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def settled(self, timeout_s: float) -> bool:
        """Wait until each server has listed its tools or failed to; False after the time."""
        try:
            async with asyncio.timeout(timeout_s):
                for connection in self.connections.values():
                    await connection.settled.wait()
        except TimeoutError:
            return False
        return True

    @property
    def problems(self) -> list[str]:
        """Which servers are away, and why."""
        return [
            f"server {name!r} is away: {connection.problem}"
            for name, connection in self.connections.items()
            if connection.problem
        ]
