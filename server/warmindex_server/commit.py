"""How records get from publishers to the journal and from there to the index, in order.

    immediate   (memory)  appended and applied in the publisher's own step
    grouped     (sqlite)  publishers that arrive together share one append; while it is
                          written, what the last one brought is applied
    shared      (redis)   appended in groups too, but applied from the journal's tail, where
                          other servers' records come as well; a publisher waits for its own

Each gives a future per call of `submit`; calls are answered in the order of their records.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from warmindex.errors import JournalUnavailableError, WarmindexError
from warmindex.index import Applied, is_large
from warmindex.record import Record

from warmindex_server.journal.base import Away, Back, Journal, JournalMovedError, Step

_log = logging.getLogger(__name__)

# One append; more records wait for the next one, so that the first of them need not.
GROUP_RECORDS_MAX: Final = 1024
# Groups that are written but not yet applied. One is enough to keep both sides busy.
GROUPS_UNAPPLIED_MAX: Final = 1
# What is wrong with a journal that moved is mended by loading it; not in a tight loop.
RELOAD_PAUSE_S: Final = 0.5


class Target(Protocol):
    """Where records are applied: the store."""

    @property
    def revision(self) -> int:
        """The revision of the last record applied."""

    async def apply(self, revision: int, record: Record) -> Applied:
        """Apply one record: now, without giving way, but for a large report.

        A report that would hold up everybody else is applied a little at a time; the next
        record waits until this returns.
        """

    async def give_way(self) -> None:
        """Let others run, if this step has held the loop for long enough."""

    async def load(self) -> None:
        """Rebuild the index from the journal."""

    def journal_away(self, reason: str) -> None:
        """The journal cannot be reached ("" once it is again)."""


class Submission(NamedTuple):
    """Records of one publisher, and who waits for what became of them."""

    records: Sequence[Record]
    future: asyncio.Future[list[Applied]]

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def answer(self, results: list[Applied]) -> None:
        if not self.future.done():
            self.future.set_result(results)


class Committer(Protocol):
    """One of the three ways."""

    async def start(self) -> None:
        """Begin; the index has been loaded."""

    def submit(self, records: Sequence[Record]) -> Awaitable[list[Applied]]:
        """Append records in order and apply them; what became of each.

        The place in the order is taken when this returns. Awaiting it raises
        JournalUnavailableError where they could not be appended.
        """

    async def close(self) -> None:
        """Stop; what was submitted and not answered fails."""


def committer_of(journal: Journal, target: Target) -> Committer:
    """The way that fits a journal."""
    if journal.immediate:
        return Immediate(journal, target)
    return Shared(journal, target) if journal.shared else Grouped(journal, target)


class Immediate:
    """Append and apply in one step, without a queue."""

    def __init__(self, journal: Journal, target: Target) -> None:
        self._journal = journal
        self._target = target
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        """There is nothing to begin."""

    async def submit(self, records: Sequence[Record]) -> list[Applied]:
        """Append and apply, giving way to others between records."""
        results = []
        for record in records:
            work = self._append_and_apply(record)
            # A publisher that goes away half-way must not leave half a report.
            whole = asyncio.shield(asyncio.create_task(work)) if is_large(record) else work
            results.append(await whole)
            await self._target.give_way()
        return results

    async def _append_and_apply(self, record: Record) -> Applied:
        # Neither waits nor fails, so nothing comes between the two.
        async with self._one_at_a_time:
            (revision,) = await self._journal.append((record,))
            return await self._target.apply(revision, record)

    async def close(self) -> None:
        """Let what is under way come to its end."""
        async with self._one_at_a_time:
            return


class Grouped:
    """Append in groups; apply what is appended."""

    def __init__(self, journal: Journal, target: Target) -> None:
        self._journal = journal
        self._target = target
        self._waiting: deque[Submission] = deque()
        self._some = asyncio.Event()
        self._written: asyncio.Queue[tuple[list[Submission], Sequence[int]]] = asyncio.Queue(
            GROUPS_UNAPPLIED_MAX
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Begin to append, and to apply."""
        self._run(self._append_groups(), self._apply_groups())

    def _run(self, *works: Coroutine[None, None, None]) -> None:
        for work in works:
            task = asyncio.create_task(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task here runs for ever; where a bug ends it, say so instead of hanging quietly."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("no record is applied any more: restart the server", exc_info=error)
            self._target.journal_away("an internal error, see the log; restart the server")

    def submit(self, records: Sequence[Record]) -> Awaitable[list[Applied]]:
        """Queue records for the next group."""
        future: asyncio.Future[list[Applied]] = asyncio.get_running_loop().create_future()
        if not records:
            future.set_result([])
            return future
        self._waiting.append(Submission(records, future))
        self._some.set()
        return future

    async def close(self) -> None:
        """Stop both tasks."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        for submission in self._waiting:
            submission.fail(JournalUnavailableError("the server is going away: publish again"))
        self._waiting.clear()

    async def _append_groups(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                await self._append(self._take_group())

    def _take_group(self) -> list[Submission]:
        group, count = [], 0
        while self._waiting and count < GROUP_RECORDS_MAX:
            group.append(self._waiting.popleft())
            count += len(group[-1].records)
        return group

    async def _append(self, group: list[Submission]) -> None:
        """Append a group; where one of its records cannot be, each publisher's by itself."""
        records = [record for submission in group for record in submission.records]
        try:
            revisions = await self._journal.append(records)
        except JournalUnavailableError as error:
            for submission in group:
                submission.fail(error)
        except WarmindexError as error:
            if len(group) == 1:
                group[0].fail(error)
                return
            for submission in group:
                await self._append([submission])
        else:
            await self._appended(group, revisions)

    async def _appended(self, group: list[Submission], revisions: Sequence[int]) -> None:
        await self._written.put((group, revisions))

    async def _apply_groups(self) -> None:
        while True:
            group, revisions = await self._written.get()
            numbers = iter(revisions)
            for submission in group:
                results = []
                for record in submission.records:
                    results.append(await self._target.apply(next(numbers), record))
                    await self._target.give_way()
                submission.answer(results)


class Shared(Grouped):
    """Append in groups; apply the journal's tail, other servers' records and one's own."""

    def __init__(self, journal: Journal, target: Target) -> None:
        super().__init__(journal, target)
        # What the tail has applied while an append of ours was under way: some of it is ours.
        self._applied: dict[int, Applied] = {}
        self._appending = False
        self._expected: dict[int, tuple[Submission, list[Applied]]] = {}

    async def start(self) -> None:
        """Begin to append, and to follow the tail."""
        self._run(self._append_groups(), self._follow())

    async def _append(self, group: list[Submission]) -> None:
        self._appending = True
        try:
            await super()._append(group)
        finally:
            self._appending = False
            self._applied.clear()

    async def _appended(self, group: list[Submission], revisions: Sequence[int]) -> None:
        numbers = iter(revisions)
        for submission in group:
            results: list[Applied] = []
            for revision in (next(numbers) for _ in submission.records):
                applied = self._applied.get(revision)
                if applied is not None:
                    results.append(applied)
                else:
                    self._expected[revision] = (submission, results)
            if len(results) == len(submission.records):
                submission.answer(results)

    async def _follow(self) -> None:
        """Apply the tail for ever; where it breaks off, load the journal anew."""
        while True:
            try:
                await self._follow_tail(self._journal.tail(self._target.revision))
            except JournalMovedError as error:
                _log.warning("the journal has moved, loading it anew: %s", error.message)
                await self._reload()

    async def _follow_tail(self, tail: AsyncIterator[Step]) -> None:
        async for step in tail:
            if isinstance(step, Away):
                self._target.journal_away(step.reason)
            elif isinstance(step, Back):
                self._target.journal_away("")
            else:
                for revision, record in step:
                    self._note(revision, await self._target.apply(revision, record))
                    await self._target.give_way()

    def _note(self, revision: int, applied: Applied) -> None:
        expected = self._expected.pop(revision, None)
        if expected is not None:
            submission, results = expected
            results.append(applied)
            if len(results) == len(submission.records):
                submission.answer(results)
        elif self._appending:
            self._applied[revision] = applied

    async def _reload(self) -> None:
        """Load the journal, for as long as that takes; what was awaited from it is lost."""
        lost = {id(each): each for each, _ in self._expected.values()}
        self._expected.clear()
        for submission in lost.values():
            submission.fail(
                JournalUnavailableError("the journal has moved meanwhile: publish again")
            )
        while True:
            try:
                await self._target.load()
            except JournalMovedError:
                continue
            except JournalUnavailableError as error:
                self._target.journal_away(error.message)
                await asyncio.sleep(RELOAD_PAUSE_S)
            else:
                self._target.journal_away("")
                return
