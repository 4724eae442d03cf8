"""Snapshots in the background, so that the log stays short and a restart quick.

A snapshot is taken when enough has come since the last one, in records or in bytes, or when
anything has and the last one is old. It is read from the index step by step while the index
goes on; publishes never wait for it. One that cannot be written is told of and tried again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

from warmindex.errors import JournalUnavailableError
from warmindex.event import CacheEvent
from warmindex.index import Applied
from warmindex.index.snapshot import Snapshot
from warmindex.record import Conditional, Record, Report

from warmindex_server.journal.base import Parts
from warmindex_server.leader import Alone, Leadership
from warmindex_server.store import Store

_log = logging.getLogger(__name__)

# A restart replays at most this much beside the snapshot: about a second of small events.
RECORDS_MAX: Final = 50_000
BYTES_MAX: Final = 256 * 2**20
# Whatever has come, after this long it is in a snapshot.
AGE_S_MAX: Final = 900.0
CHECK_S: Final = 1.0
# A disk that is full or a server that is away is not better in a second.
RETRY_S: Final = 30.0
# Watchers that were away for a moment find their place again in what is kept of the log.
KEEP_RECORDS: Final = 10_000


class Snapshots:
    """Takes snapshots of one store; a listener of it, to know when one is due.

    Of the servers that share a journal the leader takes them; the others only count on.
    """

    def __init__(self, store: Store, leadership: Leadership | None = None) -> None:
        self._store = store
        self._leadership = leadership or Alone()
        self._records = 0
        self._bytes = 0
        self._taken_at_s = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self.last_revision = 0

    def applied(self, record: Record, applied: Applied) -> None:  # noqa: ARG002 - any verdict is a record
        """Another record is in the log."""
        self._records += 1
        self._bytes += _bytes_of(record)

    @property
    def age_s(self) -> float:
        """Seconds since the last snapshot, or since the start."""
        return time.monotonic() - self._taken_at_s

    def start(self) -> None:
        """Begin to look whether one is due."""
        self._records += self._store.replayed
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; one that is being taken is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def take(self) -> bool:
        """Take one now; False where another server is at it, or has a newer one."""
        store = self._store
        records, in_bytes, started = self._records, self._bytes, time.monotonic()
        with await store.open_snapshot() as snapshot:
            revision = snapshot.revision
            saved = await store.journal.save_snapshot(
                revision, _batches(store, snapshot), KEEP_RECORDS
            )
        # What came meanwhile is for the next one.
        self._records -= records
        self._bytes -= in_bytes
        self._taken_at_s = time.monotonic()
        if saved:
            self.last_revision = revision
            _log.info("snapshot at revision %d in %.1f s", revision, self._taken_at_s - started)
        return saved

    def _due(self) -> bool:
        return (
            self._records >= RECORDS_MAX
            or self._bytes >= BYTES_MAX
            or (self._records > 0 and self.age_s >= AGE_S_MAX)
        )

    def _note_others(self) -> None:
        """Where another server has taken one, what came before is in it."""
        revision = self._leadership.snapshot_revision
        if revision <= self.last_revision:
            return
        self.last_revision = revision
        before = self._records
        self._records = max(0, min(before, self._store.revision - revision))
        self._bytes = self._bytes * self._records // max(1, before)
        self._taken_at_s = time.monotonic()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            self._note_others()
            if not self._due() or self._store.problem or not self._leadership.leads:
                continue
            try:
                await self.take()
            except JournalUnavailableError as error:
                _log.error("no snapshot could be written, the last one stays: %s", error.message)
                await asyncio.sleep(RETRY_S)


async def _batches(store: Store, snapshot: Snapshot) -> AsyncIterator[Parts]:
    for step in snapshot.steps():
        if step:
            yield step
        await store.give_way()


def _bytes_of(record: Record) -> int:
    """About what a record takes in the log."""
    if isinstance(record, Conditional):
        record = record.record
    if isinstance(record, Report):
        return sum(map(_bytes_of, record.changes))
    if not isinstance(record, CacheEvent):
        return 100
    size = 100 + 12 * len(record.content_hashes)
    if record.embeddings is not None:
        size += record.embeddings.nbytes
    return size + sum(len(each.description) for each in record.documents)
