"""The SQLite journal: the contract of `Journal` around one file and one thread."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeVar, cast

from warmindex.errors import JournalUnavailableError
from warmindex.record import Record

from warmindex_server.journal.base import (
    PACK_BYTES,
    Batch,
    JournalCorruptError,
    JournalMovedError,
    Parts,
    Step,
    StoredSnapshot,
)
from warmindex_server.journal.codec import Item, decode_all, encode_groups, pack_parts
from warmindex_server.journal.frame import CodecError
from warmindex_server.journal.sqlite.damage import check_tail
from warmindex_server.journal.sqlite.file import JournalFile, LogRow, PartRow
from warmindex_server.journal.sqlite.opening import WAY_OUT, start_error

T = TypeVar("T")
Row = TypeVar("Row", LogRow, PartRow)

_log = logging.getLogger(__name__)


class SqliteJournal:
    """One file, one server; see file.py for what is durable when."""

    name: ClassVar[str] = "sqlite"
    immediate: ClassVar[bool] = False
    shared: ClassVar[bool] = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: JournalFile | None = None
        # SQLite waits for the disk in here, so that the event loop never does.
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self._saving = asyncio.Lock()
        self._closed = False

    @property
    def history_id(self) -> str:
        """The file's history; still known when it is closed."""
        return self._known.head.history_id

    @property
    def revision(self) -> int:
        """The last revision in the file; still known when it is closed."""
        return self._known.revision

    @property
    def _known(self) -> JournalFile:
        if self._file is None:
            raise JournalUnavailableError(f"the journal {self.path} has not been opened")
        return self._file

    @property
    def _opened(self) -> JournalFile:
        if self._closed:
            raise JournalUnavailableError(f"the journal {self.path} is closed")
        return self._known

    async def _run(self, step: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, step)

    async def start(self) -> None:
        """Open, lock, look for damage, and remove what an interrupted snapshot left."""
        self._file = await self._run(self._open)

    def _open(self) -> JournalFile:
        file = JournalFile(self.path)
        try:
            check_tail(file)
            file.advise_reading()
            while file.remove_step():
                pass
        except sqlite3.Error as error:
            file.close()
            raise start_error(self.path, error) from error
        except BaseException:
            file.close()
            raise
        return file

    # ---- reading -----------------------------------------------------------------------

    async def snapshot(self) -> StoredSnapshot | None:
        """The snapshot in the file."""
        head = self._opened.head
        if head.snapshot_revision is None:
            return None
        batches = self._parts(head.first_part, head.part_count)
        return StoredSnapshot(head.snapshot_revision, head.part_count, batches)

    async def _parts(self, first: int, count: int) -> AsyncIterator[Parts]:
        file = self._opened
        last = first + count - 1

        def step(after: int) -> list[PartRow]:
            return file.read_parts(after, last, PACK_BYTES)

        expected = first
        async for rows in self._pages(step, first - 1, last, "the snapshot's part"):
            for part, frames in rows:
                if part != expected:
                    raise self._corrupt(f"the snapshot's part {expected}", "it is missing")
                expected += 1
                yield cast("Parts", self._decode(frames, f"the snapshot's part {part}"))

    async def read(self, after: int) -> AsyncIterator[Batch]:
        """The log's rows, checked to be without a gap."""
        file = self._opened
        cut_to = file.head.cut_to
        if after < cut_to:
            raise JournalMovedError(
                f"the log is cut up to revision {cut_to}: start from the snapshot"
            )
        after = max(after, file.head.before_first)

        def step(after: int) -> list[LogRow]:
            return file.read_log(after, PACK_BYTES)

        async for rows in self._pages(step, after, file.revision, "the record at revision"):
            batch: list[tuple[int, Record]] = []
            for row in rows:
                batch += self._records(row, after)
                after = row.last_revision
            yield batch

    async def _pages(
        self, step: Callable[[int], list[Row]], after: int, last: int, place: str
    ) -> AsyncIterator[list[Row]]:
        """Rows page by page; the next page is read while this one is worked on."""
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[list[Row]] | None = None
        try:
            while after < last:
                pending = pending or loop.run_in_executor(self._thread, step, after)
                try:
                    rows = await pending
                except sqlite3.DatabaseError as error:
                    raise self._corrupt(f"{place} {after + 1}", str(error)) from error
                if not rows:
                    raise self._corrupt(f"{place} {after + 1}", "it is missing")
                after = rows[-1][0]
                pending = loop.run_in_executor(self._thread, step, after) if after < last else None
                yield rows
        finally:
            if pending is not None:
                pending.cancel()

    def _records(self, row: LogRow, after: int) -> list[tuple[int, Record]]:
        before_first = row.last_revision - row.record_count
        place = f"the record at revision {before_first + 1}"
        if before_first > after:
            raise self._corrupt(f"the record at revision {after + 1}", "it is missing")
        records = cast("list[Record]", self._decode(row.frames, place))
        if len(records) != row.record_count:
            raise self._corrupt(place, f"{len(records)} are left of {row.record_count} records")
        return list(enumerate(records[after - before_first :], after + 1))

    def _decode(self, frames: bytes, place: str) -> list[Item]:
        try:
            return list(decode_all(frames))
        except CodecError as error:
            raise self._corrupt(place, str(error)) from error

    def _corrupt(self, place: str, problem: str) -> JournalCorruptError:
        return JournalCorruptError(f"{self.path} is damaged at {place}: {problem}; {WAY_OUT}")

    def tail(self, after: int) -> AsyncIterator[Step]:
        """Nobody else appends here."""
        raise NotImplementedError(f"{self.path} is not shared: nothing after {after} comes")

    # ---- writing -----------------------------------------------------------------------

    async def append(self, records: Sequence[Record]) -> Sequence[int]:
        """Store records in one transaction; it is fsynced when this returns."""
        file = self._opened
        groups = encode_groups(records)
        if not groups:
            return ()
        last = await self._writing(lambda: file.append(groups))
        return range(last - len(records) + 1, last + 1)

    async def save_snapshot(
        self, revision: int, batches: AsyncIterator[Parts], keep_records: int = 0
    ) -> bool:
        """Store the parts batch by batch between appends, then switch over to them."""
        file = self._opened
        if self._saving.locked() or revision <= (file.head.snapshot_revision or 0):
            return False
        async with self._saving:
            first = await self._writing(file.next_part)
            count = 0
            try:
                async for frames in pack_parts(batches):
                    await self._writing(partial(file.put_part, first + count, frames))
                    count += 1
                await self._writing(
                    lambda: file.publish_snapshot(revision, first, count, keep_records)
                )
            finally:
                # What was replaced, or what was begun in vain.
                with suppress(JournalUnavailableError):
                    while await self._writing(file.remove_step):
                        pass
        return True

    async def _writing(self, step: Callable[[], T]) -> T:
        try:
            # A snapshot that is being saved may still be at it when the journal is closed.
            self._opened  # noqa: B018 - raises
            return await self._run(step)
        except sqlite3.Error as error:
            raise JournalUnavailableError(
                f"the journal cannot be written ({self.path}: {error}): look for room on the "
                "disk and for its health; reads go on, and publishes as soon as it can be written"
            ) from error

    async def close(self) -> None:
        """Move the write-ahead log into the file, and let go of it."""
        if self._closed:
            return
        self._closed = True
        if self._file is not None:
            try:
                await self._run(self._file.close)
            except sqlite3.Error as error:
                _log.warning("closing %s: %s; the next start takes care of it", self.path, error)
        self._thread.shutdown(wait=False)
