"""The file of a SQLite journal, step by step.

What is fsynced when: in WAL mode with synchronous=FULL, SQLite writes each transaction to
`PATH-wal` and fsyncs that before the statement returns; the database file itself is fsynced
before the log is begun anew. So power loss can take nothing but the transaction that was
being written, which nobody was told of; SQLite drops it on the next start. What it cannot
protect from: disks that say "written" and lie, and locks that a network file system does not
keep.

All calls come from one thread. An append is a single statement: each statement lets go of
Python's global lock, and getting it back can take longer than the disk.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from warmindex_server.journal.sqlite.opening import connect, set_aside, set_up, start_error
from warmindex_server.journal.sqlite.wal import read_tail

# What is removed in one step after a cut, so that an append never waits long.
REMOVED_LOG_ROWS: Final = 64
REMOVED_PARTS: Final = 4


class Head(NamedTuple):
    """The one row of the table `journal`."""

    history_id: str
    before_first: int
    cut_to: int
    snapshot_revision: int | None
    first_part: int
    part_count: int
    damage: str | None


class LogRow(NamedTuple):
    """One append."""

    last_revision: int
    record_count: int
    frames: bytes


class PartRow(NamedTuple):
    """One batch of a snapshot's parts."""

    id: int
    frames: bytes


class JournalFile:
    """An open file, locked for this server alone. Not thread-safe."""

    def __init__(self, path: Path, *, history_above: int = 0, damaged: bool = False) -> None:
        """Open or create, and lock. Raises JournalStartError, JournalInUseError.

        A new file's revisions start above `history_above`. A `damaged` one is opened as long
        as its tables can be found.
        """
        self.path = path
        self.wal = path.with_name(path.name + "-wal")
        self._advised = -1
        self._untidy = False
        self._db = connect(path)
        try:
            # Says how many frames of the log SQLite has taken over; the next write begins
            # the log anew, so its tail is looked at before.
            self.wal_frames = max(0, self._one("PRAGMA wal_checkpoint(PASSIVE)")[1])
            self.wal_tail = read_tail(self.wal, self.wal_frames)
            self.wal_kept = ""
            if self.wal_tail.damaged:
                self.wal_kept = set_aside(self.wal, copy=True).name
            set_up(self._db, path, history_above)
            self.head = self._read_head()
            last = self._last_revision(damaged)
        except sqlite3.Error as error:
            self._db.close()
            raise start_error(path, error) from error
        except BaseException:
            self._db.close()
            raise
        self.revision = max(last, self.head.snapshot_revision or 0, self.head.before_first)

    def _read_head(self) -> Head:
        row = self._db.execute(
            "SELECT history_id, before_first, cut_to, snapshot_revision, first_part,"
            " part_count, damage FROM journal"
        ).fetchone()
        return Head(*row)

    def _last_revision(self, damaged: bool) -> int:
        try:
            return self._one("SELECT max(last_revision) FROM log")[0] or 0
        except sqlite3.DatabaseError:
            if not damaged:
                raise
            return max(self.readable_revisions(0), default=0)

    def _one(self, statement: str, values: Sequence[object] = ()) -> tuple[int, ...]:
        row: tuple[int, ...] = self._db.execute(statement, values).fetchone()
        return row

    # ---- the log -----------------------------------------------------------------------

    def append(self, groups: Sequence[tuple[int, bytes]]) -> int:
        """Store groups of (number of records, their frames), durably; the last revision."""
        rows = []
        last = self.revision
        for count, frames in groups:
            last += count
            rows.append((last, count, frames))
        self._tidy()
        try:
            if len(rows) == 1:
                self._db.execute("INSERT INTO log VALUES (?, ?, ?)", rows[0])
            else:
                self._db.execute("BEGIN IMMEDIATE")
                with self._db:
                    self._db.executemany("INSERT INTO log VALUES (?, ?, ?)", rows)
        except sqlite3.Error:
            self._untidy = True
            raise
        self.revision = last
        return last

    def _tidy(self) -> None:
        """After an append that failed, take what is left of it out of the write-ahead log.

        It would look like damage to a start after a crash (see wal.py): it was written, maybe
        with its end, and nobody was told of it.
        """
        if self._untidy:
            busy, _, _ = self._one("PRAGMA wal_checkpoint(TRUNCATE)")
            self._untidy = bool(busy)

    def read_log(self, after: int, bytes_wanted: int) -> list[LogRow]:
        """Rows that end after a revision, in order, until they have that many bytes."""
        rows: list[LogRow] = []
        size = 0
        cursor = self._db.execute(
            "SELECT last_revision, record_count, frames FROM log WHERE last_revision > ?"
            " ORDER BY last_revision",
            (after,),
        )
        for row in cursor:
            rows.append(LogRow(*row))
            size += len(rows[-1].frames)
            if size >= bytes_wanted:
                break
        cursor.close()
        return rows

    def readable_revisions(self, after: int) -> list[int]:
        """The last revisions of the rows behind one, also where some pages are damaged."""
        found: set[int] = set()
        for order in ("ASC", "DESC"):
            # From both ends up to the damage.
            with suppress(sqlite3.DatabaseError):
                for (last_revision,) in self._db.execute(
                    f"SELECT last_revision FROM log WHERE last_revision > ? "  # noqa: S608
                    f"ORDER BY last_revision {order}",
                    (after,),
                ):
                    found.add(last_revision)
        return sorted(found)

    # ---- the snapshot ------------------------------------------------------------------

    def read_parts(self, after: int, last: int, bytes_wanted: int) -> list[PartRow]:
        """Parts after one and up to another, in order, until they have that many bytes."""
        rows: list[PartRow] = []
        size = 0
        cursor = self._db.execute(
            "SELECT id, frames FROM part WHERE id > ? AND id <= ? ORDER BY id", (after, last)
        )
        for row in cursor:
            rows.append(PartRow(*row))
            size += len(rows[-1].frames)
            if size >= bytes_wanted:
                break
        cursor.close()
        return rows

    def next_part(self) -> int:
        """An id that no part has, above all that have one."""
        head = self.head
        last = self._one("SELECT max(id) FROM part")[0] or 0
        return max(last + 1, head.first_part + head.part_count)

    def put_part(self, part: int, frames: bytes) -> None:
        """Store a batch of parts that no snapshot refers to yet."""
        self._db.execute("INSERT INTO part VALUES (?, ?)", (part, frames))

    def publish_snapshot(
        self, revision: int, first_part: int, part_count: int, keep_records: int
    ) -> None:
        """From now on these parts are the snapshot, and the log begins behind it.

        One row in one transaction; remove_step then gives back what lies before.
        """
        cut_to = min(revision, self.revision - keep_records)
        self._db.execute(
            "UPDATE journal SET snapshot_revision = ?, first_part = ?, part_count = ?,"
            " cut_to = max(cut_to, ?)",
            (revision, first_part, part_count, cut_to),
        )
        self.head = self._read_head()

    def remove_step(self) -> bool:
        """Remove a few rows that nothing refers to; whether there were any."""
        head = self.head
        removed = self._db.execute(
            "DELETE FROM log WHERE last_revision IN (SELECT last_revision FROM log"
            " WHERE last_revision <= ? ORDER BY last_revision LIMIT ?)",
            (head.cut_to, REMOVED_LOG_ROWS),
        ).rowcount
        removed += self._db.execute(
            "DELETE FROM part WHERE id IN (SELECT id FROM part"
            " WHERE id < ? OR id >= ? ORDER BY id LIMIT ?)",
            (head.first_part, head.first_part + head.part_count, REMOVED_PARTS),
        ).rowcount
        return removed > 0

    # ---- the file ------------------------------------------------------------------------

    def mark_damaged(self, damage: str) -> None:
        """Remember that acknowledged records are gone, so that no later start is silent."""
        self._db.execute("UPDATE journal SET damage = ?", (damage,))

    def advise_reading(self) -> None:
        """Ask the system to read the whole file ahead: a start is disk-bound otherwise."""
        if hasattr(os, "posix_fadvise"):
            # Not closed before the database: closing any descriptor of a file lets go of
            # all the locks that this process has on it.
            self._advised = os.open(self.path, os.O_RDONLY)
            os.posix_fadvise(self._advised, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            os.posix_fadvise(self._advised, 0, 0, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Move the log into the file, and let go of it."""
        self._db.close()
        if self._advised >= 0:
            os.close(self._advised)
            self._advised = -1
