"""The command warmindex-mcp."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from warmindex import __version__, logs
from warmindex.errors import InvalidError, WarmindexError
from warmindex.limits import SEARCH_LIMIT_DEFAULT
from warmindex.options import Options, address
from warmindex.session import REPLICA_DEFAULT

from warmindex_subscriber.__main__ import until_stopped
from warmindex_subscriber.common import (
    add_embedder_options,
    add_server_options,
    client_of,
    embedder_of,
)
from warmindex_subscriber.mcp.options import (
    add_server_list,
    need_sdk,
    servers_of,
    split_command,
)

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


def parser() -> argparse.ArgumentParser:
    """The command and its options."""
    command = argparse.ArgumentParser(
        prog="warmindex-mcp",
        description="An MCP server that offers find_tool and call_tool over the tools of other MCP "
        "servers. Speaks over stdin and stdout, unless --listen is given.",
    )
    command.add_argument("--version", action="version", version=f"warmindex {__version__}")
    options = Options(command)
    add_server_list(command, options)
    options.add(
        "--listen", default="", metavar="HOST:PORT", help="speak streamable HTTP here, under /mcp"
    )
    options.switch("--insecure", help="let --listen be beyond loopback, for anybody")
    options.add(
        "--limit", default=SEARCH_LIMIT_DEFAULT, type=int, metavar="N", help="tools in an answer"
    )
    options.switch("--words-only", help="find by words alone: no embedder")
    options.switch("--no-index", help="do without the index")
    add_server_options(options, f'"{REPLICA_DEFAULT}"')
    add_embedder_options(options)
    logs.add_options(options)
    return command


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; what follows `--` is a server."""
    own, server_command = split_command(given)
    arguments = parser().parse_args(own)
    arguments.server_command = server_command
    if arguments.listen:
        arguments.listen = address(arguments.listen)
        if arguments.listen.rpartition(":")[0] not in LOOPBACK and not arguments.insecure:
            raise InvalidError(
                f"--listen {arguments.listen} is open to others, who could call every tool; "
                "listen on 127.0.0.1 behind something that asks for credentials, or say --insecure",
                field="listen",
            )
    return arguments


async def run(arguments: argparse.Namespace) -> None:
    """Serve until the client is gone, or until cancelled."""
    try:
        await _serve(arguments)
    except asyncio.CancelledError:
        if not arguments.listen:
            # Everything is closed but the thread that reads stdin, and it would hold the end.
            os._exit(0)
        raise


async def _serve(arguments: argparse.Namespace) -> None:
    need_sdk()
    # They need the extra, and take a second to import.
    from warmindex_subscriber.mcp_server import serving  # noqa: PLC0415
    from warmindex_subscriber.mcp_server.finder import Finder  # noqa: PLC0415

    configured = servers_of(arguments)
    async with AsyncExitStack() as stack:
        client = embedder = None
        if not arguments.no_index:
            client = await stack.enter_async_context(client_of(arguments))
        if not arguments.words_only:
            embedder = embedder_of(arguments)
            stack.push_async_callback(embedder.close)
        finder = Finder(
            configured.servers,
            embedder=embedder,
            client=client,
            limit=arguments.limit,
            replica_id=arguments.replica or REPLICA_DEFAULT,
            tenant_id=arguments.tenant,
            adapter_id=arguments.adapter,
        )
        await stack.enter_async_context(finder)
        if arguments.listen:
            await serving.serve_http(finder, arguments.listen)
        else:
            await serving.serve_stdio(finder)


def main() -> None:
    """Run the command; exit code 0 when its client is gone or after a signal, 1 for errors."""
    try:
        arguments = parse(sys.argv[1:])
        logs.configure(arguments.log_format, arguments.log_level)
        asyncio.run(until_stopped(run(arguments)))
    except (OSError, WarmindexError) as error:
        logging.getLogger(__name__).debug("failed", exc_info=True)
        print(f"warmindex-mcp: {error}", file=sys.stderr)  # noqa: T201 - for people
        sys.exit(1)


if __name__ == "__main__":
    main()
