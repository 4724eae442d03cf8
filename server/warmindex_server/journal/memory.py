"""The journal of those who want none: records are numbered, and gone at exit.

A bounded part of them is kept, so that it reads like every other journal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from itertools import islice
from typing import ClassVar, Final

from warmindex.errors import InvalidError
from warmindex.event import CacheEvent
from warmindex.record import Conditional, Record, Report

from warmindex_server.journal.base import (
    Batch,
    Journal,
    JournalMovedError,
    JournalOptions,
    Parts,
    Recovered,
    Step,
    StoredSnapshot,
)
from warmindex_server.journal.history import first_revision, new_history_id

# Nobody needs this log but to look at it.
LOG_RECORDS_MAX: Final = 4096
# Vectors in it are memory that the index may long have let go.
LOG_VECTOR_BYTES_MAX: Final = 64 * 2**20
_READ_RECORDS: Final = 256


class MemoryJournal:
    """A new history each start; see `Journal` for the contract."""

    name: ClassVar[str] = "memory"
    immediate: ClassVar[bool] = True
    shared: ClassVar[bool] = False

    def __init__(self) -> None:
        self.history_id = new_history_id()
        self.revision = first_revision() - 1
        self._log: deque[Record] = deque()
        self._vector_bytes = 0
        # The last revision that the log no longer has; 0 while it has all.
        self._cut_to = 0
        self._snapshot: tuple[int, list[Parts]] | None = None

    async def start(self) -> None:
        """There is nothing to open."""

    async def snapshot(self) -> StoredSnapshot | None:
        """The snapshot saved last in this process."""
        if self._snapshot is None:
            return None
        revision, batches = self._snapshot
        return StoredSnapshot(revision, len(batches), _each(batches))

    async def read(self, after: int) -> AsyncIterator[Batch]:
        """What is left of the log."""
        end = self.revision
        while after < end:
            if after < self._cut_to:
                raise JournalMovedError(
                    f"the log is cut up to revision {self._cut_to}: start from the snapshot"
                )
            first = self.revision - len(self._log) + 1
            start = max(0, after + 1 - first)
            records = list(islice(self._log, start, start + _READ_RECORDS))
            after = first + start + len(records) - 1
            yield list(enumerate(records, first + start))

    def tail(self, after: int) -> AsyncIterator[Step]:
        """Nobody else appends here."""
        raise NotImplementedError(f"the memory journal is not shared: nothing after {after} comes")

    async def append(self, records: Sequence[Record]) -> Sequence[int]:
        """Number them. Never waits."""
        first = self.revision + 1
        self.revision += len(records)
        self._log.extend(records)
        self._vector_bytes += sum(map(_vector_bytes, records))
        self._forget(LOG_RECORDS_MAX, LOG_VECTOR_BYTES_MAX)
        return range(first, self.revision + 1)

    async def save_snapshot(
        self, revision: int, batches: AsyncIterator[Parts], keep_records: int = 0
    ) -> bool:
        """Keep the parts, and cut the log."""
        if self._snapshot is not None and self._snapshot[0] >= revision:
            return False
        self._snapshot = (revision, [batch async for batch in batches])
        self._forget(max(self.revision - revision, keep_records), LOG_VECTOR_BYTES_MAX)
        return True

    async def close(self) -> None:
        """There is nothing to close."""

    def _forget(self, records_max: int, vector_bytes_max: int) -> None:
        log = self._log
        while log and (len(log) > records_max or self._vector_bytes > vector_bytes_max):
            self._vector_bytes -= _vector_bytes(log.popleft())
            self._cut_to = self.revision - len(log)


def open_url(_url: str, _options: JournalOptions) -> Journal:
    """The journal of `memory` and `memory://`."""
    return MemoryJournal()


async def recover_url(_url: str, _options: JournalOptions) -> Recovered:
    """There is never anything to recover."""
    raise InvalidError(
        "journal is memory, which keeps nothing that --recover could read: leave --recover out",
        field="journal",
    )


def _vector_bytes(record: Record) -> int:
    if isinstance(record, Conditional):
        record = record.record
    if isinstance(record, CacheEvent):
        return 0 if record.embeddings is None else record.embeddings.nbytes
    return sum(map(_vector_bytes, record.changes)) if isinstance(record, Report) else 0


async def _each(batches: Sequence[Parts]) -> AsyncIterator[Parts]:
    for batch in batches:
        yield batch
