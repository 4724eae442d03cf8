"""The answer to GetEmbeddings as bytes, put together in one step.

Vectors are most of what this server ever sends. A message would copy them twice, once into
itself and once out of it; here they go from where they are stored into the answer, once.
What comes out is what the message's own serializer makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# Tags of the contract: field number * 8 + wire type (0 a number, 2 bytes).
_STATES: Final = b"\x0a"
_EMBEDDINGS: Final = b"\x12"
_REVISION: Final = b"\x18"
_HISTORY_ID: Final = b"\x22"
_DIMENSIONS: Final = b"\x08"
_VALUES: Final = b"\x12"


def embeddings_response(
    states: bytes,
    dimensions: int,
    pieces: Sequence[memoryview],
    revision: int,
    history_id: str,
) -> bytes:
    """The bytes of a GetEmbeddingsResponse.

    `states` has a byte each: a state's number is below 128, and so is its own varint.
    `pieces` are the bytes of its rows, `dimensions` wide; without any, the answer has none.
    """
    parts: list[bytes | memoryview] = []
    if states:
        parts += (_STATES, _varint(len(states)), states)
    if pieces:
        values_bytes = sum(piece.nbytes for piece in pieces)
        width = _varint(dimensions)
        length = _varint(values_bytes)
        block_bytes = 2 + len(width) + len(length) + values_bytes
        parts += (_EMBEDDINGS, _varint(block_bytes), _DIMENSIONS, width, _VALUES, length, *pieces)
    if revision:
        parts += (_REVISION, _varint(revision))
    name = history_id.encode()
    if name:
        parts += (_HISTORY_ID, _varint(len(name)), name)
    return b"".join(parts)


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; the top bit says that more follow."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
