"""How warmindex-mcp is reached: over stdin and stdout, or over streamable HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from mcp.server.stdio import stdio_server

from warmindex_subscriber.mcp_server.finder import Finder
from warmindex_subscriber.mcp_server.service import service

# Open streams of clients do not hold the end.
GRACE_S: Final = 2


async def serve_stdio(finder: Finder) -> None:
    """Serve one client until it closes stdin; a cancelled call leaves a thread behind.

    The SDK reads stdin in a thread, and nothing can take that out of its read.
    """
    server = service(finder)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    await asyncio.shield(serve())


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the command, which cancels."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_http(finder: Finder, address: str) -> None:
    """Serve many clients on HOST:PORT, under /mcp, until cancelled."""
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    app = service(finder).streamable_http_app(host=host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, int(port)), family=family) as listener:
        bound = listener.getsockname()[1]
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=GRACE_S, lifespan="on"
        )
        http = _Uvicorn(config)
        serving = asyncio.create_task(http.serve(sockets=[listener]))
        # People and scripts wait for this line.
        print(f"listening on {address.rpartition(':')[0]}:{bound}", flush=True)  # noqa: T201
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            # Ends the open streams of clients too, which a flag alone would wait for; that they
            # are cut is then no error.
            logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
            http.handle_exit(signal.SIGTERM, None)
            await serving
            raise
