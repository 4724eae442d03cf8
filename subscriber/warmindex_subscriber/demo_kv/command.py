"""warmindex-subscriber demo-kv: what LookupRoute saves a fleet of engines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from warmindex.errors import WarmindexError
from warmindex.options import Options, seconds

if TYPE_CHECKING:
    from warmindex_subscriber.demo_kv.story import Story

SECONDS_DEFAULT = 16.0
PICTURE_DEFAULT = "demo-kv.png"


def add_to(commands: Any) -> None:
    """Add the command to a parser."""
    command = commands.add_parser(
        "demo-kv",
        help="show what routing by LookupRoute saves four engines",
        description="Serve the same made-up chats with two fleets of four engines without a "
        "model: in turn, and routed by LookupRoute, with a real server, sidecars and KV-cache "
        "events. Prints what was found in the engines' caches and draws it. Exit code 0 if "
        "routing found more and the index was right to the end.",
    )
    options = Options(command)
    options.add(
        "--seconds",
        default=SECONDS_DEFAULT,
        type=seconds,
        metavar="SECONDS",
        help="how long prompts are served",
    )
    options.add("--seed", default=0, type=int, metavar="N", help="which chats")
    options.add(
        "--picture",
        default=PICTURE_DEFAULT,
        metavar="PATH",
        help="where the picture goes, a PNG; if empty: nowhere",
    )
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> None:
    """Tell the story; exits with 1 where it did not end as it should."""
    try:
        from warmindex_subscriber.demo_kv.screen import Screen, summary  # noqa: PLC0415 - an extra
        from warmindex_subscriber.demo_kv.story import tell  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise WarmindexError(
            f"{error.name} is not installed, and without it no events can be published: "
            "pip install 'warmindex[kv]'"
        ) from error
    console = Console()
    console.rule("warmindex: ask who holds the prompt's beginning")
    console.print(
        "Two fleets of four engines serve the same chats: one in turn, one routed by LookupRoute.\n"
    )
    with Screen(console) as screen:
        story = await tell(arguments.seconds, arguments.seed, screen.show)
    console.print(summary(story))
    if arguments.picture and story.routed.prompts:
        _draw(console, story, Path(arguments.picture))
    for problem in story.problems:
        console.print(f"[red]{problem}[/]")
    if story.problems:
        sys.exit(1)
    console.print("\n[green]the index was right about every engine to the end[/]")


def _draw(console: Console, story: Story, path: Path) -> None:
    from warmindex_subscriber.demo_kv.picture import draw  # noqa: PLC0415 - an extra

    try:
        draw(story, path)
    except (WarmindexError, OSError) as error:
        story.problems.append(f"no picture: {error}")
    else:
        console.print(f"\nThe two over time: {path.resolve()}", highlight=False, soft_wrap=True)
