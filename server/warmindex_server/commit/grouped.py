"""Publishers that arrive together share one append; what is appended is applied."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Final

from warmindex.errors import JournalUnavailableError, WarmindexError
from warmindex.index import Applied
from warmindex.record import Record

from warmindex_server.commit.base import Submission, Target
from warmindex_server.journal.base import Journal

_log = logging.getLogger(__name__)

# One append; more records wait for the next one, so that the first of them need not.
GROUP_RECORDS_MAX: Final = 1024
# Groups that are written but not yet applied. One is enough to keep both sides busy.
GROUPS_UNAPPLIED_MAX: Final = 1


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
        # Why nothing can be taken just now; "" where it can.
        self._problem = ""
        self._broken = False

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
            what = error.message if isinstance(error, WarmindexError) else "an internal error"
            self._away(f"{what}; see the log, and restart the server")
            self._broken = True

    def _away(self, reason: str) -> None:
        """The journal cannot be used ("" once it can again): whoever waits is told at once."""
        if self._broken:
            return
        self._problem = reason
        self._target.journal_away(reason)
        if reason:
            self._fail_waiting(self._away_error())

    def _away_error(self) -> JournalUnavailableError:
        return JournalUnavailableError(
            f"the journal is away ({self._problem}): reads go on, publish again later"
        )

    def _fail_waiting(self, error: JournalUnavailableError) -> None:
        for submission in self._waiting:
            submission.fail(error)
        self._waiting.clear()

    def submit(self, records: Sequence[Record]) -> Awaitable[list[Applied]]:
        """Queue records for the next group."""
        future: asyncio.Future[list[Applied]] = asyncio.get_running_loop().create_future()
        submission = Submission(records, future)
        if not records:
            submission.answer([])
        elif self._problem:
            submission.fail(self._away_error())
        else:
            self._waiting.append(submission)
            self._some.set()
        return future

    async def close(self) -> None:
        """Stop both tasks."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        self._fail_waiting(JournalUnavailableError("the server is going away: publish again"))

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
