"""Following a shared journal's tail in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from warmindex.record import Record
from warmindex_server.journal.base import Away, Back, Journal, JournalMovedError

# Longer than any test's story takes; a test that gets here has failed.
WAIT_S_MAX = 30.0


class Follower:
    """Reads a tail in the background and keeps what it gave."""

    def __init__(self, journal: Journal, after: int | None = None) -> None:
        self.journal = journal
        self.after = journal.revision if after is None else after
        self.pairs: list[tuple[int, Record]] = []
        self.steps: list[str] = []
        self.moved: JournalMovedError | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _follow(self) -> None:
        try:
            async for step in self.journal.tail(self.after):
                if isinstance(step, Away):
                    self.steps.append("away")
                elif isinstance(step, Back):
                    self.steps.append("back")
                else:
                    self.pairs += step
                self._changed.set()
        except JournalMovedError as error:
            self.moved = error
        finally:
            self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until something holds of what was read."""
        async with asyncio.timeout(WAIT_S_MAX):
            while not reached():
                assert self._task is not None
                if self._task.done() and self.moved is None:
                    self._task.result()
                self._changed.clear()
                await self._changed.wait()

    async def until_count(self, count: int) -> None:
        """Wait for that many records."""
        await self.until(lambda: len(self.pairs) >= count)

    async def until_moved(self) -> JournalMovedError:
        """Wait until the journal has moved."""
        await self.until(lambda: self.moved is not None)
        assert self.moved is not None
        return self.moved

    async def until_step(self, step: str) -> None:
        """Wait for "away" or "back"."""
        await self.until(lambda: step in self.steps)
