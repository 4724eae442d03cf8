"""A prefix cache as engines have them: blocks of tokens, chained, least recently used out first.

No model runs: to serve a prompt is to find how many of its leading blocks are there, and to
keep the rest. What changes is said in the order in which it happens.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import xxhash

BLOCK_TOKENS_DEFAULT: Final = 16
BLOCKS_MAX_DEFAULT: Final = 4096


class Stored(NamedTuple):
    """A run of blocks that are new. `parent` is the hash of the block before the first."""

    hashes: list[int]
    parent: int | None
    tokens: list[int]
    adapter: str


class Removed(NamedTuple):
    """Blocks that are gone, in the order in which they went."""

    hashes: list[int]


class Cleared(NamedTuple):
    """Everything is gone."""


Change: TypeAlias = Stored | Removed | Cleared


class Engine:
    """The prefix cache of one engine; `blocks_max` blocks of `block_tokens` tokens.

    Its hashes are unsigned 64-bit integers that stand for the whole prompt up to the block's
    end, the adapter and the engine's life, as vLLM's do.
    """

    def __init__(
        self,
        *,
        block_tokens: int = BLOCK_TOKENS_DEFAULT,
        blocks_max: int = BLOCKS_MAX_DEFAULT,
        seed: int = 0,
    ) -> None:
        self.block_tokens = block_tokens
        self._blocks_max = blocks_max
        self._seed = seed
        self._life = 0
        # Least recently used first. A block is touched after its children, so that it is
        # never older than they are, and the oldest block never has any.
        self._blocks: OrderedDict[int, str] = OrderedDict()
        self._changes: list[Change] = []
        self._pack = struct.Struct(f"<{block_tokens}I").pack

    def __len__(self) -> int:
        """The number of blocks held."""
        return len(self._blocks)

    @property
    def hashes(self) -> set[int]:
        """The blocks held: the truth that an index is to agree with."""
        return set(self._blocks)

    def serve_prompt(
        self, tokens: Sequence[int], adapter: str = "", answer: Sequence[int] = ()
    ) -> int:
        """Serve a prompt; the number of its leading blocks that were there.

        The blocks of the `answer` are kept as well: the next turn begins with them.
        """
        everything = [*tokens, *answer]
        hashes = self._chain(everything, adapter)[: self._blocks_max]
        known = self._leading(hashes)
        # The ones that are used now must not be what is evicted for the rest.
        self._touch(hashes[:known])
        self._make_room(len(hashes) - known)
        new = hashes[known:]
        if new:
            for block in new:
                self._blocks[block] = adapter
            self._touch(hashes)
            size = self.block_tokens
            kept = everything[known * size : len(hashes) * size]
            parent = hashes[known - 1] if known else None
            self._changes.append(Stored(new, parent, kept, adapter))
        return min(known, len(tokens) // self.block_tokens)

    def find_prompt(self, tokens: Sequence[int], adapter: str = "") -> int:
        """The number of a prompt's leading blocks that are there; nothing is served."""
        return self._leading(self._chain(tokens, adapter))

    def clear(self) -> None:
        """Reset the prefix cache."""
        self._blocks.clear()
        self._changes.append(Cleared())

    def restart(self) -> None:
        """Begin another life, with nothing held and nothing to say about it."""
        self._life += 1
        self._blocks.clear()
        self._changes.clear()

    def take_changes(self) -> list[Change]:
        """What has changed since the last time."""
        changes, self._changes = self._changes, []
        return changes

    def _chain(self, tokens: Sequence[int], adapter: str) -> list[int]:
        size, pack = self.block_tokens, self._pack
        root = f"{self._seed}/{self._life}/{adapter}".encode()
        above = xxhash.xxh3_64_intdigest(root)
        chain = []
        for start in range(0, len(tokens) - size + 1, size):
            above = xxhash.xxh3_64_intdigest(pack(*tokens[start : start + size]), above)
            chain.append(above)
        return chain

    def _leading(self, hashes: Sequence[int]) -> int:
        return next(
            (place for place, block in enumerate(hashes) if block not in self._blocks), len(hashes)
        )

    def _touch(self, hashes: Sequence[int]) -> None:
        for block in reversed(hashes):
            self._blocks.move_to_end(block)

    def _make_room(self, wanted: int) -> None:
        gone = []
        while len(self._blocks) + wanted > self._blocks_max:
            block, _ = self._blocks.popitem(last=False)
            gone.append(block)
        if gone:
            self._changes.append(Removed(gone))
