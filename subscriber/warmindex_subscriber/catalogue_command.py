"""warmindex-subscriber catalogue: files of tools, kept warm."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from warmindex.options import Options

from warmindex_subscriber.catalogue import Catalogue, Summary, keep
from warmindex_subscriber.catalogue_files import CatalogueFiles
from warmindex_subscriber.catalogue_watch import CatalogueWatch
from warmindex_subscriber.common import (
    add_embedder_options,
    add_server_options,
    client_of,
    embedder_of,
)

_log = logging.getLogger(__name__)


def add_to(commands: Any) -> None:
    """Add the command to a parser."""
    command = commands.add_parser(
        "catalogue",
        help="publish the embeddings of tool catalogues, and follow their changes",
        description="Read the tools that files list (the JSON of an MCP tools/list result, or a "
        "plain list; a folder stands for its *.json files), publish their embeddings, evict what "
        "has gone, and do the same again whenever a file changes.",
    )
    command.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="file or folder")
    options = Options(command)
    add_server_options(options, '"catalogue/" and the first path\'s name')
    add_embedder_options(options)
    options.switch("--once", help="end after the first pass, with exit code 1 if it was not whole")
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> None:
    """Keep the catalogues warm until cancelled."""
    files = CatalogueFiles(arguments.paths)
    changed = asyncio.Event()
    watch = CatalogueWatch(arguments.paths, changed)
    embedder = embedder_of(arguments)
    try:
        async with client_of(arguments) as client:
            catalogue = Catalogue(
                embedder,
                client,
                replica_id=arguments.replica or f"catalogue/{_name(arguments.paths[0])}",
                tenant_id=arguments.tenant,
                adapter_id=arguments.adapter,
            )
            with _progress() as progress:
                if arguments.once:
                    tools = files.read()
                    summary = await catalogue.synchronise(tools, progress, complete=files.complete)
                    _tell(summary)
                    if summary.problems or files.problems:
                        sys.exit(1)
                    return
                watching = asyncio.create_task(watch.run())
                try:
                    await keep(
                        catalogue,
                        files.read,
                        changed,
                        told=_tell,
                        progress=progress,
                        complete=lambda: files.complete,
                    )
                finally:
                    watching.cancel()
                    with suppress(asyncio.CancelledError):
                        await watching
    finally:
        await embedder.close()


def _name(path: Path) -> str:
    """The name that a path was given, also where it is "." or a link to a file of another name."""
    return os.path.normpath(path.absolute()).rpartition(os.sep)[2]


def _tell(summary: Summary) -> None:
    print(summary, flush=True)  # noqa: T201 - the one line per build that people and scripts read


class _progress:  # noqa: N801 - used as a function
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bar = (
            Progress(
                TextColumn("embedding"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                console=console,
                transient=True,
            )
            if console.is_terminal
            else None
        )

    def __enter__(self) -> Callable[[int, int], None] | None:
        if self._bar is None:
            return None
        bar = self._bar
        task = bar.add_task("", total=None)

        def show(done: int, total: int) -> None:
            if done < total:
                bar.start()
                bar.update(task, completed=done, total=total)
            else:
                bar.stop()

        return show

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
