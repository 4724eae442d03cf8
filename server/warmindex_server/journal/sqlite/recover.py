"""`--recover` of a SQLite journal: a new file with all that can be read of the old one."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

from warmindex.record import Record

from warmindex_server.journal.base import JournalCorruptError, JournalStartError, Recovered
from warmindex_server.journal.codec import Item, decode_all, encode_groups
from warmindex_server.journal.frame import CodecError
from warmindex_server.journal.sqlite.file import JournalFile
from warmindex_server.journal.sqlite.opening import set_aside

APPEND_BYTES: Final = 8 * 2**20

_log = logging.getLogger(__name__)


def recover(path: Path) -> Recovered:
    """Copy what can be read into a new history, and put that in the place of the old file.

    The old file stays beside it. Raises JournalInUseError where a server runs on it, and
    JournalStartError where there is no file.
    """
    if not path.exists():
        raise JournalStartError(f"{path} is not there: start without --recover")
    fresh_path = path.with_name(f"{path.name}.recovering")
    for leftover in (fresh_path, fresh_path.with_name(f"{fresh_path.name}-wal")):
        leftover.unlink(missing_ok=True)
    old = _open_old(path)
    try:
        fresh = JournalFile(fresh_path, history_above=old.revision if old else 0)
        try:
            recovered = _copy(old, fresh)
        finally:
            fresh.close()
    finally:
        if old:
            old.close()
    aside = set_aside(path)
    fresh_path.rename(path)
    _sync_folder(path.parent)
    recovered = replace(recovered, old_data=str(aside))
    _log.warning("%s: recovered: %s", path, recovered)
    return recovered


def _open_old(path: Path) -> JournalFile | None:
    try:
        return JournalFile(path, damaged=True)
    except JournalCorruptError as error:
        _log.warning("nothing can be read: %s", error.message)
        return None


def _copy(old: JournalFile | None, fresh: JournalFile) -> Recovered:
    history_id = fresh.head.history_id
    if old is None:
        return Recovered(history_id)
    parts_kept = _copy_parts(old, fresh)
    records_kept = 0
    for groups in _grouped(_readable_records(old)):
        fresh.append(groups)
        records_kept += sum(count for count, _ in groups)
    records_all = old.revision - max(old.head.before_first, old.head.snapshot_revision or 0)
    return Recovered(
        history_id,
        records_kept=records_kept,
        records_lost=max(0, records_all - records_kept),
        part_batches_kept=parts_kept,
        part_batches_lost=old.head.part_count - parts_kept,
    )


def _copy_parts(old: JournalFile, fresh: JournalFile) -> int:
    head = old.head
    if head.snapshot_revision is None:
        return 0
    first = fresh.next_part()
    kept = 0
    for part in range(head.first_part, head.first_part + head.part_count):
        try:
            ((_, frames),) = old.read_parts(part - 1, part, 1)
        except (sqlite3.DatabaseError, ValueError):
            continue
        for _, good in encode_groups(_readable(frames)):
            fresh.put_part(first + kept, good)
            kept += 1
    fresh.publish_snapshot(fresh.head.before_first, first, kept, keep_records=0)
    return kept


def _grouped(rows: Iterator[list[Record]]) -> Iterator[list[tuple[int, bytes]]]:
    """Many rows in one append: each costs an fsync."""
    waiting: list[tuple[int, bytes]] = []
    size = 0
    for records in rows:
        groups = encode_groups(records)
        waiting += groups
        size += sum(len(frames) for _, frames in groups)
        if size >= APPEND_BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def _readable_records(old: JournalFile) -> Iterator[list[Record]]:
    """The records after the snapshot, row by row, without those that cannot be read."""
    after = old.head.snapshot_revision or 0
    for last_revision in old.readable_revisions(after):
        try:
            (row, *_) = old.read_log(last_revision - 1, 1)
        except (sqlite3.DatabaseError, ValueError):
            continue
        records = cast("list[Record]", _readable(row.frames))
        before_first = row.last_revision - row.record_count
        wanted = records[max(0, after - before_first) :]
        if wanted:
            yield wanted


def _readable(frames: bytes) -> list[Item]:
    """The items up to the first frame that is damaged."""
    items: list[Item] = []
    with suppress(CodecError):
        for item in decode_all(frames):
            items.append(item)  # noqa: PERF402 - what came before an error is kept
    return items


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
