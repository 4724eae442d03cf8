"""Keeps the tools of MCP servers warm, each server's with a holder of its own.

A holder is named PREFIX/SERVER, so a server that is away, or has not come up yet, keeps what
it had published, whatever the others do. What was held for a server that is configured no
longer is cleared at the start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from warmindex.client import IndexClient
from warmindex.embedders import Embedder
from warmindex.errors import WarmindexError
from warmindex.event import CacheEvent, EventType
from warmindex.tools import Tool

from warmindex_subscriber.catalogue import Catalogue, Summary, keep
from warmindex_subscriber.mcp.config import Configured
from warmindex_subscriber.mcp.connection import McpConnection
from warmindex_subscriber.mcp.servers import McpServers
from warmindex_subscriber.mcp.tools import tool_of

_log = logging.getLogger(__name__)

# A pass that is made once gives a server this long to come up; its first start may download it.
ONCE_S_MAX: Final = 180.0
# An index that was away at the start is asked again for holders to clear.
CLEAR_RETRY_S: Final = 30.0


class Keeper:
    """The tools of some servers, in one tenant and adapter."""

    def __init__(
        self,
        configured: Configured,
        embedder: Embedder,
        client: IndexClient,
        *,
        prefix: str,
        tenant_id: str = "",
        adapter_id: str = "",
    ) -> None:
        self._configured = configured
        self._client = client
        self._prefix = prefix
        self._tenant_id = tenant_id
        self._changed = {server.name: asyncio.Event() for server in configured.servers}
        self._servers = McpServers(
            configured.servers, lambda connection: self._changed[connection.name].set()
        )
        self._catalogues = {
            name: Catalogue(
                embedder,
                client,
                replica_id=f"{prefix}/{name}",
                tenant_id=tenant_id,
                adapter_id=adapter_id,
            )
            for name in self._changed
        }

    async def once(self) -> bool:
        """Make one pass over every server; whether it was whole."""
        whole = [not self._configured.problems, await self.clear_others()]
        async with self._servers as servers:
            await servers.settled(ONCE_S_MAX)
            for name, connection in servers.connections.items():
                if connection.problem:
                    whole.append(False)
                else:
                    summary = await self._catalogues[name].synchronise(_tools(connection))
                    _tell(connection, summary)
                    whole.append(not summary.problems)
        return all(whole)

    async def keep(self) -> None:
        """Follow every server until cancelled."""
        async with self._servers as servers, asyncio.TaskGroup() as group:
            group.create_task(self._clear_others_when_possible())
            for connection in servers.connections.values():
                group.create_task(self._keep_one(connection))

    async def _keep_one(self, connection: McpConnection) -> None:
        """Nothing of a server is evicted before it has said what it has."""
        await connection.listed.wait()
        await keep(
            self._catalogues[connection.name],
            lambda: _tools(connection),
            self._changed[connection.name],
            told=lambda summary: _tell(connection, summary),
        )

    async def _clear_others_when_possible(self) -> None:
        while not await self.clear_others():  # noqa: ASYNC110 - nobody tells when it is back
            await asyncio.sleep(CLEAR_RETRY_S)

    async def clear_others(self) -> bool:
        """Let go of what is held for servers that are configured no longer.

        False where the index cannot be reached.
        """
        known = {f"{self._prefix}/{name}" for name in self._configured.names}
        try:
            for view in await self._client.replicas(self._tenant_id):
                if view.replica_id.startswith(f"{self._prefix}/") and view.replica_id not in known:
                    event = CacheEvent(
                        type=EventType.ALL_CLEARED,
                        replica_id=view.replica_id,
                        model_id=view.model_id,
                        tenant_id=self._tenant_id,
                    )
                    result = await self._client.publish(event)
                    _log.info("%s: cleared, %d holds", view.replica_id, result.holds_changed)
        except WarmindexError as error:
            _log.warning("cannot look for holders to clear: %s", error.message)
            return False
        return True


def _tools(connection: McpConnection) -> Sequence[Tool]:
    return [tool_of(listed) for listed in connection.tools]


def _tell(connection: McpConnection, summary: Summary) -> None:
    # The one line per build that people and scripts read.
    print(f"{connection.name}: {summary}", flush=True)  # noqa: T201
