"""Claims that are given up at other servers: a stream, read while calls wait here.

What a call must not miss is all since it looked. So the reader begins where the first of the
calls that are in line has looked, and reads on for as long as there are any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from warmindex.event import PartitionKey

from warmindex_server.claims.waiters import Waiters
from warmindex_server.journal.redis.chain import fields_of
from warmindex_server.journal.redis.link import FAILURES, Link

# How long Redis holds an answer back; after that, whoever waits hears whether it is away.
BLOCK_MS: Final = 1000
COUNT_MAX: Final = 1000
# While Redis does not answer, and after it did not.
RETRY_S: Final = 0.5
BEGINNING: Final = "0-0"


class Freed:
    """The reader. `problem` says why the journal is away, or ""."""

    def __init__(self, link: Link, name: str, waiters: Waiters, problem: Callable[[], str]) -> None:
        self._link = link
        self._name = name
        self._waiters = waiters
        self._problem = problem
        self._partitions: dict[bytes, tuple[PartitionKey, int]] = {}
        self._after: str | None = None
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self, key: PartitionKey, digest: bytes) -> Iterator[None]:
        """A call of a partition is in line."""
        if not self._partitions and self._task is None:
            self._after = None
        self._partitions[digest] = (key, self._partitions.get(digest, (key, 0))[1] + 1)
        try:
            yield
        finally:
            count = self._partitions[digest][1] - 1
            if count:
                self._partitions[digest] = (key, count)
            else:
                del self._partitions[digest]

    def looked(self, last_id: str) -> None:
        """A call has looked when `last_id` was the last entry."""
        if self._after is None:
            self._after = last_id

    def begin_again(self) -> None:
        """Redis may have other data now, and the stream other names."""
        self._after = BEGINNING

    def start(self) -> None:
        """Read, as long as calls are in line."""
        if self._task is None:
            self._task = asyncio.create_task(self._read())

    def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()

    async def _read(self) -> None:
        try:
            while self._partitions:
                try:
                    await self._read_once()
                except FAILURES:
                    # Calls look again, and find out what they have left without Redis.
                    self._waiters.wake_all()
                    await asyncio.sleep(RETRY_S)
                if self._problem():
                    # A journal that is loaded anew is back in a moment; who waits hears then.
                    await asyncio.sleep(RETRY_S)
                    if self._problem():
                        self._waiters.wake_all()
        finally:
            self._task = None

    async def _read_once(self) -> None:
        after = self._after or BEGINNING
        reply = await self._link.call(
            "XREAD", "COUNT", COUNT_MAX, "BLOCK", BLOCK_MS, "STREAMS", self._name, after
        )
        for name, fields in fields_of(reply):
            if self._after == after or self._after is None:
                after = self._after = name.decode()
            partition = self._partitions.get(fields[b"p"])
            if partition is not None:
                self._waiters.look_again(partition[0])
