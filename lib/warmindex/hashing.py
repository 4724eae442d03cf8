"""Content hashes that every client computes alike. Pure: no I/O, no clock, no state.

Two schemes:

``text-sha256``
    The key of a text, 32 bytes: SHA-256 over ``le64(6) ++ "text/1" ++ le64(len) ++ text``,
    the text in UTF-8 exactly as it is embedded, before any prompt is put in front of it.
    Nothing is trimmed or normalised: what a model would see differently has another key.
    The lengths in front make the encoding injective.

``xxh3-chain/N``
    The keys of a prompt's blocks of N tokens, 8 bytes each, big-endian. A block's
    content is XXH3-64 (seed 1337) over its little-endian uint32 token ids; its key is that
    hashed together with the key of the block before it, so that one key stands for the
    whole prompt up to the block's end. XXH3 is not collision resistant against an
    adversary; a false hit costs a routing decision, never a wrong answer.

Hashes compare only within one scheme.
"""

from __future__ import annotations

import hashlib
import re
import struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from warmindex.errors import InvalidError, Reason
from warmindex.limits import CHAIN_HASH_BYTES, TOKEN_COUNT_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

TokenIds: TypeAlias = "Sequence[int] | npt.NDArray[np.integer[Any]]"

TEXT_SHA256: Final = "text-sha256"

CHAIN_PREFIX: Final = "xxh3-chain/"
# Settled by the contract: hashes under another seed are another scheme.
CHAIN_SEED: Final = 1337
# Token counts are uint32 on the wire, so no block can be longer.
CHAIN_BLOCK_SIZE_MAX: Final = TOKEN_COUNT_MAX

_TOKEN_ID_MAX: Final = 2**32 - 1
_TEXT_TAG: Final = struct.pack("<Q", 6) + b"text/1"
_LE64: Final = struct.Struct("<Q")
_TWO_LE64: Final = struct.Struct("<QQ")
_BE64: Final = struct.Struct(">Q")
# Canonical decimal: a block size written in two ways would be two schemes.
_CHAIN_SCHEME: Final = re.compile(r"xxh3-chain/([1-9][0-9]{0,9})", re.ASCII)


def text_hash(text: str) -> bytes:
    """The ``text-sha256`` key of a text, 32 bytes.

    Raises InvalidError (field "text") where the text has a lone surrogate: it has no UTF-8
    form, so neither an embedding server nor a message could carry it.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _invalid(
            "text",
            f"has a lone surrogate (U+{ord(text[error.start]):04X}) at character {error.start}, "
            "so it is not valid Unicode; repair or drop it before hashing",
        ) from None
    return hashlib.sha256(b"".join((_TEXT_TAG, _LE64.pack(len(data)), data))).digest()


def tool_text(name: str, description: str) -> str:
    """The text under which a tool is embedded and hashed."""
    return f"name: {name} description: {description}"


def chain_scheme(block_size: int) -> str:
    """The name of the chain scheme with `block_size` tokens a block: 16 -> "xxh3-chain/16"."""
    _check_block_size(block_size)
    return f"{CHAIN_PREFIX}{block_size}"


def chain_block_size(hash_scheme: str) -> int | None:
    """The block size in tokens of a chain scheme's name; None for any other scheme.

    Only canonical names count: "xxh3-chain/016" and "xxh3-chain/+16" are None.
    """
    match = _CHAIN_SCHEME.fullmatch(hash_scheme)
    if match is None:
        return None
    block_size = int(match[1])
    return block_size if block_size <= CHAIN_BLOCK_SIZE_MAX else None


def chain_hashes(
    token_ids: TokenIds,
    block_size: int,
    parent: bytes | None = None,
) -> list[bytes]:
    """The ``xxh3-chain/{block_size}`` keys of a run of tokens, 8 bytes each, first block first.

    `token_ids` are uint32; what is short of a block at the end is dropped. `parent` is the
    key of the block before the run, 8 bytes big-endian, or None at a prompt's beginning.
    Raises InvalidError naming the argument at fault.
    """
    _check_block_size(block_size)
    count = len(token_ids) // block_size
    packed = _pack_tokens(token_ids, count * block_size)
    digest = xxhash.xxh3_64_intdigest
    parent_key = None if parent is None else _parent_key(parent)
    if count == 0:
        return []
    contents = [
        digest(block, CHAIN_SEED) for (block,) in struct.iter_unpack(f"{4 * block_size}s", packed)
    ]
    pack_pair = _TWO_LE64.pack
    previous = contents[0]
    if parent_key is not None:
        previous = digest(pack_pair(parent_key, previous), CHAIN_SEED)
    chain = [previous]
    for content in contents[1:]:
        previous = digest(pack_pair(previous, content), CHAIN_SEED)
        chain.append(previous)
    return [_BE64.pack(key) for key in chain]


def _invalid(field: str, problem: str, reason: Reason = Reason.UNSPECIFIED) -> InvalidError:
    return InvalidError(f"{field} {problem}", field=field, reason=reason)


def _check_block_size(block_size: int) -> None:
    if not 1 <= block_size <= CHAIN_BLOCK_SIZE_MAX:
        raise _invalid(
            "block_size",
            f"is {block_size}; allowed is 1..{CHAIN_BLOCK_SIZE_MAX}, as the engine has it",
            Reason.OUT_OF_RANGE,
        )


def _parent_key(parent: bytes) -> int:
    if len(parent) != CHAIN_HASH_BYTES:
        raise _invalid(
            "parent",
            f"has {len(parent)} bytes where a chain key has {CHAIN_HASH_BYTES}; "
            "give a key that chain_hashes returned, or None at the beginning of a prompt",
            Reason.HASH_LENGTH,
        )
    key: int = _BE64.unpack(parent)[0]
    return key


def _pack_tokens(token_ids: TokenIds, count: int) -> bytes:
    """The first `count` ids as little-endian uint32; every id is checked, the tail's too."""
    if isinstance(token_ids, np.ndarray):
        return _pack_array(token_ids)[: 4 * count]
    try:
        return struct.pack(f"<{len(token_ids)}I", *token_ids)[: 4 * count]
    except struct.error:
        raise _token_error(token_ids) from None


def _pack_array(token_ids: npt.NDArray[np.integer[Any]]) -> bytes:
    if token_ids.ndim != 1 or token_ids.dtype.kind not in "iu":
        raise _invalid(
            "token_ids",
            f"is a {token_ids.ndim}-dimensional array of {token_ids.dtype}; give one of integers",
        )
    # A wider or signed type would wrap silently when it is narrowed.
    if token_ids.size and not 0 <= int(token_ids.min()) <= int(token_ids.max()) <= _TOKEN_ID_MAX:
        raise _token_error(token_ids.tolist())
    return token_ids.astype("<u4", copy=False).tobytes()


def _token_error(token_ids: Sequence[object]) -> InvalidError:
    for position, token in enumerate(token_ids):
        if not isinstance(token, int) or not 0 <= token <= _TOKEN_ID_MAX:
            return _invalid(
                "token_ids",
                f"at {position} is {token!r:.60}, not an integer in 0..{_TOKEN_ID_MAX}; "
                "give the ids that the engine's tokenizer made",
                Reason.OUT_OF_RANGE,
            )
    return _invalid("token_ids", "cannot be read as integers; give the tokenizer's ids")
