"""Claims of a server that is alone: in its memory, gone at its exit.

Nobody loses by that but time: after a restart the first to ask claims again, and what the
old claimants publish applies as ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from warmindex.event import EventType, PartitionKey
from warmindex.index import Applied
from warmindex.record import Record

from warmindex_server.claims.base import Claimant, Taken, Waiting
from warmindex_server.claims.table import CLAIMS_MAX, ClaimTable
from warmindex_server.claims.waiters import Waiter, Waiters


class MemoryClaims:
    """See `Claims` for the contract. `clock` is steady, in seconds."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, claims_max: int = CLAIMS_MAX
    ) -> None:
        self._clock = clock
        self._table = ClaimTable(claims_max)
        self._waiters = Waiters(self._table.claimed)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._closed = False

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

    @contextmanager
    def waiting(self, key: PartitionKey, *, wants: bool) -> Iterator[Waiting]:
        """Line up, and leave nothing behind however the call ends."""
        place = Waiter(key, wants=wants)
        self._waiters.join(place)
        try:
            yield _MemoryWaiting(self, self._waiters, place)
        finally:
            self._waiters.leave(place)

    def applied(self, record: Record, applied: Applied) -> None:  # noqa: ARG002 - a listener's form
        """A claim's key has no vector, so one that comes is always among the changes."""
        if not self._table:
            return
        for change in applied.changes:
            event = change.event
            if event.type is EventType.EMBEDDED and event.embeddings is not None:
                key = PartitionKey(
                    event.tenant_id, event.model_id, change.hash_scheme, change.adapter_id
                )
                ended = self._table.end(key, change.content_hashes)
                if ended:
                    self._waiters.ended(key, ended)

    @property
    def closed(self) -> bool:
        """Whether the server goes away."""
        return self._closed

    def close(self) -> None:
        """Nobody waits any longer."""
        self._closed = True
        self._waiters.wake_all()
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        """Look at the clock again when the next claim may be over."""
        next_s = self._table.next_s
        if next_s is None or self._closed:
            return
        if self._timer is not None:
            if self._timer_s <= next_s:
                return
            self._timer.cancel()
        delay_s = max(0.0, next_s - self._clock())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._expire)
        self._timer_s = next_s

    def _expire(self) -> None:
        self._timer = None
        for key, hashes in self._table.expire(self._clock()).items():
            self._waiters.freed(key, hashes)
        self._arm()


class _MemoryWaiting:
    def __init__(self, claims: MemoryClaims, waiters: Waiters, place: Waiter) -> None:
        self._claims = claims
        self._waiters = waiters
        self._place = place

    async def change(self, pending: Sequence[bytes], timeout_s: float) -> bool:
        """What wakes this call before it waits is kept until it does."""
        if self._claims.closed or timeout_s <= 0:
            return False
        woken = self._place.woken
        self._waiters.start(self._place, pending)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await woken.wait()
                return not self._claims.closed
            return False
        finally:
            woken.clear()
            self._waiters.stop(self._place)
