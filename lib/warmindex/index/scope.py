"""One scope, (tenant, model, hash scheme): its partitions by adapter, and who is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmindex.index.partition import Partition
from warmindex.index.versions import Versions

if TYPE_CHECKING:
    from warmindex.index.holders import Holders


class Scope:
    """The partitions of one hash scheme of a model."""

    __slots__ = ("_names", "_versions", "holds", "partitions")

    def __init__(self, versions: Versions | None = None) -> None:
        self._versions = versions or Versions()
        self.partitions: dict[str, Partition] = {}
        self.holds: dict[int, int] = {}  # live bit -> holds in all partitions
        self._names: frozenset[str] | None = None

    def partition(self, adapter_id: str) -> Partition:
        """The adapter's partition, made if it is not there."""
        partition = self.partitions.get(adapter_id)
        if partition is None:
            partition = self.partitions[adapter_id] = Partition(self._versions)
        return partition

    def added(self, bit: int, holds: int) -> None:
        """Count holds that were set."""
        count = self.holds.get(bit)
        if count is None:
            self._names = None
        self.holds[bit] = (count or 0) + holds

    def removed(self, bit: int, holds: int) -> None:
        """Count holds that were taken out."""
        left = self.holds[bit] - holds
        if left:
            self.holds[bit] = left
        else:
            del self.holds[bit]
            self._names = None

    def retire(self, bits: int) -> None:
        """Forget the holds of retired bits."""
        for bit in [bit for bit in self.holds if bit & bits]:
            del self.holds[bit]
        self._names = None

    def replicas(self, holders: Holders) -> frozenset[str]:
        """The replicas that hold anything in the scope."""
        if self._names is None:
            self._names = frozenset(holders.name_of(bit)[0] for bit in self.holds)
        return self._names
