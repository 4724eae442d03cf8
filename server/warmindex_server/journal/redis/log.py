"""Reading the log: from a revision to the end, and on and on behind it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Final, cast

from warmindex.record import Record

from warmindex_server.journal.base import (
    BATCH_BYTES,
    Away,
    Back,
    Batch,
    JournalCorruptError,
    JournalMovedError,
    JournalStartError,
    Step,
)
from warmindex_server.journal.codec import decode
from warmindex_server.journal.frame import CodecError
from warmindex_server.journal.redis.chain import (
    ChainBrokenError,
    Entry,
    Position,
    RawEntries,
    fields_of,
    follow,
    parse,
)
from warmindex_server.journal.redis.checks import check_server
from warmindex_server.journal.redis.link import FAILURES, reason
from warmindex_server.journal.redis.state import State

# How long Redis holds an answer back when there is nothing new. After each, the reader looks
# whether Redis still has what it has read: FLUSHALL wakes nobody up.
BLOCK_MS: Final = 1000
# Entries asked for at once: bounded, and fewer where they are large.
COUNT_MAX: Final = 1024
COUNT_FIRST: Final = 64
# Between attempts to reach Redis again; drawn anew each time, so that servers do not come
# back all at once.
RETRY_S_FIRST: Final = 0.025
RETRY_S_MAX: Final = 2.0
# Own records kept for the reader to find: more than one append has.
OWN_RECORDS_MAX: Final = 16384

WAY_OUT: Final = (
    "restore Redis from a backup, or start with --recover: that begins a new history with what "
    "can be read"
)


class Log:
    """The stream of the current history, seen by one reader at a time."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._link = state.link
        self._count = COUNT_FIRST
        # Where the last reader ended: the next one goes on there without asking.
        self._end = Position(0)
        # Records that this server has appended, by their nonces: they need no decoding.
        self._own: dict[bytes, Record] = {}

    def expect(self, nonces: Sequence[bytes], records: Sequence[Record]) -> None:
        """Own records that will come by."""
        own = self._own
        while len(own) > OWN_RECORDS_MAX:
            del own[next(iter(own))]
        own.update(zip(nonces, records, strict=True))

    def forget(self, nonces: Sequence[bytes]) -> None:
        """Own records that may not come."""
        for nonce in nonces:
            self._own.pop(nonce, None)

    async def read(self, after: int) -> AsyncIterator[Batch]:
        """The records behind a revision, up to where the log ends now."""
        try:
            async for batch in self._read(after):
                yield batch
        except FAILURES as error:
            raise self._link.unavailable("reading the journal", error) from error

    async def _read(self, after: int) -> AsyncIterator[Batch]:
        state = self._state
        position = await self._position(after)
        self._end = Position(0)
        last = (await state.look()).revision
        pending = asyncio.ensure_future(self._range(position, last))
        try:
            while position.revision < last:
                entries = await pending
                if not entries:
                    await state.check(position)
                    await self._damaged(position, "it is missing")
                # The next answer is on its way while this one is worked on.
                pending = asyncio.ensure_future(self._range(Position(entries[-1].revision), last))
                try:
                    batch, position = self._batch(position, entries)
                except ChainBrokenError as error:
                    await self._damaged(error.position, str(error))
                if batch:
                    yield batch
        finally:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        self._end = position
        state.revision = max(state.revision, position.revision)

    async def tail(self, after: int) -> AsyncIterator[Step]:
        """What comes behind a revision, for ever; Away and Back where Redis goes and comes."""
        state = self._state
        position: Position | None = None
        failures = 0
        away = False
        while True:
            try:
                if position is None or failures:
                    position = await self._resume(position or await self._position(after), failures)
                    failures = 0
                    if away:
                        away = False
                        yield Back()
                entries = await self._next(position)
            except (*FAILURES, JournalStartError) as error:
                # A connection that was cut is not yet an outage; one that stands still is.
                failures += 2 if isinstance(error, TimeoutError) else 1
                if failures > 1 and not away:
                    away = True
                    yield Away(reason(error))
                wait_s = min(RETRY_S_MAX, RETRY_S_FIRST * 2 ** min(failures, 10))
                await asyncio.sleep(wait_s * random.uniform(0.1, 1.0))  # noqa: S311 - jitter
                continue
            try:
                batch, position = self._batch(position, entries)
            except ChainBrokenError as error:
                await state.broken(error)
            state.revision = max(state.revision, position.revision)
            if batch:
                yield batch

    async def _resume(self, position: Position, failures: int) -> Position:
        """Before a reader goes on: look whether this is still the same Redis, and a fit one."""
        self._end = Position(0)
        if failures:
            await check_server(self._link, self._state.keys.head)
        await self._state.check(position)
        return position

    def _batch(self, position: Position, entries: Sequence[Entry]) -> tuple[Batch, Position]:
        batch: list[tuple[int, Record]] = []
        for entry in entries:
            position = follow(position, entry)
            if entry.frame is None:
                continue
            record = self._own.pop(entry.nonce, None)
            if record is None:
                record = self._decode(entry.revision, entry.frame)
            batch.append((entry.revision, record))
        return batch, position

    def _decode(self, revision: int, frame: bytes) -> Record:
        try:
            return cast(Record, decode(frame))
        except CodecError as error:
            raise self._corrupt(revision, str(error)) from error

    async def _position(self, after: int) -> Position:
        """A reader's place with the nonce that the next entry must link to, if it is known."""
        if after == self._end.revision:
            return self._end
        if not after:
            return Position(0)
        keys = self._state.keys
        revision, nonce = await self._link.call(
            "HMGET", keys.head, "snapshot_revision", "snapshot_nonce"
        )
        if revision is not None and int(revision) == after:
            return Position(after, nonce)
        found = await self._entries("XRANGE", self._state.log, f"{after}-0", f"{after}-0")
        return Position(after, found[0].nonce if found else None)

    async def _range(self, position: Position, last: int) -> list[Entry]:
        start = f"({position.revision}-0" if position.revision else "-"
        return await self._entries(
            "XRANGE", self._state.log, start, f"{last}-0", "COUNT", self._count
        )

    async def _next(self, position: Position) -> list[Entry]:
        reply = await self._link.call(
            "XREAD", "COUNT", self._count, "BLOCK", BLOCK_MS,
            "STREAMS", self._state.log, f"{position.revision}-0",
        )  # fmt: skip
        entries = self._parsed(fields_of(reply))
        if not entries:
            last = await self._state.check(position)
            if last > position.revision:
                # Either it has just come, or all of it has been cut behind the reader.
                entries = await self._range(position, last)
                if not entries:
                    raise JournalMovedError(f"the log is cut up to revision {last}: load again")
        return entries

    async def _entries(self, *command: str | int) -> list[Entry]:
        return self._parsed(await self._link.call(*command) or [])

    def _parsed(self, raw: RawEntries) -> list[Entry]:
        """Entries; how large they are decides how many the next answer has."""
        try:
            entries = parse(raw)
        except ValueError as error:
            raise JournalCorruptError(
                f"the journal in Redis at {self._link.where} is damaged: {error}; {WAY_OUT}"
            ) from error
        size = sum(len(entry.frame or b"") for entry in entries)
        if size:
            wanted = BATCH_BYTES * len(entries) // size
            self._count = max(1, min(COUNT_MAX, wanted, self._count * 2))
        return entries

    async def _damaged(self, position: Position, problem: str) -> None:
        """Raises JournalMovedError where a snapshot has been taken past the reader."""
        revision = await self._link.call("HGET", self._state.keys.head, "snapshot_revision")
        if int(revision or 0) > position.revision:
            raise JournalMovedError(
                f"the log is cut up to revision {int(revision)}: start from the snapshot"
            )
        raise self._corrupt(position.revision + 1, problem)

    def _corrupt(self, revision: int, problem: str) -> JournalCorruptError:
        return JournalCorruptError(
            f"the journal in Redis at {self._link.where} is damaged at revision {revision} of "
            f"{self._state.log}: {problem}; {WAY_OUT}"
        )
