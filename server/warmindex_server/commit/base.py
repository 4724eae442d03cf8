"""What the ways of committing have in common: who applies, who waits, and what each promises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from warmindex.index import Applied
from warmindex.record import Record


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
            # Whoever waited may be gone: a stream ends with the first of its messages that
            # fails. The journal's being away is told once, not once for each of the others.
            self.future.exception()

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
