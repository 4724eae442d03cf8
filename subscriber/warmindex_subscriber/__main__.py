"""The command warmindex-subscriber."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence

from warmindex import __version__, logs
from warmindex.errors import WarmindexError
from warmindex.options import Options

from warmindex_subscriber import catalogue_command, mcp_command
from warmindex_subscriber.demo_kv import command as demo_kv_command
from warmindex_subscriber.fake_engine import command as fake_engine_command
from warmindex_subscriber.kv import command as kv_command
from warmindex_subscriber.mcp.options import split_command
from warmindex_subscriber.stopping import until_stopped

Command = Callable[[argparse.Namespace], Awaitable[None]]


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="warmindex-subscriber",
        description="Publish what a fleet has computed to a warmindex server.",
    )
    top.add_argument("--version", action="version", version=f"warmindex {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    catalogue_command.add_to(commands)
    mcp_command.add_to(commands)
    kv_command.add_to(commands)
    fake_engine_command.add_to(commands)
    demo_kv_command.add_to(commands)
    for command in commands.choices.values():
        logs.add_options(Options(command))
    return top


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; after `mcp … --` comes a command of its own."""
    own, server_command = split_command(given) if given[:1] == ["mcp"] else (given, [])
    arguments = parser().parse_args(own)
    if server_command:
        arguments.server_command = server_command
    return arguments


def main() -> None:
    """Run a command; exit code 0 after a signal, 1 where it could not do its work."""
    arguments = parse(sys.argv[1:])
    logs.configure(arguments.log_format, arguments.log_level)
    run: Command = arguments.run
    try:
        asyncio.run(until_stopped(run(arguments)))
    except (OSError, WarmindexError) as error:
        logging.getLogger(__name__).debug("failed", exc_info=True)
        print(f"warmindex-subscriber: {error}", file=sys.stderr)  # noqa: T201 - for people
        sys.exit(1)


if __name__ == "__main__":
    main()
