"""On what else than its tokens a block depends.

Engines list, block by block, what goes into its hash beside tokens and parent: the
adapter's name or number first, then images as [identifier, offset], a salt as a string,
prompt embeddings as digests. The adapter is the partition's matter; with anything else the
block has no key of the token chain.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class Taint(Enum):
    """What a block depends on beside its tokens; the value names its counter."""

    SALTED = "salted"
    MULTIMODAL = "multimodal"
    PROMPT_EMBEDDINGS = "prompt_embeddings"
    UNKNOWN = "extra_keys_unknown"


def taint_of(
    extra_keys: list[Any], blocks: int, lora_name: str | None, lora_id: int | None
) -> tuple[int, Taint | None]:
    """How many leading blocks are plain, and what taints the next one; None where all are."""
    count = len(extra_keys)
    if extra_keys.count(None) == count:
        return blocks, None
    name = lora_id if lora_name is None else lora_name
    adapter = [] if name is None else [name]
    if extra_keys.count(adapter) == count:
        return blocks, None
    for position, keys in enumerate(extra_keys):
        taint = _taint_of_block(keys, adapter)
        if taint is not None:
            # With more or fewer lists than blocks nobody can say which block is meant.
            return (position if count == blocks else 0), taint
    return blocks, None


def _taint_of_block(keys: Any, adapter: list[Any]) -> Taint | None:
    if not keys and (keys is None or type(keys) is list):
        return None
    if type(keys) is not list:
        return Taint.UNKNOWN
    rest = keys[1:] if adapter and keys[:1] == adapter else keys
    if not rest:
        return None
    kinds = {type(key) for key in rest}
    if list in kinds:
        return Taint.MULTIMODAL
    if str in kinds:
        return Taint.SALTED
    return Taint.PROMPT_EMBEDDINGS if bytes in kinds else Taint.UNKNOWN
