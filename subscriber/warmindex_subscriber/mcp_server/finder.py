"""find_tool and call_tool, without a protocol around them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from mcp.shared.dispatcher import ProgressFnT
from mcp.types import CallToolResult
from mcp.types import Tool as ListedTool
from warmindex import limits
from warmindex.client import IndexClient
from warmindex.embedders import Embedder
from warmindex.errors import InvalidError
from warmindex.session import Session

from warmindex_subscriber.mcp.config import ServerConfig
from warmindex_subscriber.mcp.connection import McpConnection
from warmindex_subscriber.mcp.servers import McpServers
from warmindex_subscriber.mcp.tools import tool_of
from warmindex_subscriber.mcp_server.names import Named, ToolNames
from warmindex_subscriber.mcp_server.tokens import Savings, tokens_of

# Whoever asks right after the start waits for servers that are coming up, until so long after it.
FIRST_LIST_S_MAX: Final = 10.0
# Servers that come up together are taken together.
GATHER_S: Final = 0.2
# Problems of more servers than these would cost the model more than they tell it.
PROBLEMS_MAX: Final = 3


class Offer(NamedTuple):
    """One tool as find_tool answers it, what that costs, and what it costs to list it."""

    definition: dict[str, Any]
    tokens: int
    listed_tokens: int


class Finder:
    """The tools of some MCP servers: found by what they do, and called.

    Use it as a context, inside a running event loop. The embedder and the client stay the
    caller's; None of either finds by words alone, or works without an index.
    """

    def __init__(
        self,
        configs: Sequence[ServerConfig],
        *,
        embedder: Embedder | None,
        client: IndexClient | None = None,
        limit: int = limits.SEARCH_LIMIT_DEFAULT,
        **options: Any,
    ) -> None:
        """`limit` is the most tools in an answer; `options` are those of `Session`."""
        self._limit = limit
        self.servers = McpServers(configs, self._take_change)
        self._session = Session((), embedder=embedder, client=client, **options)
        self._names: ToolNames[ListedTool] = ToolNames(())
        self._baseline_tokens = 0
        self._renewing: asyncio.TimerHandle | None = None
        self._started_s = 0.0

    async def __aenter__(self) -> Self:
        self._started_s = asyncio.get_running_loop().time()
        await self.servers.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.servers.__aexit__(kind, error, trace)
        if self._renewing is not None:
            self._renewing.cancel()
        await self._session.close()

    @property
    def session(self) -> Session:
        """What finds, with its counts."""
        return self._session

    def _take_change(self, _: McpConnection) -> None:
        """A server's tools are others. Servers come up together: one renewal serves them."""
        if self._renewing is None:
            loop = asyncio.get_running_loop()
            self._renewing = loop.call_later(GATHER_S, self._renew)

    def _renew(self) -> None:
        """Take the tools of all servers anew; a text that stays keeps its vector."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        self._names = ToolNames(
            (name, listed.name, listed)
            for name, connection in self.servers.connections.items()
            for listed in connection.tools
        )
        offers = [_offer(each) for each in self._names.tools]
        self._baseline_tokens = sum(offer.listed_tokens for offer in offers)
        self._session.update(
            tool_of(each.tool, offer) for each, offer in zip(self._names.tools, offers, strict=True)
        )

    async def _be_current(self) -> None:
        so_long_s = asyncio.get_running_loop().time() - self._started_s
        await self.servers.settled(max(0.0, FIRST_LIST_S_MAX - so_long_s))
        if self._renewing is not None:
            self._renew()

    async def find(self, description: str, keywords: Sequence[str] = ()) -> dict[str, Any]:
        """The answer of find_tool: the best tools, what they cost, and what is amiss."""
        await self._be_current()
        hits = await self._session.find(description, keywords=keywords, limit=self._limit)
        offers: list[Offer] = [hit.tool.data for hit in hits]
        savings = Savings(self._baseline_tokens, sum(offer.tokens for offer in offers))
        answer: dict[str, Any] = {
            "tools": [offer.definition for offer in offers],
            "token_metrics": savings.as_json(),
        }
        if notes := self._notes():
            answer["notes"] = notes
        return answer

    def _notes(self) -> list[str]:
        problems = self.servers.problems
        notes = problems[:PROBLEMS_MAX]
        if len(problems) > PROBLEMS_MAX:
            notes.append(f"{len(problems) - PROBLEMS_MAX} more servers are away")
        if self._session.degraded:
            notes.append(self._session.degraded)
        return notes

    async def call(
        self, name: str, arguments: dict[str, Any], progress: ProgressFnT | None = None
    ) -> CallToolResult:
        """Call one of these tools. Raises InvalidError for any other name.

        What else may be raised is told at `McpConnection.call`.
        """
        await self._be_current()
        named = self._names.get(name)
        if named is None:
            raise self._unknown(name)
        connection = self.servers.connections[named.server]
        return await connection.call(named.tool_name, arguments, progress)

    def _unknown(self, name: str) -> InvalidError:
        if names := self._names.alternatives(name):
            advice = f"is the name of several tools; call one of {', '.join(names)}"
        else:
            advice = "is no tool here; find_tool gives the names"
        return InvalidError(f"tool_name {name!r:.100} {advice}", field="tool_name")


def _offer(named: Named[ListedTool]) -> Offer:
    listed = {
        "name": named.name,
        "description": named.tool.description or "",
        "input_schema": named.tool.input_schema,
    }
    definition = {**listed, "server": named.server}
    return Offer(definition, tokens_of(definition), tokens_of(listed))
