"""The snapshot in Redis: written aside, then pointed to, by one server at a time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple, cast

from warmindex_server.journal.base import (
    JournalCorruptError,
    JournalMovedError,
    Parts,
    StoredSnapshot,
)
from warmindex_server.journal.codec import decode_all, pack_parts
from warmindex_server.journal.frame import CodecError
from warmindex_server.journal.redis.chain import parse
from warmindex_server.journal.redis.link import FAILURES
from warmindex_server.journal.redis.log import WAY_OUT
from warmindex_server.journal.redis.scripts import CUT_ENTRIES, PUBLISH, PUT_PARTS, UNLOCK
from warmindex_server.journal.redis.state import State

# A writer that has put nothing for this long is taken for dead.
LOCK_MS: Final = 30_000
# A list that was begun and not finished goes by itself.
UNFINISHED_MS: Final = 10 * 60_000
# Whoever is loading the snapshot before has this long to finish.
OLD_MS: Final = 60_000

_log = logging.getLogger(__name__)


class Pointer(NamedTuple):
    """Where the snapshot lies."""

    key: str
    revision: int
    nonce: bytes
    batch_count: int


async def find(state: State) -> Pointer | None:
    """The snapshot that there is. Raises FAILURES."""
    key, revision, nonce, count = await state.link.call(
        "HMGET",
        state.keys.head,
        "snapshot_key",
        "snapshot_revision",
        "snapshot_nonce",
        "snapshot_batches",
    )
    return None if key is None else Pointer(key.decode(), int(revision), nonce, int(count))


async def load(state: State) -> StoredSnapshot | None:
    """The snapshot. Raises JournalCorruptError, JournalUnavailableError."""
    try:
        pointer = await find(state)
        if pointer is None:
            return None
        length = await state.link.call("LLEN", pointer.key)
        if length != pointer.batch_count:
            await _gone(state, pointer, f"{length} of {pointer.batch_count} batches are left")
    except FAILURES as error:
        raise state.link.unavailable("reading the snapshot", error) from error
    return StoredSnapshot(pointer.revision, pointer.batch_count, _batches(state, pointer))


async def _batches(state: State, pointer: Pointer) -> AsyncIterator[Parts]:
    pending: asyncio.Future[bytes | None] | None = None
    try:
        for place in range(pointer.batch_count):
            frames = await (pending or _element(state, pointer, place))
            # The next answer is on its way while this one is worked on.
            pending = asyncio.ensure_future(_element(state, pointer, place + 1))
            if frames is None:
                await _gone(state, pointer, f"batch {place} is missing")
            try:
                parts = cast("Parts", list(decode_all(frames or b"")))
            except CodecError as error:
                await _gone(state, pointer, f"batch {place}: {error}")
            yield parts
    except FAILURES as error:
        raise state.link.unavailable("reading the snapshot", error) from error
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)


async def _element(state: State, pointer: Pointer, place: int) -> bytes | None:
    if place >= pointer.batch_count:
        return None
    return cast("bytes | None", await state.link.call("LINDEX", pointer.key, place))


async def _gone(state: State, pointer: Pointer, problem: str) -> None:
    if await find(state) != pointer:
        raise JournalMovedError("a newer snapshot has taken the place of this one: load again")
    raise JournalCorruptError(
        f"the journal in Redis at {state.link.where} is damaged in its snapshot {pointer.key}: "
        f"{problem}; {WAY_OUT}"
    )


async def save(
    state: State, revision: int, batches: AsyncIterator[Parts], keep_records: int
) -> bool:
    """Write the snapshot at a revision and cut the log; False where it is not this server's turn.

    Raises JournalUnavailableError, and whatever `batches` raises; nothing has changed then.
    """
    try:
        return await _save(state, revision, batches, keep_records)
    except FAILURES as error:
        raise state.link.unavailable("the snapshot was not stored", error) from error


async def _save(
    state: State, revision: int, batches: AsyncIterator[Parts], keep_records: int
) -> bool:
    link, keys = state.link, state.keys
    history = state.history_id
    pointer = await find(state)
    nonce = await _nonce_at(state, revision)
    if nonce is None or (pointer is not None and pointer.revision >= revision):
        return False
    token = secrets.token_hex(8)
    if not await link.call("SET", keys.snapshot_lock, token, "NX", "PX", LOCK_MS):
        return False
    key = keys.new_snapshot(revision)
    published = False
    try:
        count = 0
        async for frames in pack_parts(batches):
            written = [keys.snapshot_lock, key]
            length = await link.run(PUT_PARTS, written, token, LOCK_MS, UNFINISHED_MS, frames)
            count += 1
            if length != count:
                return False
        first_kept = max(0, min(revision, state.revision - keep_records)) + 1
        published = await link.run(
            PUBLISH,
            [keys.head, keys.log(history), key, keys.snapshot_lock],
            *(history, token, revision, nonce, count, OLD_MS, first_kept),
        )
    finally:
        if not published:
            with suppress(*FAILURES):
                await link.run(UNLOCK, [keys.snapshot_lock], token)
                await link.call("UNLINK", key)
    if published:
        await _cut(state, keys.log(history), first_kept)
    return bool(published)


async def _nonce_at(state: State, revision: int) -> bytes | None:
    """The nonce of the record at a revision; None where the log has it no more."""
    entry = f"{revision}-0"
    found = parse(await state.link.call("XRANGE", state.log, entry, entry) or [])
    return found[0].nonce if found else None


async def _cut(state: State, log: str, first_kept: int) -> None:
    """Remove what lies before, in steps that do not hold Redis up.

    The pointer has moved already, so it does no harm to stop anywhere.
    """
    trim = ("XTRIM", log, "MINID")
    end = f"{first_kept}-0"
    while await state.link.call(*trim, "~", end, "LIMIT", CUT_ENTRIES):
        pass
    # What is left are the entries of one node.
    await state.link.call(*trim, "=", end)
