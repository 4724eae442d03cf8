"""How a record or a part of a snapshot lies in bytes.

A *frame* stands for one of them and says itself how long it is, so that frames are simply
put one after the other:

    offset  bytes  what
         0      8  xxh3-64 of all that follows
         8      1  version of the layout: 1
         9      1  kind: event, used number, lease, …
        10      2  zero
        12      4  length of the head
        16      8  length of the payload with its padding
        24      …  head: a protobuf message of proto/warmindex/storage/v1, zeros to a
                   multiple of 8
         …      …  payload, zeros to a multiple of 8
                     event        vectors (float32, little-endian), then content hashes
                     report       the frames of its changes
                     conditional  the frame of its record

Lengths are little-endian. Payloads lie at a multiple of 8, so that vectors are read in place.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import xxhash

Buffer: TypeAlias = bytes | memoryview

VERSION: Final = 1

_CHECKSUM: Final = struct.Struct("<Q")
_LENGTHS: Final = struct.Struct("<BBHIQ")
HEADER_BYTES: Final = _CHECKSUM.size + _LENGTHS.size
_PADDING: Final = tuple(bytes(length) for length in range(8))


class Kind(IntEnum):
    """What a frame stands for. Numbers are stored: they are added to, never changed."""

    EVENT = 1
    USED_NUMBER = 2
    LEASE = 3
    REPORT = 4
    CONDITIONAL = 5
    PRODUCER_STATE = 6
    LEASE_STATE = 7


class CodecError(ValueError):
    """Bytes that no frame is made of: damaged, cut off, or of a newer version."""


class Frame(NamedTuple):
    """A frame that has been read: `end` is where the next one starts."""

    kind: int
    head: bytes
    payload: memoryview
    end: int


def put_frame(pieces: list[Buffer], kind: Kind, head: bytes, payload: Sequence[Buffer] = ()) -> int:
    """Append the pieces of a frame, without copying the payload; its length in bytes."""
    payload_bytes = sum(map(len, payload))
    payload_padding = _PADDING[-payload_bytes % 8]
    head_padding = _PADDING[-len(head) % 8]
    payload_bytes += len(payload_padding)
    lengths = _LENGTHS.pack(VERSION, kind, 0, len(head), payload_bytes)
    covered = [lengths, head, head_padding, *payload, payload_padding]
    checksum = xxhash.xxh3_64()
    for piece in covered:
        checksum.update(piece)
    pieces.append(_CHECKSUM.pack(checksum.intdigest()))
    pieces += covered
    return HEADER_BYTES + len(head) + len(head_padding) + payload_bytes


def read_frame(view: memoryview, start: int) -> Frame:
    """Read the frame that begins at `start`. Raises CodecError."""
    if len(view) - start < HEADER_BYTES:
        raise CodecError(f"{len(view) - start} bytes are too few for a frame")
    version, kind, _, head_bytes, payload_bytes = _LENGTHS.unpack_from(view, start + _CHECKSUM.size)
    head_start = start + HEADER_BYTES
    head_end = head_start + head_bytes
    payload_start = head_end + -head_bytes % 8
    end = payload_start + payload_bytes
    if end > len(view):
        raise CodecError(f"a frame of {end - start} bytes is cut off at {len(view) - start}")
    (checksum,) = _CHECKSUM.unpack_from(view, start)
    if xxhash.xxh3_64_intdigest(view[start + _CHECKSUM.size : end]) != checksum:
        raise CodecError("the checksum does not fit the bytes")
    if version != VERSION:
        raise newer(f"version {version}")
    return Frame(kind, bytes(view[head_start:head_end]), view[payload_start:end], end)


def newer(what: str) -> CodecError:
    """The error for a frame that is whole and means nothing here."""
    return CodecError(
        f"a frame of {what} is not known here: a newer release has stored it; start that one"
    )
