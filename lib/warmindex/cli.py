"""The command warmindex: look into an index, and see what it is good for."""

from __future__ import annotations

import argparse
import asyncio
import sys

from rich.console import Console

from warmindex import __version__
from warmindex.commands import evict, find, get, lookup, token
from warmindex.demo.story import tell
from warmindex.errors import WarmindexError


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="warmindex", description=__doc__)
    top.add_argument("--version", action="version", version=f"warmindex {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (find, lookup, get, evict, token):
        module.add_to(commands)
    demo = commands.add_parser("demo", help="show in half a minute what warmindex does")
    demo.set_defaults(run=_demo)
    return top


def main() -> None:
    """Run a command; exit code 0 where it did its work."""
    arguments = parser().parse_args()
    try:
        sys.exit(asyncio.run(arguments.run(arguments)))
    except WarmindexError as error:
        print(f"warmindex: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


async def _demo(arguments: argparse.Namespace) -> int:  # noqa: ARG001 - commands are alike
    return 0 if await tell(Console()) else 1


if __name__ == "__main__":
    main()
