"""One MCP server: its tools as it last listed them, and calls to them.

    connect --> subscribe --> list --> wait: a change, an end, a minute --> list …
       ^                                                      |
       +-- a pause, longer each time <-- fails or ends -------+

The tools stay as they were listed while the server is away. Servers of the protocol's
version 2026-07-28 tell of changes on a stream that is asked for, earlier ones by themselves;
some do neither, so the list is read again now and then, which also finds a server that has gone
without a word.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from mcp import Client, MCPError
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.types import (
    CONNECTION_CLOSED,
    CallToolResult,
    Implementation,
    Tool,
    ToolListChangedNotification,
)
from warmindex import __version__
from warmindex.errors import UnavailableError

from warmindex_subscriber.mcp.config import ServerConfig
from warmindex_subscriber.mcp.listing import list_tools
from warmindex_subscriber.mcp.transport import open_transport

_log = logging.getLogger(__name__)

# The first start of a server may download it.
REQUEST_S_MAX: Final = 120.0
# A tool may do real work, and nobody else waits for it.
CALL_S_MAX: Final = 600.0
# Whoever calls a tool of a server that is just coming back waits this long for it.
COMING_S_MAX: Final = 5.0
# A server that fell over is wanted at once; one that stays away is not started all the time.
RETRY_S_FIRST: Final = 0.5
RETRY_S_MAX: Final = 60.0
# What held this long was a connection: the next pause is the first again.
STEADY_S: Final = 30.0
# For servers that tell nothing: so late a change is noticed, or an end.
RELIST_S: Final = 60.0
# Changes come in bursts (a server that adds its tools one by one); one listing answers a burst.
SETTLE_S: Final = 0.1
# A subscription that ended is asked for again after this.
RESUBSCRIBE_S: Final = 5.0


class ServerAwayError(UnavailableError):
    """The server of a tool cannot be reached just now."""


class McpConnection:
    """See the module's text. `run` is one task; everything else may be used from others."""

    def __init__(
        self,
        config: ServerConfig,
        changed: Callable[[McpConnection], None] = lambda _connection: None,
    ) -> None:
        """`changed` is called with this whenever the tools are others, or first known."""
        self.config = config
        self.tools: Sequence[Tool] = ()
        # Set when the tools have been listed once.
        self.listed = asyncio.Event()
        # Set when the first attempt has succeeded or failed.
        self.settled = asyncio.Event()
        # Why the server is not connected; "" where it is.
        self.problem = "not connected yet"
        self._changed = changed
        self._client: Client | None = None
        self._connected = asyncio.Event()
        self._news = asyncio.Event()
        self._wanted = asyncio.Event()
        self._ended = False
        self._http_status = 0

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        return self.config.name

    async def run(self) -> None:
        """Stay connected until cancelled."""
        loop = asyncio.get_running_loop()
        pause_s = RETRY_S_FIRST
        while True:
            started_s = loop.time()
            try:
                await self._follow_once()
            except Exception as error:  # noqa: BLE001 - whatever a foreign server comes to
                status = f" (HTTP {self._http_status})" if self._http_status else ""
                self._note_problem(f"{_reason(error)}{status}")
            self.settled.set()
            if loop.time() - started_s > STEADY_S:
                pause_s = RETRY_S_FIRST
            self._wanted.clear()
            with suppress(TimeoutError):
                # Servers behind one gateway fall together, and need not come back together.
                async with asyncio.timeout(pause_s * random.uniform(0.5, 1.0)):  # noqa: S311
                    await self._wanted.wait()
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def call(
        self, name: str, arguments: dict[str, Any], progress: ProgressFnT | None = None
    ) -> CallToolResult:
        """Call a tool, once: a call that fails may have done its work.

        Raises ServerAwayError where it was certainly not called, MCPError where the server
        refuses or the connection is lost, RuntimeError for a result that cannot be.
        """
        self._wanted.set()
        try:
            async with asyncio.timeout(COMING_S_MAX):
                await self._connected.wait()
        except TimeoutError:
            raise ServerAwayError(f"server {self.name!r} is away: {self.problem}") from None
        client = self._client
        assert client is not None  # noqa: S101 - set with the event
        try:
            return await client.call_tool(
                name, arguments, read_timeout_seconds=CALL_S_MAX, progress_callback=progress
            )
        except MCPError as error:
            # Is it still there? Does it still have that tool?
            self._news.set()
            if error.code == CONNECTION_CLOSED:
                self._connected.clear()
            raise

    # ---- one connection ----------------------------------------------------------------

    async def _follow_once(self) -> None:
        """Connect and follow until the connection fails or ends, which raises."""
        self._ended, self._http_status = False, 0
        client = Client(
            open_transport(self.config, self._note_end, self._note_status),
            read_timeout_seconds=REQUEST_S_MAX,
            message_handler=self._hear,
            client_info=Implementation(name="warmindex", version=__version__),
            cache=None,
        )
        async with client:
            subscribing = asyncio.create_task(self._subscribe(client))
            try:
                await self._follow(client)
            finally:
                self._client = None
                self._connected.clear()
                subscribing.cancel()
                await asyncio.gather(subscribing, return_exceptions=True)

    async def _follow(self, client: Client) -> None:
        while True:
            self._news.clear()
            self._take(client, await list_tools(client))
            with suppress(TimeoutError):
                async with asyncio.timeout(RELIST_S):
                    await self._news.wait()
                    await asyncio.sleep(0 if self._ended else SETTLE_S)
            if self._ended:
                raise ConnectionError("the server has ended the connection")

    def _take(self, client: Client, tools: Sequence[Tool]) -> None:
        if self.problem:
            _log.info("server %r: connected, %d tools", self.name, len(tools))
        changed = not self.listed.is_set() or tools != self.tools
        self.tools, self.problem, self._http_status = tools, "", 0
        self._client = client
        self._connected.set()
        self.listed.set()
        self.settled.set()
        if changed:
            self._changed(self)

    async def _subscribe(self, client: Client) -> None:
        """Ask to be told of changes, on servers where that must be asked for."""
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._news.set()
            except (ListenNotSupportedError, MCPError, TimeoutError) as refused:
                _log.debug("server %r: no subscription: %s", self.name, refused)
                return
            except SubscriptionLost as lost:
                _log.debug("server %r: %s", self.name, lost)
            await asyncio.sleep(RESUBSCRIBE_S)
            # What has changed without a subscription, if the server is there at all.
            self._news.set()

    async def _hear(self, message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._news.set()

    def _note_end(self) -> None:
        self._ended = True
        self._news.set()

    def _note_status(self, status: int) -> None:
        self._http_status = status

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem:
            _log.warning(
                "server %r: %s; it keeps its %d tools", self.name, problem, len(self.tools)
            )
        self.problem = problem


def _reason(error: BaseException) -> str:
    """What went wrong, in one line; groups of the SDK's tasks are unpacked."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
