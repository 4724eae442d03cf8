"""Appended in groups, applied from the journal's tail: several servers share one journal.

    publishers -> append -> {revision: who waits for that record} <- apply <- tail <- everyone

A publisher is answered when its own record has come back and is applied here. It comes back as
the same object: another record at its revision means that the journal has lost it in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from warmindex.errors import JournalUnavailableError
from warmindex.index import Applied
from warmindex.record import Record

from warmindex_server.commit.base import Submission, Target
from warmindex_server.commit.grouped import Grouped
from warmindex_server.journal.base import Away, Back, Journal, JournalMovedError, Step

_log = logging.getLogger(__name__)

# What is wrong with a journal that moved is mended by loading it; not in a tight loop.
RELOAD_PAUSE_S: Final = 0.5
# Records that are appended and have not come back. Past it the next append waits: a server
# that follows more slowly than it appends must slow its publishers down, not pile up.
EXPECTED_RECORDS_MAX: Final = 8192


class Expected(NamedTuple):
    """A record that is to come back, whose it is, and what came of those before it."""

    record: Record
    submission: Submission
    results: list[Applied]

    def settle(self, record: Record, applied: Applied) -> None:
        """A record has come at this one's revision."""
        if record is not self.record:
            self.submission.fail(lost())
            return
        self.results.append(applied)
        if len(self.results) == len(self.submission.records):
            self.submission.answer(self.results)


class Shared(Grouped):
    """Append in groups; apply the journal's tail, other servers' records and one's own."""

    def __init__(self, journal: Journal, target: Target) -> None:
        super().__init__(journal, target)
        # What the tail has applied while an append of ours was under way: some of it is ours.
        self._came: dict[int, tuple[Record, Applied]] = {}
        self._appending = False
        self._expected: dict[int, Expected] = {}
        self._fewer = asyncio.Event()

    async def start(self) -> None:
        """Begin to append, and to follow the tail."""
        self._run(self._append_groups(), self._follow())

    async def close(self) -> None:
        """Stop; nobody hears any more whether a record came back."""
        await super().close()
        self._fail_expected(JournalUnavailableError("the server is going away: publish again"))

    # ---- appending ---------------------------------------------------------------------

    async def _append(self, group: list[Submission]) -> None:
        while len(self._expected) >= EXPECTED_RECORDS_MAX:
            self._fewer.clear()
            await self._fewer.wait()
        self._appending = True
        try:
            await super()._append(group)
        finally:
            self._appending = False
            self._came.clear()

    async def _appended(self, group: list[Submission], revisions: Sequence[int]) -> None:
        numbers = iter(revisions)
        for submission in group:
            results: list[Applied] = []
            for record in submission.records:
                self._expect(next(numbers), Expected(record, submission, results))

    def _expect(self, revision: int, expected: Expected) -> None:
        came = self._came.get(revision)
        if came is not None:
            expected.settle(*came)
        elif revision <= self._target.revision:
            # A reload went past it, and what became of it is not known.
            expected.submission.fail(lost())
        elif self._problem:
            expected.submission.fail(self._away_error())
        else:
            self._expected[revision] = expected

    # ---- following ---------------------------------------------------------------------

    async def _follow(self) -> None:
        """Apply the tail for ever; where it breaks off, load the journal anew."""
        while True:
            try:
                await self._follow_tail(self._journal.tail(self._target.revision))
            except JournalMovedError as error:
                await self._reload(error.message)

    async def _follow_tail(self, tail: AsyncIterator[Step]) -> None:
        async for step in tail:
            if isinstance(step, Away):
                self._away(step.reason)
            elif isinstance(step, Back):
                self._away("")
            else:
                for revision, record in step:
                    self._note(revision, record, await self._target.apply(revision, record))
                    await self._target.give_way()

    def _note(self, revision: int, record: Record, applied: Applied) -> None:
        expected = self._expected.pop(revision, None)
        if expected is not None:
            expected.settle(record, applied)
            self._fewer.set()
        elif self._appending:
            self._came[revision] = (record, applied)

    def _away(self, reason: str) -> None:
        """Nothing comes back meanwhile: whoever waits for that hears so."""
        super()._away(reason)
        if reason:
            self._fail_expected(self._away_error())

    def _fail_expected(self, error: JournalUnavailableError) -> None:
        for expected in self._expected.values():
            expected.submission.fail(error)
        self._expected.clear()
        self._fewer.set()

    async def _reload(self, reason: str) -> None:
        """Load the journal, for as long as that takes; what was awaited from it is lost."""
        self._away(f"it has moved and is being loaded anew: {reason}")
        while True:
            try:
                await self._target.load()
            except JournalMovedError:
                pass
            except JournalUnavailableError as error:
                self._away(error.message)
            else:
                self._away("")
                return
            await asyncio.sleep(RELOAD_PAUSE_S)


def lost() -> JournalUnavailableError:
    """The error for a record that was appended and did not come back."""
    return JournalUnavailableError(
        "the journal has moved meanwhile, and perhaps lost the record: publish again"
    )
