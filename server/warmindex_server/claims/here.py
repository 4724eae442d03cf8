"""The calls that wait at this server, and when to look at the clock for them.

    table     who holds what until when, as far as this server knows
    waiters   the calls that wait for keys of it

Where the server is alone the table is the claims themselves; where it shares them it is what
this server was told of others' when it last asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from warmindex.event import EventType, PartitionKey
from warmindex.index import Applied
from warmindex.record import Record

from warmindex_server.claims.base import Waiting
from warmindex_server.claims.table import ClaimTable
from warmindex_server.claims.waiters import Waiter, Waiters


class ClaimsHere:
    """What all `Claims` have in common. `clock` is steady, in seconds."""

    def __init__(self, clock: Callable[[], float], claims_max: int) -> None:
        self._clock = clock
        self._table = ClaimTable(claims_max)
        self._waiters = Waiters(self._table.claimed)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._closed = False

    @contextmanager
    def waiting(self, key: PartitionKey, *, wants: bool) -> Iterator[Waiting]:
        """Line up, and leave nothing behind however the call ends."""
        place = Waiter(key, wants=wants)
        self._waiters.join(place)
        try:
            yield _Call(self, self._waiters, place)
        finally:
            self._waiters.leave(place)

    def applied(self, record: Record, applied: Applied) -> None:  # noqa: ARG002 - a listener's form
        """A claim's key has no vector, so one that comes is always among the changes."""
        for change in applied.changes:
            event = change.event
            if event.type is EventType.EMBEDDED and event.embeddings is not None:
                key = PartitionKey(
                    event.tenant_id, event.model_id, change.hash_scheme, change.adapter_id
                )
                self.arrived(key, change.content_hashes, applied.revision)

    def arrived(self, key: PartitionKey, hashes: Sequence[bytes], revision: int) -> None:  # noqa: ARG002 - for those who share
        """Vectors have come for some keys, by the record of that revision."""
        ended = self._table.end(key, hashes)
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

    def loaded(self) -> None:
        """The journal was loaded anew: let every call look again."""
        self._waiters.wake_all()

    def waits(self) -> None:
        """A call is about to wait."""

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


class _Call:
    """One call that waits."""

    def __init__(self, claims: ClaimsHere, waiters: Waiters, place: Waiter) -> None:
        self._claims = claims
        self._waiters = waiters
        self._place = place

    async def change(self, pending: Sequence[bytes], timeout_s: float) -> bool:
        """What wakes this call before it waits is kept until it does."""
        if self._claims.closed or timeout_s <= 0:
            return False
        self._claims.waits()
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
