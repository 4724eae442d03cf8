"""How a server is reached: over a process's stdin and stdout, or over streamable HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from mcp.client import Transport

from warmindex_subscriber.mcp.config import ServerConfig

# A server that is there answers the first bytes at once, or says that it will take long.
ANSWER_S_MAX: Final = 30.0
# A stream of changes is silent while nothing changes; the SDK's own value.
SILENCE_S_MAX: Final = 300.0


def open_transport(
    config: ServerConfig, ended: Callable[[], None], refused: Callable[[int], None]
) -> Transport:
    """The streams of a new connection; nothing is started before it is entered.

    `ended` is called when a process can say nothing more; HTTP has no such end. `refused` is
    called with a status of HTTP from 400 on, which the SDK keeps to itself.
    """
    if config.url:
        return _http(config, refused)
    return _process(config, ended)


@asynccontextmanager
async def _http(config: ServerConfig, refused: Callable[[int], None]) -> AsyncGenerator[Any]:
    async def note(response: httpx2.Response) -> None:
        if response.is_error:
            refused(response.status_code)

    async with (
        httpx2.AsyncClient(
            headers=dict(config.headers),
            timeout=httpx2.Timeout(ANSWER_S_MAX, read=SILENCE_S_MAX),
            event_hooks={"response": [note]},
        ) as client,
        streamable_http_client(config.url, http_client=client) as streams,
    ):
        yield streams


@asynccontextmanager
async def _process(config: ServerConfig, ended: Callable[[], None]) -> AsyncGenerator[Any]:
    parameters = StdioServerParameters(
        command=config.command, args=list(config.args), env=dict(config.env), cwd=config.cwd
    )
    # The server's own log goes where this process's goes.
    async with stdio_client(parameters, errlog=sys.stderr) as (read, write):
        yield _Telling(read, ended), write


class _Telling:
    """A stream of messages that tells when there are no more.

    The SDK tells nobody: a session goes on without a server until somebody asks something.
    """

    def __init__(self, stream: Any, ended: Callable[[], None]) -> None:
        self._stream = stream
        self._ended = ended

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except BaseException:
            self._ended()
            raise

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        result: bool | None = await self._stream.__aexit__(kind, error, trace)
        return result
