"""Engine hash -> where its block went, for one scheme of one replica.

A removal names a block by the engine's hash alone, so that what was published of it has to
be remembered: its key, its partition, and which copies of it are left. A million blocks is
an ordinary engine, so that a record is one integer:

      copies, one bit each          partition, 32 bits      key, 64 bits
    +-----------------------------+-----------------------+---------------+
    ^ bit 96                      ^ bit 64                ^ bit 0

That is about 140 bytes a block, dictionary included (bench/kv_sidecar.py measures it).

One engine hash has one record, but for the rare case that an engine says it of two
contents: of one adapter's block and of another's (its hashes leave the adapter out), or of
blocks of two sizes (a long block's integer is that of its last short one). Then there is
one record per partition, and a removal takes its copies from all of them: which one is
meant is not said, and a miss is better than a stale hit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from warmindex.event import Tier

from warmindex_subscriber.kv.copies import Copies, Copy

KEY_BYTES: Final = 8
KEY_MASK: Final = 2**64 - 1
_PARTITION_SHIFT: Final = 64
_PARTITION_MASK: Final = 2**32 - 1
_COPIES_SHIFT: Final = 96
_IDENTITY_MASK: Final = 2**_COPIES_SHIFT - 1


class Partition(NamedTuple):
    """Where keys are indexed, and how many tokens each stands for."""

    adapter_id: str
    hash_scheme: str
    block_tokens: int


class HoldsOutput(Protocol):
    """Is told which holds begin and end, key by key, in order."""

    def began(self, partition: Partition, tier: Tier, keys: Sequence[bytes]) -> None:
        """The replica now holds the keys in the tier."""

    def ended(self, partition: Partition, tier: Tier, key: bytes) -> None:
        """The replica no longer holds the key in the tier."""


class Ledger:
    """The blocks of one replica under one scheme, or under one scheme per block size.

    `copies` is shared by the replica's ledgers.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._records: dict[int, int] = {}
        # The second and later records of a hash.
        self._further: dict[int, list[int]] = {}
        self._partitions: list[Partition] = []
        # By adapter and scheme: two sizes under one scheme are one partition.
        self._numbers: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        """The number of engine hashes with a record."""
        return len(self._records)

    def __contains__(self, engine_hash: int) -> bool:
        """Whether the hash has a record."""
        return engine_hash in self._records

    def clear(self) -> None:
        """Forget all blocks."""
        self._records = {}
        self._further = {}

    def key_of(self, engine_hash: int, block_tokens: int) -> int | None:
        """The key of a block of that size; None where no such block is recorded."""
        for record in self._records_of(engine_hash):
            if self._partition_of(record).block_tokens == block_tokens:
                return record & KEY_MASK
        return None

    def block_tokens_max(self, engine_hash: int) -> int:
        """The size of the largest block under the hash; 0 where there is none."""
        records = self._records_of(engine_hash)
        return max((self._partition_of(record).block_tokens for record in records), default=0)

    def store(
        self,
        hashes: Sequence[int],
        keys: Sequence[bytes],
        partition: Partition,
        copy: Copy,
        output: HoldsOutput,
    ) -> None:
        """Record one copy of each block; `keys` of 8 bytes, one per hash."""
        new = (copy.bit << _COPIES_SHIFT) | (self._number(partition) << _PARTITION_SHIFT)
        numbers = struct.unpack(f">{len(keys)}Q", b"".join(keys))
        records = self._records
        if not any(map(records.get, hashes)) and len(set(hashes)) == len(hashes):
            records.update(zip(hashes, map(new.__or__, numbers), strict=True))
            output.began(partition, copy.tier, keys)
            return
        for engine_hash, key, number in zip(hashes, keys, numbers, strict=True):
            if self._store_one(engine_hash, new | number, copy.tier, output):
                output.began(partition, copy.tier, (key,))

    def remove(self, hashes: Iterable[int], mask: int, output: HoldsOutput) -> None:
        """Take the copies in `mask` from each block; hashes without a record are passed over."""
        if not mask:
            return
        records = self._records
        selected = mask << _COPIES_SHIFT
        for engine_hash in hashes:
            record = records.get(engine_hash)
            if record is None:
                continue
            if self._further and engine_hash in self._further:
                self._remove_from_all(engine_hash, selected, output)
                continue
            rest = record & ~selected
            if rest >> _COPIES_SHIFT:
                records[engine_hash] = rest
            else:
                del records[engine_hash]
            self._end(record, rest, output)

    def holds(self) -> Iterator[tuple[Partition, Tier, bytes]]:
        """Every hold that there is, in no particular order."""
        tiers = tuple(self._copies.tier_masks.items())
        for engine_hash, first in self._records.items():
            for record in (first, *self._further.get(engine_hash, ())):
                key = (record & KEY_MASK).to_bytes(KEY_BYTES, "big")
                partition = self._partition_of(record)
                for tier, mask in tiers:
                    if record >> _COPIES_SHIFT & mask:
                        yield partition, tier, key

    def _number(self, partition: Partition) -> int:
        name = (partition.adapter_id, partition.hash_scheme)
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._partitions)
            self._partitions.append(partition)
        return number

    def _partition_of(self, record: int) -> Partition:
        return self._partitions[record >> _PARTITION_SHIFT & _PARTITION_MASK]

    def _records_of(self, engine_hash: int) -> list[int]:
        record = self._records.get(engine_hash)
        if record is None:
            return []
        return [record, *self._further.get(engine_hash, ())]

    def _put(self, engine_hash: int, records: list[int]) -> None:
        self._further.pop(engine_hash, None)
        if not records:
            del self._records[engine_hash]
            return
        self._records[engine_hash] = records[0]
        if len(records) > 1:
            self._further[engine_hash] = records[1:]

    def _store_one(self, engine_hash: int, new: int, tier: Tier, output: HoldsOutput) -> bool:
        """Add one copy to one block; whether its hold in the tier begins."""
        identity = new & _IDENTITY_MASK
        begins = True
        kept = []
        for record in self._records_of(engine_hash):
            if record & _IDENTITY_MASK == identity:
                begins = not (record >> _COPIES_SHIFT & self._copies.tier_masks[tier])
                new |= record
            elif (record ^ new) >> _PARTITION_SHIFT & _PARTITION_MASK:
                kept.append(record)
            else:
                # Another content under one hash in one partition: the older is gone.
                self._end(record, identity, output)
        self._put(engine_hash, [new, *kept])
        return begins

    def _remove_from_all(self, engine_hash: int, selected: int, output: HoldsOutput) -> None:
        kept = []
        for record in self._records_of(engine_hash):
            rest = record & ~selected
            self._end(record, rest, output)
            if rest >> _COPIES_SHIFT:
                kept.append(rest)
        self._put(engine_hash, kept)

    def _end(self, record: int, rest: int, output: HoldsOutput) -> None:
        """Tell which tiers a block is no longer held in, now that only `rest` is left of it."""
        before, after = record >> _COPIES_SHIFT, rest >> _COPIES_SHIFT
        for tier, mask in self._copies.tier_masks.items():
            if before & mask and not after & mask:
                key = (record & KEY_MASK).to_bytes(KEY_BYTES, "big")
                output.ended(self._partition_of(record), tier, key)
