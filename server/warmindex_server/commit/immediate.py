"""Appended and applied in the publisher's own step, without a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from warmindex.index import Applied, is_large
from warmindex.record import Record

from warmindex_server.commit.base import Target
from warmindex_server.journal.base import Journal


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
        results: list[Applied] = []
        for record in records:
            if results:
                await self._target.give_way()
            work = self._append_and_apply(record)
            # A publisher that goes away half-way must not leave half a report.
            whole = asyncio.shield(asyncio.create_task(work)) if is_large(record) else work
            results.append(await whole)
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
