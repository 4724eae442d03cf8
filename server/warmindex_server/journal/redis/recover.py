"""`--recover` of a Redis journal: a new history with all that can be read of the old one.

The old keys stay as they are, for a person to look at and delete.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from warmindex_server.journal.base import JournalOptions, JournalStartError, Recovered
from warmindex_server.journal.codec import Item, decode_all
from warmindex_server.journal.frame import CodecError
from warmindex_server.journal.history import first_revision, new_history_id
from warmindex_server.journal.redis import snapshots
from warmindex_server.journal.redis.chain import Entry, parse
from warmindex_server.journal.redis.checks import check_server
from warmindex_server.journal.redis.keys import Keys
from warmindex_server.journal.redis.link import FAILURES, Link
from warmindex_server.journal.redis.scripts import NONCE_BYTES, REPLACE
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
    new = new_history_id()
    base = first_revision(look.revision)
    nonce = secrets.token_bytes(NONCE_BYTES)
    head: dict[str, bytes | str | int] = {"history": new}
    parts_kept = 0
    if pointer is not None:
        key = keys.new_snapshot(base)
        parts_kept = await _copy_parts(state, pointer, key)
        head |= {"snapshot_key": key, "snapshot_revision": base, "snapshot_nonce": nonce}
        head["snapshot_batches"] = parts_kept
    await link.call("XADD", keys.log(new), f"{base}-0", "l", bytes(NONCE_BYTES) + nonce, "h", new)
    revision, records_lost = base, 0
    async for frame in _frames(state, pointer.revision if pointer else 0):
        if frame is None:
            records_lost += 1
            continue
        revision += 1
        after, nonce = nonce, secrets.token_bytes(NONCE_BYTES)
        await link.call("XADD", keys.log(new), f"{revision}-0", "l", after + nonce, "r", frame)
    head |= {"revision": revision, "nonce": nonce}
    values = [value for pair in head.items() for value in pair]
    if not await link.run(REPLACE, [keys.head], look.history_id, *values):
        raise JournalStartError("another server has begun a new history meanwhile: look again")
    recovered = Recovered(
        new,
        records_kept=revision - base,
        records_lost=records_lost,
        part_batches_kept=parts_kept,
        part_batches_lost=pointer.batch_count - parts_kept if pointer else 0,
        old_data=" ".join([state.log] + ([pointer.key] if pointer else [])),
    )
    _log.warning("Redis at %s: recovered: %s", link.where, recovered)
    return recovered


async def _copy_parts(state: State, pointer: snapshots.Pointer, key: str) -> int:
    kept = 0
    for place in range(pointer.batch_count):
        frames = await state.link.call("LINDEX", pointer.key, place)
        if frames is not None and _reads(frames):
            await state.link.call("RPUSH", key, frames)
            kept += 1
    return kept


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
