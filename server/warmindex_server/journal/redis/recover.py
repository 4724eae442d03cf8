"""`--recover` of a Redis journal: a new history with all that can be read of the old one.

The old keys stay as they are, for a person to look at and delete.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, NamedTuple

from warmindex_server.journal.base import (
    BATCH_BYTES,
    JournalOptions,
    JournalStartError,
    Recovered,
)
from warmindex_server.journal.codec import Item, decode_all
from warmindex_server.journal.frame import CodecError
from warmindex_server.journal.history import first_revision, new_history_id
from warmindex_server.journal.redis import snapshots
from warmindex_server.journal.redis.chain import Entry, parse
from warmindex_server.journal.redis.checks import check_server
from warmindex_server.journal.redis.keys import Keys
from warmindex_server.journal.redis.link import FAILURES, Link
from warmindex_server.journal.redis.scripts import APPEND, NONCE_BYTES, REPLACE
from warmindex_server.journal.redis.state import State

READ_ENTRIES: Final = 64

_log = logging.getLogger(__name__)


async def recover(url: str, options: JournalOptions) -> Recovered:
    """Copy what can be read under a new history, and point to that.

    Servers that run meanwhile load again; what they append before is lost to the new history.
    Raises JournalStartError where there is no journal, JournalUnavailableError.
    """
    link = Link(url)
    try:
        await check_server(link, Keys(options.redis_prefix).head)
        return await _recover(link, Keys(options.redis_prefix))
    except FAILURES as error:
        raise link.start_error(error) from error
    finally:
        await link.close()


async def _recover(link: Link, keys: Keys) -> Recovered:
    state = State(link, keys)
    look = await state.look()
    if not look.history_id:
        raise JournalStartError(
            f"there is no journal at {keys.head} in Redis at {link.where}: start without --recover"
        )
    state.history_id = look.history_id
    pointer = await snapshots.find(state)
    fresh = await _begin(link, keys, first_revision(look.revision))
    parts_kept = 0
    if pointer is not None:
        parts_kept = await _copy_parts(state, pointer, fresh)
    kept, lost = await _copy_records(state, pointer.revision if pointer else 0, fresh)
    if not await link.run(REPLACE, [keys.head, fresh.head], look.history_id):
        raise JournalStartError("another server has begun a new history meanwhile: look again")
    recovered = Recovered(
        fresh.history_id,
        records_kept=kept,
        records_lost=lost,
        part_batches_kept=parts_kept,
        part_batches_lost=pointer.batch_count - parts_kept if pointer else 0,
        old_data=" ".join([state.log] + ([pointer.key] if pointer else [])),
    )
    _log.warning("Redis at %s: recovered: %s", link.where, recovered)
    return recovered


class _Fresh(NamedTuple):
    """The new history, under a head that no server looks at yet."""

    history_id: str
    head: str
    log: str
    base: int
    nonce: bytes


async def _begin(link: Link, keys: Keys, base: int) -> _Fresh:
    history_id, nonce = new_history_id(), secrets.token_bytes(NONCE_BYTES)
    fresh = _Fresh(
        history_id, keys.key(f"recovered:{history_id}"), keys.log(history_id), base, nonce
    )
    first_link = bytes(NONCE_BYTES) + nonce
    await link.call("XADD", fresh.log, f"{base}-0", "l", first_link, "h", history_id)
    head = ("history", history_id, "revision", base, "nonce", nonce)
    await link.call("HSET", fresh.head, *head)
    return fresh


async def _copy_parts(state: State, pointer: snapshots.Pointer, fresh: _Fresh) -> int:
    key = state.keys.new_snapshot(fresh.base)
    kept = 0
    for place in range(pointer.batch_count):
        frames = await state.link.call("LINDEX", pointer.key, place)
        if frames is not None and _reads(frames):
            await state.link.call("RPUSH", key, frames)
            kept += 1
    head = ("snapshot_key", key, "snapshot_revision", fresh.base)
    nonce = ("snapshot_nonce", fresh.nonce, "snapshot_batches", kept)
    await state.link.call("HSET", fresh.head, *head, *nonce)
    return kept


async def _copy_records(state: State, after: int, fresh: _Fresh) -> tuple[int, int]:
    """How many records behind a revision were kept, and how many were not."""
    kept = lost = size = 0
    pairs: list[bytes] = []

    async def flush() -> None:
        if pairs:
            keys = [fresh.head, fresh.log]
            await state.link.run(APPEND, keys, fresh.history_id, fresh.base, "0", *pairs)
        pairs.clear()

    async for frame in _frames(state, after):
        if frame is None:
            lost += 1
            continue
        kept += 1
        pairs += (secrets.token_bytes(NONCE_BYTES), frame)
        size += len(frame)
        if size >= BATCH_BYTES:
            await flush()
            size = 0
    await flush()
    return kept, lost


async def _frames(state: State, after: int) -> AsyncIterator[bytes | None]:
    """The frames of the records behind a revision; None for each that cannot be read."""
    start, expected = f"({after}-0" if after else "-", after + 1
    while True:
        raw = await state.link.call("XRANGE", state.log, start, "+", "COUNT", READ_ENTRIES)
        if not raw:
            return
        start = f"({raw[-1][0].decode()}"
        for one in raw:
            entry: Entry | None = None
            with suppress(ValueError):
                (entry,) = parse([one])
            revision = int(one[0].partition(b"-")[0])
            missing = revision - expected if after and (entry is None or entry.frame) else 0
            for _ in range(missing):
                yield None
            after, expected = revision, revision + 1
            if entry is None or (entry.frame is not None and not _reads(entry.frame)):
                yield None
            elif entry.frame is not None:
                yield entry.frame


def _reads(frames: bytes) -> bool:
    items: list[Item] = []
    try:
        items.extend(decode_all(frames))
    except CodecError:
        return False
    return bool(items)
