"""Appending to the log, once each, also where the answer was lost on the way."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Sequence
from typing import Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from warmindex.errors import JournalUnavailableError
from warmindex.record import Record

from warmindex_server.journal.base import BATCH_BYTES, RECORD_BYTES_MAX
from warmindex_server.journal.codec import encode, too_large
from warmindex_server.journal.redis.link import FAILURES
from warmindex_server.journal.redis.log import Log
from warmindex_server.journal.redis.scripts import APPEND, NONCE_BYTES
from warmindex_server.journal.redis.state import State

# A connection that broke is worth another attempt or two; an outage is the publisher's to wait
# out.
ATTEMPTS_MAX: Final = 3
ATTEMPTS_S_MAX: Final = 2.0
RETRY_S_MAX: Final = 0.1
# One script holds Redis up for as long as it copies this much: a few milliseconds.
SCRIPT_BYTES_MAX: Final = 2 * BATCH_BYTES

_LOST: Final = (RedisConnectionError, RedisTimeoutError, OSError, asyncio.TimeoutError)


async def append(state: State, log: Log, records: Sequence[Record]) -> list[int]:
    """Append records; their revisions. Raises InvalidError, JournalUnavailableError."""
    frames = [encode(record) for record in records]
    largest = max(map(len, frames), default=0)
    if largest > RECORD_BYTES_MAX:
        raise too_large(largest)
    revisions: list[int] = []
    start = size = 0
    for position, frame in enumerate(frames):
        if size and size + len(frame) > SCRIPT_BYTES_MAX:
            part = slice(start, position)
            revisions += await _append_group(state, log, records[part], frames[part])
            start, size = position, 0
        size += len(frame)
    if size:
        revisions += await _append_group(state, log, records[start:], frames[start:])
    return revisions


async def _append_group(
    state: State, log: Log, records: Sequence[Record], frames: Sequence[bytes]
) -> range:
    seed = secrets.token_bytes(NONCE_BYTES * len(records))
    nonces = [seed[at : at + NONCE_BYTES] for at in range(0, len(seed), NONCE_BYTES)]
    pairs = [value for pair in zip(nonces, frames, strict=True) for value in pair]
    log.expect(nonces, records)
    try:
        last = await _run(state, pairs)
    except BaseException:
        log.forget(nonces)
        raise
    state.revision = max(state.revision, last)
    return range(last - len(records) + 1, last + 1)


async def _run(state: State, pairs: Sequence[bytes]) -> int:
    keys = [state.keys.head, state.log]
    history, revision = state.history_id, state.revision
    give_up = asyncio.get_running_loop().time() + ATTEMPTS_S_MAX
    for attempt in range(ATTEMPTS_MAX):
        again = "1" if attempt else "0"
        try:
            answer = await state.link.run(APPEND, keys, history, revision, again, *pairs)
            break
        except _LOST as error:
            # It may have been written: the next attempt looks for it first.
            late = asyncio.get_running_loop().time() > give_up
            if attempt + 1 == ATTEMPTS_MAX or late:
                doing = "the record was perhaps not stored"
                raise state.link.unavailable(doing, error) from error
            await asyncio.sleep(random.uniform(0, RETRY_S_MAX))  # noqa: S311 - jitter
        except FAILURES as error:
            raise state.link.unavailable("the record was not stored", error) from error
    if answer[0] != b"ok":
        raise JournalUnavailableError(
            f"the record was not stored: Redis at {state.link.where} is in another history, or "
            "has lost records; this server loads what is there, then takes publishes again"
        )
    return int(answer[1])
