"""The only writer: append to the journal, apply to the index, tell who waits.

    publish --> journal.append --> index.apply --> listeners (watches, claims) --> answer

Appending and applying happen in the order of revisions, and an answer is given when its
record is visible here. How the two meet depends on the journal: see commit.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol

from warmindex.errors import RevisionNotReachedError, ShuttingDownError
from warmindex.index import Index, is_large
from warmindex.index.snapshot import Snapshot

from warmindex_server.commit import committer_of
from warmindex_server.journal.base import JournalMovedError
from warmindex_server.watch import EffectLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from warmindex.index import Applied
    from warmindex.index.selection import Selection
    from warmindex.record import Record

    from warmindex_server.journal.base import Journal

_log = logging.getLogger(__name__)

# At the start of a server: its journal is mended or a new snapshot is there by then.
LOADS_MAX: Final = 5
# No step on the event loop may hold it longer: a reader's p99 depends on it.
LOOP_HOLD_S_MAX: Final = 0.002
# A backend that is not what it says replaces vectors with every build; once a minute is told.
WARN_EVERY_S: Final = 60.0


class Listener(Protocol):
    """Is told of every applied record, in order, in the same step; must not wait or raise."""

    def applied(self, record: Record, applied: Applied) -> None:
        """Take note of what a record did."""


class Store:
    """One index, its journal, and everyone who waits for it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.index = Index(journal.revision)
        self.log = EffectLog(self.index.revision)
        self.listeners: list[Listener] = []
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ticket = count()
        self._stepped = 0.0
        # Vectors that took the place of others under their key, since the start.
        self.vectors_replaced = 0
        self._warn_again_s = 0.0
        # Called after each load: what is kept beside the index begins anew.
        self.loaded: list[Callable[[], None]] = []
        self._history_id = journal.history_id
        # Records that the last load took from the log, behind the snapshot.
        self.replayed = 0
        self._away = ""
        self.progress = ""
        self._committer = committer_of(journal, self)
        self._reclaiming: asyncio.Task[None] | None = None
        # Held while a large record is applied in steps.
        self._half_applied = asyncio.Lock()

    @property
    def revision(self) -> int:
        """The revision of the last record applied here."""
        return self.index.revision

    @property
    def history_id(self) -> str:
        """The history that the index is of: the journal's, but for while it is loaded anew."""
        return self._history_id

    @property
    def problem(self) -> str:
        """Why nothing can be published just now; "" where it can."""
        return self._away

    # ---- loading -----------------------------------------------------------------------

    async def start(self) -> None:
        """Load what the journal has, and begin to take records."""
        for _ in range(LOADS_MAX - 1):
            try:
                await self.load()
                break
            except JournalMovedError as error:
                _log.warning("the journal has moved while it was loaded, again: %s", error.message)
        else:
            await self.load()
        await self._committer.start()

    async def load(self) -> None:
        """Rebuild the index from the journal: its snapshot, then what came after.

        Readers see the old index until the new one is whole. Watchers go on where they stood,
        if the log that was replayed reaches back to there. Raises JournalMovedError where the
        journal has moved meanwhile.
        """
        history_id, begun = self.journal.history_id, self.journal.revision
        snapshot = await self.journal.snapshot()
        index = Index(snapshot.revision if snapshot else self.journal.revision)
        log = self.log.anew(snapshot.revision if snapshot else 0)
        self.replayed = 0
        if snapshot is not None:
            loaded = 0
            async for parts in snapshot.batches:
                for part in parts:
                    index.restore(part)
                    await self.give_way()
                loaded += 1
                self.progress = f"snapshot: {loaded} of {snapshot.batch_count} parts"
        async for batch in self.journal.read(snapshot.revision if snapshot else 0):
            for revision, record in batch:
                log.applied(record, await self._apply_in_steps(index, revision, record))
                await self.give_way()
            self.replayed += len(batch)
            self.progress = f"log: revision {index.revision} of {self.journal.revision}"
            if batch:
                _log.info("replaying %s", self.progress)
        self.progress = ""
        if self.journal.history_id != history_id:
            raise JournalMovedError("another history has begun meanwhile", new_history=True)
        # A history that began upon less than was known here still starts above all of it.
        index.revision = max(index.revision, begun)
        # In one step: whoever asks meets the new index with its history, or neither.
        self.index = index
        self._history_id = history_id
        self.log.replace(log, index.revision)
        self._reached(index.revision)
        for each in self.loaded:
            each()

    def journal_away(self, reason: str) -> None:
        """Note that the journal cannot be reached ("" once it is again)."""
        if reason and not self._away:
            _log.error("the journal is away, publishes fail and reads go on: %s", reason)
        elif self._away and not reason:
            _log.info("the journal is back")
        self._away = reason

    # ---- writing -----------------------------------------------------------------------

    def submit(self, records: Sequence[Record]) -> Awaitable[list[Applied]]:
        """Append records in order and apply them; awaiting it gives what became of each.

        Their place in the order is taken when this returns, for every journal but the
        immediate one, where it is taken when it is awaited. Awaiting it raises
        JournalUnavailableError where they could not be appended.
        """
        return self._committer.submit(records)

    async def publish(self, record: Record) -> Applied:
        """Append one record and apply it; it is visible here when this returns."""
        (applied,) = await self._committer.submit((record,))
        return applied

    async def publish_all(self, records: Sequence[Record]) -> list[Applied]:
        """Append records in order and apply them; what became of each."""
        return await self._committer.submit(records)

    async def give_way(self) -> None:
        """Let others run, if this step has held the loop for long enough."""
        if time.perf_counter() - self._stepped > LOOP_HOLD_S_MAX:
            await asyncio.sleep(0)
            self._stepped = time.perf_counter()

    async def apply(self, revision: int, record: Record) -> Applied:
        """Apply one record and tell who waits; the committer's to call, one at a time."""
        if is_large(record):
            async with self._half_applied:
                applied = await self._apply_in_steps(self.index, revision, record)
        else:
            applied = self.index.apply(revision, record)
        self.log.applied(record, applied)
        for listener in self.listeners:
            listener.applied(record, applied)
        if applied.vectors_replaced:
            self._warn_of_replaced_vectors(record, applied)
        self._reached(revision)
        if self.index.reclaimable and self._reclaiming is None:
            self._reclaiming = asyncio.create_task(self._reclaim())
        return applied

    async def _apply_in_steps(self, index: Index, revision: int, record: Record) -> Applied:
        """Apply a large record; readers have their turn in between, and none at its end."""
        steps = index.apply_in_steps(revision, record)
        while (applied := next(steps)) is None:
            await self.give_way()
        return applied

    def _warn_of_replaced_vectors(self, record: Record, applied: Applied) -> None:
        self.vectors_replaced += applied.vectors_replaced
        now_s = time.monotonic()
        if now_s < self._warn_again_s:
            return
        self._warn_again_s = now_s + WARN_EVERY_S
        _log.warning(
            "vectors replaced by other bytes under the same key (%d since the start), last by "
            "replica %r: two backends differ although they claim one model identity",
            self.vectors_replaced,
            getattr(record, "replica_id", ""),
        )

    async def _reclaim(self) -> None:
        """Give back what clears have retired, a step at a time."""
        try:
            more = self.index.reclaimable
            while more:
                more = self.index.reclaim_step()
                await asyncio.sleep(0)
        finally:
            self._reclaiming = None

    async def open_snapshot(self, selection: Selection | None = None) -> Snapshot:
        """A snapshot of the index, or of a part of it, as soon as no record is half applied."""
        async with self._half_applied:
            return Snapshot(self.index, selection)

    # ---- waiting -----------------------------------------------------------------------

    async def wait_for_revision(self, revision: int, timeout_s: float) -> None:
        """Return once `revision` is applied here.

        Raises RevisionNotReachedError where that takes longer than `timeout_s`, and
        ShuttingDownError where the server goes away meanwhile.
        """
        if revision <= self.revision:
            return
        waiter = asyncio.get_running_loop().create_future()
        place = (revision, next(self._ticket), waiter)
        heappush(self._waiting, place)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise RevisionNotReachedError(
                f"min_revision is {revision}, this server has reached {self.revision}: ask "
                "again, or ask the server that acknowledged it",
                field="min_revision",
            ) from None
        finally:
            # One that is never reached would else stay for ever.
            if place in self._waiting:
                self._waiting.remove(place)
                heapify(self._waiting)

    def _reached(self, revision: int) -> None:
        """A revision is applied: whoever waits for it, or for one before, goes on."""
        while self._waiting and self._waiting[0][0] <= revision:
            _, _, waiter = heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)

    def stop_waiting(self) -> None:
        """The server goes away: nobody waits for a revision any longer."""
        for _, _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(
                    ShuttingDownError("the server is going away: ask another one, or again")
                )

    async def close(self) -> None:
        """Stop what runs in the background, and close the journal."""
        if self._reclaiming is not None:
            self._reclaiming.cancel()
            with suppress(asyncio.CancelledError):
                await self._reclaiming
        await self._committer.close()
        await self.journal.close()
