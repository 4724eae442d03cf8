"""Payload of one frame -> what the engine says. Never raises, whatever the bytes are.

Engines write their events as msgpack, in the shapes of many versions:

    batch    [ts, events], [ts, events, rank], longer, or a map with those names
    event    a map with a "type", or an array with the type first and a tail that may be cut
    hash     an unsigned or signed 64-bit integer, or a digest whose last 8 bytes are that integer

What is known by name or place is read, what is not is skipped. One bad event is counted
and leaves its neighbours alone: the whole batch is decoded at once, which is the fastest
way, and only where that fails event by event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from warmindex_subscriber.kv.extra_keys import Taint, taint_of
from warmindex_subscriber.kv.ranks import RANK_MAX

U64_MASK: Final = 2**64 - 1
HASH_BYTES: Final = 8
# A group is a small number, and names a copy of a block.
GROUP_MAX: Final = 1023
# Of an int64 in microseconds: the year 294246.
_TIMESTAMP_S_MAX: Final = 2**63 / 1e6 - 1


class Stored(NamedTuple):
    """Blocks that the engine now has.

    keys: the engine's hashes as unsigned 64-bit integers. parent: the hash of the block
    before the first; None at a prompt's beginning. token_ids: as they came, unchecked.
    plain_blocks: how many leading blocks depend on their tokens and adapter alone, and
    taint: on what else the next one depends.
    """

    keys: list[int]
    parent: int | None
    token_ids: list[Any]
    block_size: int
    lora_id: int | None
    lora_name: str | None
    medium: str | None
    locality: str | None
    group: int | None
    plain_blocks: int
    taint: Taint | None


class Removed(NamedTuple):
    """Copies of blocks that the engine no longer has."""

    keys: list[int]
    medium: str | None
    locality: str | None
    group: int | None


class Cleared(NamedTuple):
    """The engine dropped everything."""


EngineEvent: TypeAlias = Stored | Removed | Cleared


@dataclass(slots=True)
class Batch:
    """What one payload says. `undecodable`: nothing of it could be read."""

    events: list[EngineEvent] = field(default_factory=list)
    rank: int | None = None
    timestamp_us: int = 0
    malformed: int = 0
    unknown: int = 0
    undecodable: bool = False


class _MalformedError(Exception):
    """An event that is not what its type says. Stays in this file."""


class _RawArray(msgspec.Struct, array_like=True):
    """A batch of which each event is decoded by itself; more elements are skipped."""

    ts: msgspec.Raw
    events: list[msgspec.Raw]
    rank: msgspec.Raw = msgspec.Raw(b"\xc0")


class _RawMap(msgspec.Struct):
    """The same where the batch is a map."""

    events: list[msgspec.Raw]
    ts: msgspec.Raw = msgspec.Raw(b"\xc0")
    data_parallel_rank: msgspec.Raw = msgspec.Raw(b"\xc0")
    attn_dp_rank: msgspec.Raw = msgspec.Raw(b"\xc0")


_ANYTHING: Final = msgspec.msgpack.Decoder()
_RAW_ARRAY: Final = msgspec.msgpack.Decoder(_RawArray)
_RAW_MAP: Final = msgspec.msgpack.Decoder(_RawMap)
# RecursionError: a thousand brackets inside each other are no event either.
_DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
_BROKEN: Final = object()
_INT_ONLY: Final = frozenset({int})


def decode_batch(payload: bytes) -> Batch:
    """The batch that a payload carries."""
    parts = _whole(payload)
    if parts is None:
        return Batch(undecodable=True)
    ts, events, rank = parts
    batch = Batch(timestamp_us=_timestamp_us(ts))
    if rank is not None:
        if type(rank) is not int or not 0 <= rank <= RANK_MAX:
            return Batch(undecodable=True)
        batch.rank = rank
    for event in events:
        try:
            read = _read_event(event)
        except _MalformedError:
            batch.malformed += 1
            continue
        if read is None:
            batch.unknown += 1
        else:
            batch.events.append(read)
    return batch


def _whole(payload: bytes) -> tuple[Any, list[Any], Any] | None:
    """Time, events and rank; None where the payload is no batch."""
    try:
        batch = _ANYTHING.decode(payload)
    except _DECODE_ERRORS:
        return _one_by_one(payload)
    if type(batch) is list and len(batch) >= 2:
        ts, events = batch[0], batch[1]
        rank = batch[2] if len(batch) > 2 else None
    elif type(batch) is dict:
        ts, events = batch.get("ts"), batch.get("events")
        rank = batch.get("data_parallel_rank", batch.get("attn_dp_rank"))
    else:
        return None
    return (ts, events, rank) if type(events) is list else None


def _one_by_one(payload: bytes) -> tuple[Any, list[Any], Any] | None:
    """The same for a payload whose structure is whole, although some value in it is not."""
    try:
        array = _RAW_ARRAY.decode(payload)
    except _DECODE_ERRORS:
        pass
    else:
        return _value(array.ts), [_value(event) for event in array.events], _value(array.rank)
    try:
        named = _RAW_MAP.decode(payload)
    except _DECODE_ERRORS:
        return None
    rank = _value(named.data_parallel_rank)
    if rank is None:
        rank = _value(named.attn_dp_rank)
    return _value(named.ts), [_value(event) for event in named.events], rank


def _value(raw: msgspec.Raw) -> Any:
    try:
        return _ANYTHING.decode(raw)
    except _DECODE_ERRORS:
        return _BROKEN


def _read_event(event: Any) -> EngineEvent | None:
    """The event; None for a type that is not known."""
    if type(event) is dict:
        tag = event.get("type")
        if tag == "BlockStored":
            return _stored_map(event)
        if tag == "BlockRemoved":
            return Removed(
                _keys(event.get("block_hashes")),
                _text(event.get("medium")),
                _text(event.get("locality")),
                _group(event.get("group_idx")),
            )
    elif type(event) is list and event:
        tag = event[0]
        if tag == "BlockStored":
            return _stored_array(event)
        if tag == "BlockRemoved":
            _, hashes, medium, group, locality, *_rest = [*event, *_REMOVED_TAIL]
            return Removed(_keys(hashes), _text(medium), _text_or_none(locality), _group(group))
    else:
        raise _MalformedError
    if type(tag) is not str:
        raise _MalformedError
    return Cleared() if tag == "AllBlocksCleared" else None


def _stored_map(event: dict[Any, Any]) -> Stored:
    # A parent that is absent is not a parent that is nil: a root must be said to be one.
    if "parent_block_hash" not in event:
        raise _MalformedError
    return _stored(
        hashes=event.get("block_hashes"),
        parent=event["parent_block_hash"],
        token_ids=event.get("token_ids"),
        block_size=event.get("block_size"),
        lora_id=event.get("lora_id"),
        lora_name=_text(event.get("lora_name")),
        medium=event.get("medium"),
        locality=_text(event.get("locality")),
        group=event.get("group_idx"),
        extra_keys=event.get("extra_keys"),
        salt=event.get("cache_salt"),
    )


_STORED_REQUIRED: Final = 5
_STORED_TAIL: Final[tuple[Any, ...]] = (None,) * 8
_REMOVED_TAIL: Final[tuple[Any, ...]] = (None,) * 4


def _stored_array(event: list[Any]) -> Stored:
    """The array form. At index 7 an engine has its adapter's name, or a map of further fields."""
    if len(event) < _STORED_REQUIRED:
        raise _MalformedError
    (
        _,
        hashes,
        parent,
        token_ids,
        block_size,
        lora_id,
        medium,
        name_or_map,
        extra_keys,
        group,
        _kind,
        _window,
        locality,
        *_rest,
    ) = [*event, *_STORED_TAIL]
    salt = None
    if type(name_or_map) is dict:
        salt = name_or_map.get("cache_salt")
        # What stands behind the map is not what stands behind a name.
        lora_name, extra_keys, group, locality = name_or_map.get("lora_name"), None, None, None
    else:
        lora_name = name_or_map
    return _stored(
        hashes=hashes,
        parent=parent,
        token_ids=token_ids,
        block_size=block_size,
        lora_id=lora_id,
        lora_name=_text(lora_name),
        medium=medium,
        locality=_text_or_none(locality),
        group=group,
        extra_keys=extra_keys,
        salt=salt,
    )


