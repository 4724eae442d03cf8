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
from warmindex.errors import InvalidError, WarmindexError, out_of_range
from warmindex.limits import SEARCH_LIMIT_DEFAULT, SEARCH_LIMIT_MAX
from warmindex.options import Options, address
from warmindex.session import REPLICA_DEFAULT

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
from warmindex_subscriber.stopping import until_stopped

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


def parser() -> argparse.ArgumentParser:
    """The command and its options."""
    command = argparse.ArgumentParser(
        prog="warmindex-mcp",
        description="An MCP server that offers find_tool and call_tool over the tools of other MCP "
        "servers. Speaks over stdin and stdout, unless --mcp-listen is given.",
    )
    command.add_argument("--version", action="version", version=f"warmindex {__version__}")
    options = Options(command)
    add_server_list(command, options)
    options.add(
        "--mcp-listen",
        default="",
        type=lambda text: address(text) if text else "",
        metavar="HOST:PORT",
        help="speak streamable HTTP here, under /mcp",
    )
    options.switch("--mcp-insecure", help="let --mcp-listen be beyond loopback, for anybody")
    options.add(
        "--limit", default=SEARCH_LIMIT_DEFAULT, type=int, metavar="N", help="tools in an answer"
    )
    options.switch("--words-only", help="find by words alone: no embedder")
    options.switch("--without-index", help="ask no index, and publish to none")
    add_server_options(options, f'"{REPLICA_DEFAULT}"')
    add_embedder_options(options)
    logs.add_options(options)
    return command


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; what follows `--` is a server."""
    own, server_command = split_command(given)
    arguments = parser().parse_args(own)
    arguments.server_command = server_command
    listen = arguments.mcp_listen
    if listen and listen.rpartition(":")[0] not in LOOPBACK and not arguments.mcp_insecure:
        raise InvalidError(
            f"--mcp-listen {listen} is open to others, who could call every tool; listen on "
            "127.0.0.1 behind something that asks for credentials, or say --mcp-insecure",
            field="mcp_listen",
        )
    if not 1 <= arguments.limit <= SEARCH_LIMIT_MAX:
        raise out_of_range("--limit", arguments.limit, f"1..{SEARCH_LIMIT_MAX}")
    return arguments


async def run(arguments: argparse.Namespace) -> None:
    """Serve until the client is gone, or until cancelled."""
    try:
        await _serve(arguments)
    except asyncio.CancelledError:
        if not arguments.mcp_listen:
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
        if not arguments.without_index:
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
        if arguments.mcp_listen:
            await serving.serve_http(finder, arguments.mcp_listen)
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
