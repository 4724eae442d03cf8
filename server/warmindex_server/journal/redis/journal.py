"""The Redis journal: the contract of `Journal`, for several servers at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

from warmindex.errors import JournalUnavailableError
from warmindex.record import Record

from warmindex_server.journal.base import Batch, JournalOptions, Parts, Step, StoredSnapshot
from warmindex_server.journal.redis import snapshots
from warmindex_server.journal.redis.appending import append
from warmindex_server.journal.redis.checks import check_server
from warmindex_server.journal.redis.keys import Keys
from warmindex_server.journal.redis.link import FAILURES, Link
from warmindex_server.journal.redis.log import Log
from warmindex_server.journal.redis.state import State


class RedisJournal:
    """One log in Redis that every server appends to and follows.

    `link` and `keys` are for whatever else of a server lives beside it in that Redis.
    """

    name: ClassVar[str] = "redis"
    immediate: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def __init__(self, url: str, options: JournalOptions) -> None:
        """Raises InvalidError. Connects when it is started."""
        self.keys = Keys(options.redis_prefix)
        self.link = Link(url)
        self._state = State(self.link, self.keys)
        self._log = Log(self._state)

    @property
    def history_id(self) -> str:
        """The history that this server has loaded, or is about to load."""
        return self._state.history_id

    @property
    def revision(self) -> int:
        """The last revision appended or read here."""
        return self._state.revision

    async def start(self) -> None:
        """Look at Redis, and at the history it is in. It may be called again after it failed."""
        try:
            await check_server(self.link, self.keys.head)
            await self._state.settle()
        except BaseException as error:
            await self.link.disconnect()
            if isinstance(error, FAILURES):
                raise self.link.start_error(error) from error
            raise

    async def snapshot(self) -> StoredSnapshot | None:
        """The snapshot that some server saved last."""
        return await snapshots.load(self._state)

    def read(self, after: int) -> AsyncIterator[Batch]:
        """The stream from a revision to its end."""
        return self._log.read(after)

    def tail(self, after: int) -> AsyncIterator[Step]:
        """The stream from a revision on, for ever."""
        return self._log.tail(after)

    async def append(self, records: Sequence[Record]) -> Sequence[int]:
        """One script per few megabytes of records."""
        if self.link.closed:
            raise JournalUnavailableError(f"the journal at {self.link.where} is closed")
        return await append(self._state, self._log, records)

    async def save_snapshot(
        self, revision: int, batches: AsyncIterator[Parts], keep_records: int = 0
    ) -> bool:
        """Write it aside under a lock, then point to it and cut the log."""
        return await snapshots.save(self._state, revision, batches, keep_records)

    async def close(self) -> None:
        """Close the connections."""
        await self.link.close()
