"""What an engine says -> which holds of one replica begin and end. Pure.

    BlockStored    the adapter picks the partition; the chain goes on from the parent's key;
                   each block is recorded, so that its removal finds it
    BlockRemoved   the copies named go; the hold goes with the last copy in its tier
    AllBlocksCleared   everything of this replica goes, and of no other

What has no key of the token chain is counted and not indexed under it: an unknown parent is
not a root, a salted block is not its tokens, a short block is no block of its chain. The
engine's own hashes, where they are asked for, are a second scheme beside the chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, cast

from warmindex.errors import InvalidError
from warmindex.event import Tier
from warmindex.hashing import chain_hashes, chain_scheme

from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.copies import Copies, Copy
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import Cleared, EngineEvent, Removed, Stored
from warmindex_subscriber.kv.ledger import KEY_BYTES, HoldsOutput, Ledger, Partition
from warmindex_subscriber.kv.runs import merged, runs

# Blocks that were seen and not indexed, remembered only so that their children are not
# counted as orphans, which are the sign of loss.
UNINDEXED_MAX: Final = 100_000


class Output(HoldsOutput, Protocol):
    """Takes what becomes of a replica's holds."""

    def cleared(self) -> None:
        """The replica holds nothing any more."""


class Residence:
    """The blocks that one rank of an engine has, and where they are indexed.

    `native_scheme` names the scheme of the engine's own hashes, or is None to leave them
    out. An engine hash is published in it as the 8 bytes of its integer, big-endian, in
    whatever form it came.
    """

    def __init__(
        self, adapters: Adapters, counters: Counters, native_scheme: str | None = None
    ) -> None:
        self._adapters = adapters
        self._counters = counters
        self._native_scheme = native_scheme
        self._copies = Copies()
        self._chain = Ledger(self._copies)
        self._native = Ledger(self._copies)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._unindexed: set[int] = set()
        self._block_tokens_of_group: dict[int, int] = {}

    def __len__(self) -> int:
        """The number of engine hashes recorded, over both schemes."""
        return len(self._chain) + len(self._native)

    def apply(self, events: Iterable[EngineEvent], output: Output) -> None:
        """Take the events in, in order."""
        for run in runs(events):
            event = run[0]
            if isinstance(event, Stored):
                # A run is of one type.
                self._stored(cast("list[Stored]", run), output)
            elif isinstance(event, Removed):
                self._removed(event, output)
            elif isinstance(event, Cleared):
                self._counters.cleared += 1
                self.clear(output)

    def clear(self, output: Output) -> None:
        """Drop everything. Where there is nothing, nothing is said."""
        if len(self):
            output.cleared()
        self._chain.clear()
        self._native.clear()
        self._unindexed.clear()

    def holds(self) -> Iterator[tuple[Partition, Tier, bytes]]:
        """Every hold that there is, in no particular order."""
        yield from self._chain.holds()
        yield from self._native.holds()

    def _removed(self, event: Removed, output: Output) -> None:
        self._counters.removed += 1
        mask = self._copies.removed(event.medium, event.locality, event.group)
        self._chain.remove(event.keys, mask, output)
        if self._native_scheme is not None:
            self._native.remove(event.keys, mask, output)
        if self._unindexed:
            self._unindexed.difference_update(event.keys)

    def _stored(self, run: list[Stored], output: Output) -> None:
        self._counters.stored += len(run)
        try:
            self._store(merged(run), output)
        except InvalidError:
            # Token ids that are none: one event is not what it says, and its neighbours may be.
            for event in run:
                try:
                    self._store(event, output)
                except InvalidError:
                    self._counters.malformed += 1

    def _store(self, event: Stored, output: Output) -> None:
        """Record a BlockStored. Raises InvalidError, before anything is, for a bad token id."""
        counters = self._counters
        adapter_id = self._adapters.resolve(event.lora_name, event.lora_id)
        if adapter_id is None:
            counters.unmapped += 1
            return
        if event.block_size == 0 and not event.token_ids:
            # It says that a block is offloaded, and neither which tokens nor whose.
            counters.placeholder += 1
            return
        copy = self._copies.stored(event.medium, event.locality, event.group)
        if copy is None:
            counters.copies_exhausted += 1
            return
        indexed = self._store_chain(event, adapter_id, copy, output)
        if not copy.known:
            counters.medium_unknown += 1
        if self._native_scheme is not None:
            self._store_native(event, adapter_id, copy, output)
        if indexed < len(event.keys) and len(self._unindexed) < UNINDEXED_MAX:
            self._unindexed.update(event.keys[indexed:])

    def _store_chain(self, event: Stored, adapter_id: str, copy: Copy, output: Output) -> int:
        """Index what has a key of the chain; the number of leading blocks that have."""
        count, size, tokens = len(event.keys), event.block_size, event.token_ids
        if tokens and type(tokens[0]) is list:
            self._counters.bigram += 1
            return 0
        if not count or not size or len(tokens) != count * size:
            self._counters.unaligned += 1
            return 0
        if event.taint is not None:
            self._counters.add(event.taint.value)
            count = event.plain_blocks
            if not count:
                return 0
            tokens = tokens[: count * size]
        parent = None
        if event.parent is not None:
            number = self._chain.key_of(event.parent, size)
            if number is None:
                self._counters.add(self._why_no_parent(event.parent, size))
                return 0
            parent = number.to_bytes(KEY_BYTES, "big")
        elif self._is_partial_root(event):
            self._counters.partial += 1
            return 0
        keys = chain_hashes(tokens, size, parent)
        hashes = event.keys if count == len(event.keys) else event.keys[:count]
        self._chain.store(hashes, keys, self._partition(adapter_id, size), copy, output)
        return count

    def _store_native(self, event: Stored, adapter_id: str, copy: Copy, output: Output) -> None:
        if self._native_scheme is None or not event.keys or not event.block_size:
            return
        keys = [engine_hash.to_bytes(KEY_BYTES, "big") for engine_hash in event.keys]
        partition = Partition(adapter_id, self._native_scheme, event.block_size)
        self._native.store(event.keys, keys, partition, copy, output)

    def _partition(self, adapter_id: str, size: int) -> Partition:
        partition = self._partitions.get((adapter_id, size))
        if partition is None:
            partition = Partition(adapter_id, chain_scheme(size), size)
            self._partitions[adapter_id, size] = partition
        return partition

    def _why_no_parent(self, parent: int, size: int) -> str:
        """The counter for a block whose parent has no key in a chain of that block size.

        One that is shorter than its parent is the rest of a prompt: full blocks only have keys.
        """
        if self._chain.block_tokens_max(parent) > size:
            return "partial"
        return "orphan_of_unindexed" if parent in self._unindexed else "orphan"

    def _is_partial_root(self, event: Stored) -> bool:
        """Whether a prompt's first block is shorter than its attention group's have been."""
        if event.group is None:
            return False
        size = event.block_size
        largest = self._block_tokens_of_group.setdefault(event.group, size)
        if size > largest:
            self._block_tokens_of_group[event.group] = size
        return size < largest
