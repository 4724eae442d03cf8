"""warmindex-subscriber mcp: the tools of MCP servers, kept warm."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from warmindex.event import check_replica
from warmindex.options import Options

from warmindex_subscriber.common import (
    add_embedder_options,
    add_server_options,
    client_of,
    embedder_of,
)
from warmindex_subscriber.mcp.options import add_server_list, need_sdk, servers_of


def add_to(commands: Any) -> None:
    """Add the command to a parser."""
    command = commands.add_parser(
        "mcp",
        help="publish the embeddings of MCP servers' tools, and follow their changes",
        description="Connect to MCP servers, publish the embeddings of their tools, evict what "
        "has gone, and follow what they say of changes. A server that is away keeps what it had.",
    )
    options = Options(command)
    add_server_list(command, options)
    add_server_options(options, "\"mcp/\" and the first file's or server's name")
    add_embedder_options(options)
    options.switch("--once", help="end after the first pass, with exit code 1 if it was not whole")
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> None:
    """Keep the servers' tools warm until cancelled."""
    need_sdk()
    from warmindex_subscriber.mcp.keeping import Keeper  # noqa: PLC0415 - needs the extra

    configured = servers_of(arguments)
    first = arguments.configs[0].name if arguments.configs else configured.servers[0].name
    prefix = arguments.replica or f"mcp/{first}"
    for server in configured.servers:
        check_replica(arguments.tenant, f"{prefix}/{server.name}", "--replica")
    embedder = embedder_of(arguments)
    try:
        async with client_of(arguments) as client:
            keeper = Keeper(
                configured,
                embedder,
                client,
                prefix=prefix,
                tenant_id=arguments.tenant,
                adapter_id=arguments.adapter,
            )
            if not arguments.once:
                await keeper.keep()
            elif not await keeper.once():
                sys.exit(1)
    finally:
        await embedder.close()
