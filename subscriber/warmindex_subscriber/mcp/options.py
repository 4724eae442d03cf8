"""Options that say which MCP servers there are; shared by the commands that need them."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from warmindex.options import Options

from warmindex_subscriber.mcp.config import ConfigError, Configured, read_configs

_log = logging.getLogger(__name__)


def add_server_list(parser: argparse.ArgumentParser, options: Options) -> None:
    """Add CONFIG… and --url; see `split_command` for what comes after `--`."""
    parser.add_argument(
        "configs",
        nargs="*",
        type=Path,
        metavar="CONFIG",
        help="a file with the mcpServers of desktop clients",
    )
    options.add(
        "--url", default="", metavar="URL[,URL…]", help="servers that speak streamable HTTP"
    )
    parser.set_defaults(server_command=[])
    parser.epilog = "After -- a command may follow: a server that speaks over stdin and stdout."


def split_command(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments of the command line before `--`, and those after it."""
    arguments = list(arguments)
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def need_sdk() -> None:
    """Raise ConfigError where the packages of the extra `mcp` are not installed."""
    # The second came with version 2 of the SDK.
    if find_spec("mcp") is None or find_spec("mcp_types") is None:
        raise ConfigError("the MCP SDK 2.0 is not installed: pip install 'warmindex[mcp]'")


def servers_of(arguments: argparse.Namespace) -> Configured:
    """The servers that the options name; problems with some of them are logged.

    Raises ConfigError where there are none.
    """
    urls = [url for each in arguments.url.split(",") if (url := each.strip())]
    configured = read_configs(arguments.configs, urls, arguments.server_command)
    for problem in configured.problems:
        _log.error("%s", problem)
    return configured
