"""What a cache says, as engines write it: the events of a batch, ready for msgpack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from warmindex_subscriber.fake_engine.cache import Change, Removed, Stored

_SIGN: Final = 2**63


class Shape(Enum):
    """Whose events they look like."""

    VLLM = "vllm"  # maps, since 0.24
    VLLM_ARRAYS = "vllm-arrays"  # up to 0.23
    SGLANG = "sglang"


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes the events of one engine.

    `adapters` are its adapters in the order in which it loaded them; with `names` off they are
    said by number alone.
    """

    shape: Shape = Shape.VLLM
    block_tokens: int = 16
    adapters: Sequence[str] = field(default=())
    names: bool = True

    def events(self, changes: Sequence[Change]) -> list[Any]:
        """The events that say these changes."""
        events: list[Any] = []
        for change in changes:
            if isinstance(change, Stored):
                events += self._stored(change)
            elif isinstance(change, Removed):
                events += self._removed(change)
            else:
                tag = "AllBlocksCleared"
                events.append([tag] if self.shape is Shape.VLLM_ARRAYS else {"type": tag})
        return events

    def _stored(self, change: Stored) -> list[Any]:
        if self.shape is Shape.SGLANG:
            return [self._page(change, position) for position in range(len(change.hashes))]
        adapter = change.adapter or None
        keys = [[adapter]] * len(change.hashes) if adapter and self.names else None
        event: dict[str, Any] = {
            "type": "BlockStored",
            "block_hashes": change.hashes,
            "parent_block_hash": change.parent,
            "token_ids": change.tokens,
            "block_size": self.block_tokens,
            "lora_id": self._number(change.adapter),
            "medium": "GPU",
            "lora_name": adapter if self.names else None,
        }
        if self.shape is Shape.VLLM_ARRAYS:
            return [[*event.values(), keys, 0, "full_attention", None]]
        if keys is not None:
            event["extra_keys"] = keys
        return [event | {"group_idx": 0}]

    def _page(self, change: Stored, position: int) -> dict[str, Any]:
        """One block by itself, with a signed hash."""
        size = self.block_tokens
        parent = change.hashes[position - 1] if position else change.parent
        page = {
            "type": "BlockStored",
            "block_hashes": [_signed(change.hashes[position])],
            "parent_block_hash": None if parent is None else _signed(parent),
            "token_ids": change.tokens[position * size : (position + 1) * size],
            "block_size": size,
            "lora_id": None,
            "medium": "GPU",
        }
        return page | {"lora_name": change.adapter} if change.adapter else page

    def _removed(self, change: Removed) -> list[Any]:
        if self.shape is Shape.SGLANG:
            hashes = [_signed(block) for block in change.hashes]
            return [{"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}]
        event = {"type": "BlockRemoved", "block_hashes": [0], "medium": "GPU", "group_idx": 0}
        removals = [event | {"block_hashes": [block]} for block in change.hashes]
        if self.shape is Shape.VLLM_ARRAYS:
            return [list(removal.values()) for removal in removals]
        return removals

    def _number(self, adapter: str) -> int | None:
        return list(self.adapters).index(adapter) + 1 if adapter in self.adapters else None


def _signed(block: int) -> int:
    return block - 2 * _SIGN if block >= _SIGN else block
