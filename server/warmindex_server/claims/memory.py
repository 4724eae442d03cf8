"""Claims of a server that is alone: in its memory, gone at its exit.

Nobody loses by that but time: after a restart the first to ask claims again, and what the
old claimants publish applies as ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from warmindex.event import PartitionKey

from warmindex_server.claims.base import Claimant, Taken
from warmindex_server.claims.here import ClaimsHere
from warmindex_server.claims.table import CLAIMS_MAX


class MemoryClaims(ClaimsHere):
    """See `Claims` for the contract."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, claims_max: int = CLAIMS_MAX
    ) -> None:
        super().__init__(clock, claims_max)

    async def take(
        self, key: PartitionKey, hashes: Sequence[bytes], claimant: Claimant | None
    ) -> Taken:
        """Never waits, so nothing happens between a look at the index and the claim."""
        now_s = self._clock()
        if claimant is None:
            return Taken(self._table.look(key, hashes, now_s))
        taken = Taken(self._table.take(key, hashes, claimant, now_s))
        self._arm()
        return taken

    async def release(self, key: PartitionKey, hashes: Sequence[bytes], claimant_id: str) -> int:
        """Give up the claimant's own; those who wait get them."""
        released = self._table.release(key, hashes, claimant_id, self._clock())
        if released:
            self._waiters.freed(key, released)
        return len(released)
