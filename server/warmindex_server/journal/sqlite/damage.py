"""What a start makes of a write-ahead log that was not closed."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress

from warmindex_server.journal.base import JournalCorruptError
from warmindex_server.journal.sqlite.file import JournalFile
from warmindex_server.journal.sqlite.opening import WAY_OUT

_log = logging.getLogger(__name__)


def check_tail(file: JournalFile) -> None:
    """Warn of a torn tail, stop at damage. Raises JournalCorruptError.

    Damage is remembered in the file: SQLite removes the log when it closes it, and without
    that the next start would find nothing wrong.
    """
    if file.head.damage:
        raise JournalCorruptError(f"{file.path} is damaged: {file.head.damage}; {WAY_OUT}")
    tail = file.wal_tail
    if tail.damaged:
        damage = (
            f"its write-ahead log does not verify after frame {file.wal_frames}, and "
            f"{tail.commits} transactions stand behind that (revisions above {file.revision}); "
            f"the log is kept as {file.wal_kept}"
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
