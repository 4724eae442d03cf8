"""What claims are to the server, wherever they are kept.

A claim says "I am computing this one". It belongs to a key of one partition, and to one
claimant; it ends when a vector for the key is applied, by its claimant, or by time. Claims
save work and decide nothing: whoever publishes may do so, with a claim or without.

Several servers share their claims. There a key may have come already, published through
another server, when it is claimed here: `Taken.revision` is the journal's end at the time of
the claim. The caller waits until its index has come so far, and looks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from typing import NamedTuple, Protocol

from warmindex.event import PartitionKey
from warmindex.index import Applied
from warmindex.record import Record


class Standing(IntEnum):
    """Who computes a key that has no vector."""

    NOBODY = 0
    OTHERS = 1
    MINE = 2


class Claimant(NamedTuple):
    """Who asks for claims; `most` new ones at a time. Those it holds already are renewed."""

    claimant_id: str
    ttl_s: float
    most: int


class Taken(NamedTuple):
    """One standing per key, in order; `revision` is 0 where nothing can be ahead of the index."""

    standings: list[Standing]
    revision: int = 0


class Waiting(Protocol):
    """One call that waits for others."""

    async def change(self, pending: Sequence[bytes], timeout_s: float) -> bool:
        """Wait until it is worth looking again; False where the time, or the server, is up.

        `pending` are the keys that others hold. It returns when none of them is any more, or
        when one may fall to this caller. Nothing is missed between looking and waiting.
        """


class Claims(Protocol):
    """The claims of all partitions."""

    async def take(
        self, key: PartitionKey, hashes: Sequence[bytes], claimant: Claimant | None
    ) -> Taken:
        """Who computes each of some absent keys; gives `claimant` what it can, in order.

        hashes: distinct. NOBODY beside a claimant: no claim can be given, by its own limit or
        by the table's. A claim's time begins when this returns.
        """

    async def release(self, key: PartitionKey, hashes: Sequence[bytes], claimant_id: str) -> int:
        """End the claims that the claimant holds on some keys; how many there were."""

    def waiting(self, key: PartitionKey, *, wants: bool) -> AbstractContextManager[Waiting]:
        """Line up as a call that waits; `wants`: keys that get free may fall to it."""

    def applied(self, record: Record, applied: Applied) -> None:
        """A listener of the store: vectors that have come end their claims."""

    def close(self) -> None:
        """The server goes away: nobody waits any longer."""
