"""Follows catalogue files: tells when one of them is another than it was.

The folders of files are watched, not the files: an editor replaces a file by another, and a
mounted ConfigMap replaces the folder behind a link. What else happens in a folder is no change
of a catalogue. Looking now and then as well finds what no notice came of: a folder that did
not exist yet or was made anew, a file system without notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeAlias

from watchfiles import awatch

from warmindex_subscriber.catalogue_files import files_of

_log = logging.getLogger(__name__)

LOOK_S: Final = 5.0

# By file: time of the last change, size, and number of the file.
State: TypeAlias = dict[Path, tuple[int, int, int]]


class CatalogueWatch:
    """What some paths had when this was made; `run` sets `changed` from then on."""

    def __init__(self, paths: Sequence[Path], changed: asyncio.Event) -> None:
        self._changed = changed
        self._seen = {path: _state(path) for path in paths}

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for path in self._seen:
                group.create_task(self._follow(path))

    async def _follow(self, path: Path) -> None:
        while True:
            folders = _folders(path)
            try:
                async for _ in awatch(
                    *folders,
                    watch_filter=None,
                    recursive=folders == [path],
                    rust_timeout=int(LOOK_S * 1000),
                    yield_on_timeout=True,
                    ignore_permission_denied=True,
                ):
                    self._look(path)
                    if _folders(path) != folders:
                        break
            except (OSError, RuntimeError) as error:
                # There are only so many watches, and a folder may have gone this moment.
                _log.debug("%s: cannot be watched: %s", path, error)
                await asyncio.sleep(LOOK_S)
                self._look(path)

    def _look(self, path: Path) -> None:
        state = _state(path)
        if state != self._seen[path]:
            self._seen[path] = state
            self._changed.set()


def _folders(path: Path) -> list[Path]:
    """What to watch for a path: itself, or where a file and what it links to stand.

    Of what does not exist the nearest folder above that does.
    """
    folders = {path} if path.is_dir() else {path.absolute().parent, path.resolve().parent}
    return sorted({_existing(folder) for folder in folders})


def _existing(folder: Path) -> Path:
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _state(path: Path) -> State:
    state: State = {}
    for file in files_of([path]):
        try:
            status = file.stat()
        except OSError:
            continue
        state[file] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return state