def _stored(
    *,
    hashes: Any,
    parent: Any,
    token_ids: Any,
    block_size: Any,
    lora_id: Any,
    lora_name: str | None,
    medium: Any,
    locality: str | None,
    group: Any,
    extra_keys: Any,
    salt: Any,
) -> Stored:
    if type(token_ids) is not list or type(block_size) is not int or block_size < 0:
        raise _MalformedError
    if lora_id is not None and type(lora_id) is not int:
        raise _MalformedError
    keys = _keys(hashes)
    plain_blocks, taint = len(keys), None
    if salt:
        plain_blocks, taint = 0, Taint.SALTED
    elif extra_keys is not None:
        if type(extra_keys) is not list:
            raise _MalformedError
        plain_blocks, taint = taint_of(extra_keys, len(keys), lora_name, lora_id)
    return Stored(
        keys,
        None if parent is None else _key(parent),
        token_ids,
        block_size,
        lora_id,
        lora_name,
        _text(medium),
        locality,
        _group(group),
        plain_blocks,
        taint,
    )


def _keys(hashes: Any) -> list[int]:
    if type(hashes) is not list:
        raise _MalformedError
    # True is an int to everything but this question.
    if set(map(type, hashes)) <= _INT_ONLY:
        return [key & U64_MASK for key in hashes]
    return [_key(key) for key in hashes]


def _key(engine_hash: Any) -> int:
    """One identity for an integer, its signed twin, and the digest that it was cut from."""
    if type(engine_hash) is int:
        return engine_hash & U64_MASK
    if type(engine_hash) is bytes and engine_hash:
        return int.from_bytes(engine_hash[-HASH_BYTES:], "big")
    raise _MalformedError


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    raise _MalformedError


def _text_or_none(value: Any) -> str | None:
    """For places in an array that some version may use for something else."""
    return value if type(value) is str else None


def _group(value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= GROUP_MAX:
        raise _MalformedError
    return value


def _timestamp_us(ts: Any) -> int:
    """Microseconds since 1970; 0 where the engine's time is no time."""
    if type(ts) not in (int, float) or not 0 <= ts <= _TIMESTAMP_S_MAX:
        return 0
    return int(ts * 1e6)
