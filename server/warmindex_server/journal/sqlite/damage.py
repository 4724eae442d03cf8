"""What a start makes of a write-ahead log that was not closed."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from warmindex_server.journal.base import JournalCorruptError
from warmindex_server.journal.sqlite.file import JournalFile
from warmindex_server.journal.sqlite.opening import WAY_OUT
from warmindex_server.journal.sqlite.wal import read_tail

_log = logging.getLogger(__name__)


def check_tail(file: JournalFile) -> None:
    """Warn of a torn tail, stop at damage. Raises JournalCorruptError.

    Damage is remembered in the file: SQLite removes the log when it closes it, and without
    that the next start would find nothing wrong.
    """
    if file.head.damage:
        raise JournalCorruptError(f"{file.path} is damaged: {file.head.damage}; {WAY_OUT}")
    tail = read_tail(file.wal, file.wal_frames)
    if tail.damaged:
        aside = set_aside(file.wal, copy=True)
        damage = (
            f"its write-ahead log does not verify after frame {file.wal_frames}, and "
            f"{tail.commits} transactions stand behind that (revisions above {file.revision}); "
            f"the log is kept as {aside.name}"
        )
        with suppress(sqlite3.Error):
            file.mark_damaged(damage)
        raise JournalCorruptError(f"{file.path} is damaged: {damage}; {WAY_OUT}")
    if tail.torn:
        _log.warning(
            "%s: a transaction that was being written when the server ended was cut off "
            "(%d frames, %d bytes); nobody was told of it. The log ends at revision %d",
            file.path,
            tail.frames,
            tail.bytes_left,
            file.revision,
        )


def set_aside(path: Path, *, copy: bool = False) -> Path:
    """Give a file a name that says what it is and when; the new name."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    aside = path.with_name(f"{path.name}.damaged-{now}")
    if copy:
        shutil.copy2(path, aside)
    else:
        path.rename(aside)
    return aside
