"""Who holds, as bits: one bit for each replica and tier, within one (tenant, model).

An entry keeps one integer; the bits set in it are its holds. A clear must be visible at
once and may not cost a walk over the index, so it retires the replica's bits: they leave
`live`, and whatever still has them set is masked by it. A sweep in small steps takes the
retired bits out of the entries; only then are they given out again.

    free  --bit_of-->  live  --retire-->  waiting  --begin_sweep-->  sweeping  --end_sweep-->  free
                        |                                                                       ^
                        +----------------- removed: the last hold was evicted ------------------+
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmindex.event import Tier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def each_bit(mask: int) -> Iterator[int]:
    """The bits set in a mask, lowest first."""
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


class Holders:
    """The bits of one (tenant, model), and how many holds stand behind each live one."""

    __slots__ = ("_bits", "_counts", "_free", "_names", "_width", "live", "sweeping", "waiting")

    def __init__(self) -> None:
        self._bits: dict[str, dict[Tier, int]] = {}
        self._names: dict[int, tuple[str, Tier]] = {}
        self._counts: dict[int, int] = {}
        self._free: list[int] = []
        self._width = 0
        self.live = 0
        self.waiting = 0
        self.sweeping = 0

    @property
    def retired(self) -> bool:
        """Whether some entries may still carry bits that count no longer."""
        return bool(self.waiting or self.sweeping)

    @property
    def empty(self) -> bool:
        """Whether no replica holds anything."""
        return not self._counts

    def bit_of(self, replica_id: str, tier: Tier) -> int:
        """The replica's bit in a tier, given out if it has none yet."""
        bits = self._bits.get(replica_id)
        if bits is None:
            bits = self._bits[replica_id] = {}
        bit = bits.get(tier)
        if bit is None:
            bit = bits[tier] = self._take(replica_id, tier)
        return bit

    def bits_of(self, replica_id: str, tier: Tier = Tier.UNSPECIFIED) -> int:
        """The replica's bits in one tier, or in all of them; 0 where it holds nothing."""
        bits = self._bits.get(replica_id)
        if bits is None:
            return 0
        if tier is not Tier.UNSPECIFIED:
            return bits.get(tier, 0)
        mask = 0
        for bit in bits.values():
            mask |= bit
        return mask

    def name_of(self, bit: int) -> tuple[str, Tier]:
        """The replica and tier behind a live bit."""
        return self._names[bit]

    def names(self) -> dict[int, tuple[str, Tier]]:
        """The replica and tier behind each live bit, as they are now."""
        return dict(self._names)

    def names_in(self, mask: int) -> Iterator[tuple[str, Tier]]:
        """The replicas and tiers behind the live bits of a mask."""
        return (self._names[bit] for bit in each_bit(mask & self.live))

    def holds_of(self, replica_id: str) -> int:
        """How many holds the replica has, over all tiers."""
        bits = self._bits.get(replica_id)
        return sum(self._counts.get(bit, 0) for bit in bits.values()) if bits else 0

    def replicas(self) -> Iterable[str]:
        """The replicas that hold anything."""
        return self._bits.keys()

    def added(self, bit: int, holds: int) -> None:
        """Count holds that were set."""
        self._counts[bit] = self._counts.get(bit, 0) + holds

    def removed(self, bit: int, holds: int) -> None:
        """Count holds that were taken out; the bit is free again after the last."""
        count = self._counts[bit] - holds
        if count:
            self._counts[bit] = count
        else:
            self._release(bit)

    def retire(self, replica_id: str) -> int:
        """Take all that the replica holds out of sight; the number of holds that were."""
        holds = 0
        for bit in self._bits.pop(replica_id, {}).values():
            holds += self._counts.pop(bit, 0)
            del self._names[bit]
            self.live &= ~bit
            self.waiting |= bit
        return holds

    def begin_sweep(self) -> int:
        """The bits that the next sweep takes out; later clears wait for the one after it."""
        self.sweeping, self.waiting = self.waiting, 0
        return self.sweeping

    def end_sweep(self) -> None:
        """The sweep has been everywhere: its bits are free again."""
        self._free.extend(each_bit(self.sweeping))
        self.sweeping = 0

    def _take(self, replica_id: str, tier: Tier) -> int:
        if self._free:
            bit = self._free.pop()
        else:
            bit = 1 << self._width
            self._width += 1
        self.live |= bit
        self._names[bit] = (replica_id, tier)
        return bit

    def _release(self, bit: int) -> None:
        replica_id, tier = self._names.pop(bit)
        self._counts.pop(bit, None)
        self.live &= ~bit
        self._free.append(bit)
        bits = self._bits[replica_id]
        del bits[tier]
        if not bits:
            del self._bits[replica_id]
