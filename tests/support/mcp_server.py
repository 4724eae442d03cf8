"""A small MCP server for tests, made with the SDK: its tools are those of a file.

    python tests/support/mcp_server.py tools.json --page 2 --legacy [--http PORT]

The file is a list of {"name", "description", "inputSchema"?}; when it changes, the server
tells its clients. Every tool answers with its name and arguments as JSON, but for four:
`fail` answers with an error, `crash` ends the process, `slow` takes a while and tells of
its progress, `whoami` tells the process id and the variable WHO.
With --legacy the server knows the protocol as it was before 2026-07-28. Over HTTP it prints
"listening on URL". With --key every HTTP request must carry it as a bearer token. With --mute
it tells of no changes; with --circle its last page leads to its first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

POLL_S = 0.02
DISCOVER = "server/discover"


class FileServer:
    """The tools of a file, offered to whoever connects."""

    def __init__(self, path: Path, page: int, *, circle: bool = False) -> None:
        self._path = path
        self._page = page
        self._circle = circle
        self._sessions: set[Any] = set()
        self._bus = InMemorySubscriptionBus()
        self.server: Server[Any] = Server(
            "test",
            version="1",
            on_list_tools=self._list,
            on_call_tool=self._call,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    def tools(self) -> list[Tool]:
        """What the file lists now."""
        return [
            Tool(
                name=each["name"],
                description=each.get("description"),
                input_schema=each.get("inputSchema", {"type": "object"}),
            )
            for each in json.loads(self._path.read_text(encoding="utf-8"))
        ]

    async def _list(self, ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        self._sessions.add(ctx.session)
        start = int(params.cursor) if params is not None and params.cursor else 0
        tools = self.tools()
        end = start + (self._page or len(tools))
        following = str(end) if end < len(tools) else "0" if self._circle else None
        return ListToolsResult(tools=tools[start:end], next_cursor=following)

    async def _call(self, ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        if params.name not in {tool.name for tool in self.tools()}:
            from mcp import MCPError

            raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name}")
        if params.name == "crash":
            os._exit(3)
        if params.name == "slow":
            for step in range(3):
                await ctx.session.report_progress(step, 3)
                await asyncio.sleep(0.05)
        answer: Any = {"tool": params.name, "arguments": params.arguments}
        if params.name == "whoami":
            answer = {"pid": os.getpid(), "who": os.environ.get("WHO")}
        return CallToolResult(
            content=[TextContent(text=json.dumps(answer))],
            structured_content=answer,
            is_error=params.name == "fail",
        )

    async def tell_of_changes(self) -> None:
        """Tell every client whenever the file has changed."""
        known = self._path.stat().st_mtime_ns
        while True:
            await asyncio.sleep(POLL_S)
            now = self._path.stat().st_mtime_ns
            if now != known:
                known = now
                await self._bus.publish(ToolsListChanged())
                for session in list(self._sessions):
                    try:
                        await session.send_tool_list_changed()
                    except Exception:  # noqa: BLE001 - a client that has gone
                        self._sessions.discard(session)


async def over_stdio(here: FileServer, *, legacy: bool) -> None:
    """Serve one client over stdin and stdout."""
    async with stdio_server() as (read, write):
        options = here.server.create_initialization_options(NotificationOptions(tools_changed=True))
        if not legacy:
            await here.server.run(read, write, options)
            return
        passed, rest = anyio.create_memory_object_stream[Any](0)

        async def turn_back_discovery() -> None:
            async with passed:
                async for each in read:
                    message = getattr(each, "message", None)
                    if isinstance(message, JSONRPCRequest) and message.method == DISCOVER:
                        error = ErrorData(code=METHOD_NOT_FOUND, message="Method not found")
                        answer = JSONRPCError(jsonrpc="2.0", id=message.id, error=error)
                        await write.send(SessionMessage(answer))
                    else:
                        await passed.send(each)

        async with anyio.create_task_group() as group:
            group.start_soon(turn_back_discovery)
            await here.server.run(rest, write, options)


def guarded(app: Any, *, legacy: bool, key: str) -> Callable[..., Any]:
    """An ASGI app that wants a key, and that may not know discovery."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if key and scope["type"] == "http" and headers.get(b"authorization") != b"Bearer " + key:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})
        elif legacy and headers.get(b"mcp-method") == DISCOVER.encode():
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body"})
        else:
            await app(scope, receive, send)

    return answer


async def over_http(here: FileServer, port: int, *, legacy: bool, key: str) -> None:
    """Serve over streamable HTTP on a port."""
    app = guarded(here.server.streamable_http_app(), legacy=legacy, key=key.encode())
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="on")
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)  # noqa: T201
    await uvicorn.Server(config).serve(sockets=[listener])


async def main() -> None:
    """Serve until the client, or a signal, ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--page", type=int, default=0)
    parser.add_argument("--legacy", action="store_true")
    parser.add_argument("--http", type=int, default=None)
    parser.add_argument("--key", default="")
    parser.add_argument("--mute", action="store_true")
    parser.add_argument("--circle", action="store_true")
    given = parser.parse_args()
    here = FileServer(given.path, given.page, circle=given.circle)
    telling = asyncio.create_task(asyncio.sleep(0) if given.mute else here.tell_of_changes())
    if given.http is None:
        await over_stdio(here, legacy=given.legacy)
    else:
        await over_http(here, given.http, legacy=given.legacy, key=given.key)
    telling.cancel()


if __name__ == "__main__":
    asyncio.run(main())
