"""Opening the file of a SQLite journal: the lock, what the file must be, its tables.

journal    one row: the history, how far the log is cut, where the snapshot's parts lie
log        one row per append: its last revision, its number of records, their frames
part       one row per batch of a snapshot's parts: their frames
"""

from __future__ import annotations

import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from warmindex_server.journal.base import (
    JournalCorruptError,
    JournalInUseError,
    JournalStartError,
)
from warmindex_server.journal.history import first_revision, new_history_id

# "wrmx": tells a journal from any other SQLite file.
APPLICATION_ID: Final = 0x77726D78
SCHEMA_VERSION: Final = 1
# Rows are large: fewer, larger pages are read faster, and cost a small commit nothing.
PAGE_BYTES: Final = 16384
# The log is moved into the database file when it has this size; a commit waits for it then.
WAL_BYTES_MAX: Final = 16 * 2**20
# A server that is being replaced may need this long to let go of its file.
LOCK_WAIT_S: Final = 1.0

WAY_OUT: Final = (
    "restore the file from a backup, or start with --recover: that begins a new history with "
    "what can be read, and keeps the damaged file aside"
)

_PRAGMAS: Final = (
    "synchronous=FULL",
    # Removed rows are no secret: nothing is overwritten with zeros.
    "secure_delete=OFF",
    f"wal_autocheckpoint={WAL_BYTES_MAX // PAGE_BYTES}",
)
_TABLES: Final = (
    """CREATE TABLE journal (
         only INTEGER PRIMARY KEY CHECK (only = 1),
         history_id TEXT NOT NULL,
         before_first INTEGER NOT NULL,
         cut_to INTEGER NOT NULL DEFAULT 0,
         snapshot_revision INTEGER,
         first_part INTEGER NOT NULL DEFAULT 1,
         part_count INTEGER NOT NULL DEFAULT 0,
         damage TEXT
       )""",
    """CREATE TABLE log (
         last_revision INTEGER PRIMARY KEY,
         record_count INTEGER NOT NULL,
         frames BLOB NOT NULL
       )""",
    "CREATE TABLE part (id INTEGER PRIMARY KEY, frames BLOB NOT NULL)",
)


def connect(path: Path) -> sqlite3.Connection:
    """Open or create the file, and lock it until the connection is closed.

    Raises JournalInUseError, JournalStartError. Nothing has been written when it returns.
    """
    try:
        db = sqlite3.connect(
            path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise JournalStartError(
            f"{path} cannot be opened ({error}): the folder must exist and be writable"
        ) from error
    try:
        # Before anything is read: then the lock is taken with the first page and kept.
        db.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        db.execute(f"PRAGMA page_size={PAGE_BYTES}")
        db.execute("BEGIN IMMEDIATE")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        db.close()
        raise start_error(path, error) from error
    return db


def set_up(db: sqlite3.Connection, path: Path, history_above: int) -> None:
    """Check that the file is a journal, or make it one; set what each connection needs.

    A new journal's revisions start above `history_above`. Raises JournalStartError.
    """
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (kind,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if tables and kind != APPLICATION_ID:
        raise JournalStartError(
            f"{path} is another program's SQLite file: give the journal a path of its own"
        )
    if version > SCHEMA_VERSION:
        raise JournalStartError(
            f"{path} was written by a newer release (layout {version}, this one knows "
            f"{SCHEMA_VERSION}): start that release"
        )
    (mode,) = db.execute("PRAGMA journal_mode=WAL").fetchone()
    if mode != "wal":
        raise JournalStartError(
            f"{path}: its file system takes no write-ahead log (SQLite chose {mode!r}): put the "
            "journal on a local disk"
        )
    for pragma in _PRAGMAS:
        db.execute(f"PRAGMA {pragma}").fetchall()
    if not tables:
        _make_tables(db, history_above)


def _make_tables(db: sqlite3.Connection, history_above: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    with db:
        for table in _TABLES:
            db.execute(table)
        db.execute(
            "INSERT INTO journal (only, history_id, before_first) VALUES (1, ?, ?)",
            (new_history_id(), first_revision(history_above) - 1),
        )
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def start_error(path: Path, error: sqlite3.Error) -> JournalStartError:
    """What a person is told when SQLite refuses at the start."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return JournalInUseError(
            f"{path} is in use by another process: a SQLite journal belongs to one server. Stop "
            "the other one, or let several servers share a Redis (redis://HOST:PORT)"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return JournalCorruptError(
            f"{path} is not a SQLite file, or its first page is damaged: restore it from a "
            "backup, or start with --recover, which begins anew and keeps it aside"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return JournalCorruptError(f"{path} is damaged ({error}): {WAY_OUT}")
    return JournalStartError(
        f"{path} cannot be used ({error}): the file and its folder must be writable, with room"
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
