"""The command warmindex-server."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

from warmindex import logs
from warmindex.errors import WarmindexError

from warmindex_server.app import Server, split_address
from warmindex_server.memory import keep_freed_memory
from warmindex_server.settings import Settings, parse

_log = logging.getLogger("warmindex_server")


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = Server(settings)
    try:
        starting = asyncio.create_task(server.start())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
            return
        starting.result()
        host, _ = split_address(settings.listen)
        shown = f"[{host}]" if ":" in host else host
        print(f"listening on {shown}:{server.port}", flush=True)  # noqa: T201 - others read it
        await stopping
        _log.info("stopping")
    finally:
        await server.stop()


def main() -> None:
    """Run the server; exit code 0 after a signal, 1 where it could not start."""
    try:
        settings = parse()
        logs.configure(settings.log_format, settings.log_level)
        keep_freed_memory()
        asyncio.run(serve(settings))
    except (OSError, WarmindexError) as error:
        print(f"warmindex-server: {error}", file=sys.stderr)  # noqa: T201 - for people
        sys.exit(1)


if __name__ == "__main__":
    main()
