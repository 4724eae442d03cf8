"""Which history Redis is in, and whether it still has what this server has read.

Redis can lose what it has acknowledged: FLUSHALL, a failover to a replica that was behind, a
restart without its data, another data set in its place. Whoever notices begins a new history
upon what is there, and everyone loads again; nobody goes on as if nothing had happened.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import NamedTuple, NoReturn

from warmindex_server.journal.base import JournalMovedError
from warmindex_server.journal.history import new_history_id
from warmindex_server.journal.redis.chain import ChainBrokenError, Position
from warmindex_server.journal.redis.keys import Keys
from warmindex_server.journal.redis.link import Link
from warmindex_server.journal.redis.scripts import BEGIN, LOOK, NONCE_BYTES

_log = logging.getLogger(__name__)


class Look(NamedTuple):
    """What Redis says of itself. `history_id` is empty where there is none."""

    history_id: str
    revision: int
    nonce: bytes
    has_log: bool


class State:
    """The history as this server knows it. All methods raise FAILURES of the link too."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self.link = link
        self.keys = keys
        self.history_id = ""
        # The last revision appended or read here.
        self.revision = 0

    @property
    def log(self) -> str:
        """The history's stream."""
        return self.keys.log(self.history_id)

    async def look(self) -> Look:
        """What Redis has now, in the history that this server knows."""
        history, revision, nonce, has_log = await self.link.run(LOOK, [self.keys.head, self.log])
        return Look(history.decode(), int(revision), nonce, bool(has_log))

    async def settle(self) -> None:
        """Take over the history that Redis is in; begin one where there is none."""
        look = await self.look()
        if look.history_id != self.history_id:
            self.history_id = look.history_id
            look = await self.look()
        if not look.history_id or not look.has_log:
            await self._begin(look.history_id)
            look = await self.look()
        self.revision = look.revision

    async def _begin(self, old: str) -> None:
        new = new_history_id()
        keys = [self.keys.head, self.keys.log(old) if old else self.keys.head, self.keys.log(new)]
        now_us = time.time_ns() // 1000
        nonce = secrets.token_bytes(NONCE_BYTES)
        begun = (await self.link.run(BEGIN, keys, old, new, nonce, now_us)).decode()
        self.history_id = begun
        if begun == new and old:
            _log.warning(
                "Redis at %s has lost records of history %s: a new history %s begins upon what "
                "is there",
                self.link.where,
                old,
                new,
            )

    async def check(self, position: Position) -> int:
        """The log's last revision.

        Raises JournalMovedError where Redis no longer has what a reader at `position` read.
        """
        look = await self.look()
        lost = (
            not look.has_log
            or look.revision < position.revision
            or (
                look.revision == position.revision
                and position.nonce is not None
                and look.nonce != position.nonce
            )
        )
        if look.history_id != self.history_id:
            await self.settle()
            self._moved()
        if lost:
            await self._lost()
        return look.revision

    async def broken(self, error: ChainBrokenError) -> NoReturn:
        """Raises JournalMovedError for a log that does not continue what was read."""
        look = await self.look()
        if look.history_id != self.history_id:
            await self.settle()
            self._moved()
        if error.jumped:
            raise JournalMovedError(f"the log was cut past its reader ({error}): load again")
        await self._lost()

    async def _lost(self) -> NoReturn:
        await self._begin(self.history_id)
        await self.settle()
        self._moved()

    def _moved(self) -> NoReturn:
        raise JournalMovedError(
            f"the journal is in another history now ({self.history_id}): load again",
            new_history=True,
        )
