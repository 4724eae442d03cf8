"""Ends the leases that are over.

What a replica holds goes by an ALL_CLEARED for every model of its tenant in which it holds
anything, and then the lease itself goes. Each is an ordinary record on the condition that
the lease is still the one that ran out, so one that was replaced meanwhile loses nothing.

    over --> clear what it holds --> still holds something? --> end the lease
                  ^                          |
                  +--------- yes ------------+

A replica that is heard from in between keeps its lease; it is told to report what it holds.

Several servers may share the journal. One of them judges, and only up to the time for which it
knows whom all of them have heard. Whoever hears from a replica that was silent for as long as
its lease lasts sets the lease anew: what another server is about to journal is then void, and
so is what one that was stopped in the middle journals when it goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from warmindex.errors import UnavailableError
from warmindex.event import CacheEvent, Cause, EventType
from warmindex.index import Applied, Index, Outcome
from warmindex.record import Conditional, Lease, LeaseState, Record

from warmindex_server.leader import Alone, Leadership
from warmindex_server.leases.resyncs import Resyncs
from warmindex_server.leases.table import LeaseTable, RunningLease
from warmindex_server.replicas import Heard, ReplicaKey

_log = logging.getLogger(__name__)

# A server that looks at a lease so much too late was stopped or starved, and could not hear
# anybody meanwhile. The shortest lease is twice as long.
HELD_UP_S_MAX: Final = 0.5
# While the journal cannot be written no lease can be ended; nor by a server that follows, or
# before all servers have told whom they have heard.
RETRY_S: Final = 0.5


class Writer(Protocol):
    """The store, as far as leases need it."""

    @property
    def index(self) -> Index:
        """The index as it is now; another one after a reload."""

    async def publish_all(self, records: Sequence[Record]) -> list[Applied]:
        """Append records and apply them."""


class LeaseKeeper:
    """Runs the leases of an index; a listener of the store.

    Of the servers that share a journal the leader ends leases; the others only follow, so that
    each can take over.
    """

    def __init__(
        self,
        store: Writer,
        heard: Heard,
        clock: Callable[[], float] = time.monotonic,
        leadership: Leadership | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._leadership = leadership or Alone(clock)
        self._table = LeaseTable(heard.last_s)
        self._resyncs = Resyncs()
        self._index: Index | None = None
        self._ending: set[ReplicaKey] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; each lease of the index runs anew."""
        self._follow_index()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(_ended)

    async def close(self) -> None:
        """Stop; leases go on where the journal is loaded next."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._task

    # ---- what callers ask --------------------------------------------------------------

    def remaining_s(self, key: ReplicaKey) -> float | None:
        """How long a lease still has; None where there is none."""
        ends_s, state = self._table.ends_s(key), self._store.index.leases.get(key)
        if ends_s is None or state is None:
            return None
        # After an outage it runs longer than it says, for those who could not be heard.
        return min(max(0.0, ends_s - self._clock()), state.ttl_ms / 1000)

    def late(self, keys: Iterable[ReplicaKey]) -> set[ReplicaKey]:
        """Whose lease somebody may be ending, so that a renewal of it must be journaled.

        To be asked when they are heard from, and before that is noted.
        """
        now_s = self._clock()
        if not self._leadership.in_touch:
            return {key for key in keys if key in self._store.index.leases}
        return {key for key in keys if key in self._ending or self._table.late(key, now_s)}

    def to_set(
        self,
        leases: Mapping[ReplicaKey, Lease],
        told: Collection[ReplicaKey],
        late: Collection[ReplicaKey],
    ) -> list[Lease]:
        """Of a stream's leases, those to journal with its next message.

        `told` are those that the message itself sets. What runs as it was told need not be
        journaled again; what the stream had set and has ended runs again, for the stream is
        heard from.
        """
        there = self._store.index.leases
        records = []
        for key, lease in leases.items():
            state = there.get(key)
            if state is None or key in late or (key in told and state.ttl_ms != lease.ttl_ms):
                records.append(lease)
        return records

    def to_renew(self, keys: Iterable[ReplicaKey]) -> list[Lease]:
        """The leases to journal before what their replicas send by itself."""
        there = self._store.index.leases
        if not there:
            return []
        return [
            Lease(replica_id=key[1], tenant_id=key[0], ttl_ms=there[key].ttl_ms)
            for key in self.late(keys)
        ]

    def resync_required(self, keys: Collection[ReplicaKey]) -> bool:
        """Whether one of these replicas owes a report."""
        return self._resyncs.owed_by_any(keys)

    # ---- following the index -----------------------------------------------------------

    def applied(self, record: Record, applied: Applied) -> None:
        """Take note of leases that were set and ended, and of reports that are owed."""
        if self._follow_index():
            return
        if isinstance(record, Conditional):
            record = record.record
        if not isinstance(record, Lease):
            self._resyncs.applied(record, applied, self._store.index)
            return
        if applied.outcome is not Outcome.APPLIED:
            return
        if record.ttl_ms:
            state = LeaseState(
                replica_id=record.replica_id,
                tenant_id=record.tenant_id,
                ttl_ms=record.ttl_ms,
                generation=applied.revision,
            )
            self._table.set(state, self._clock())
            self._changed.set()
        else:
            self._table.end((record.tenant_id, record.replica_id))

    def loaded(self) -> None:
        """The journal was loaded anew."""
        self._follow_index()

    def begin_again(self, allowance_s: float = 0.0) -> None:
        """Nobody could be heard for a while: each lease runs anew, and so much longer."""
        self._table.begin_again(self._clock() + allowance_s)

    def _follow_index(self) -> bool:
        """Begin anew where the store has another index: with its leases, as after a start."""
        index = self._store.index
        if index is self._index:
            return False
        self._index = index
        self._table.begin_all(index.leases.values(), self._clock())
        self._resyncs.read(index)
        self._changed.set()
        return True

    # ---- ending ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if not await self._until_next():
                continue
            over = self._table.over(self._clock())
            if over:
                await self._end(over)
                for lease in over:
                    self._table.put_back(lease, self._clock() + RETRY_S)

    async def _until_next(self) -> bool:
        """Sleep until a lease may be over; False where it is to be asked again."""
        self._changed.clear()
        self._follow_index()
        began_s, next_s = self._clock(), self._table.next_s
        with suppress(TimeoutError):
            async with asyncio.timeout(None if next_s is None else max(0.0, next_s - began_s)):
                await self._changed.wait()
            return False
        late_s = self._clock() - max(began_s, next_s or 0.0)
        if late_s > HELD_UP_S_MAX:
            _log.warning(
                "held up for %.1f s, in which nobody could be heard: leases run on", late_s
            )
            self._table.begin_again(self._clock())
        return True

    async def _end(self, over: Sequence[RunningLease]) -> None:
        until_s = await self._leadership.judges_until_s()
        if until_s is None:
            return
        left = [lease for lease in over if self._is_over(lease, until_s)]
        self._ending.update(lease.key for lease in left)
        try:
            while clears := [clear for lease in left for clear in self._clears(lease)]:
                await self._store.publish_all(clears)
                left = [lease for lease in left if self._is_over(lease, until_s)]
            await self._store.publish_all([_end_of(lease) for lease in left])
            for lease in left:
                _log.info("lease of %r in tenant %r is over", lease.key[1], lease.key[0])
        except UnavailableError as error:
            _log.warning("leases that are over cannot be ended just now: %s", error.message)
        finally:
            self._ending.clear()

    def _is_over(self, lease: RunningLease, until_s: float) -> bool:
        ends_s = self._table.ends_s(lease.key)
        return ends_s is not None and ends_s <= until_s

    def _clears(self, lease: RunningLease) -> list[Conditional]:
        tenant_id, replica_id = lease.key
        return [
            Conditional(
                record=CacheEvent(
                    type=EventType.ALL_CLEARED,
                    replica_id=replica_id,
                    model_id=model_id,
                    tenant_id=tenant_id,
                    cause=Cause.LEASE,
                ),
                lease_generation=lease.generation,
            )
            for model_id, model in self._store.index.models_of(tenant_id)
            if model.holders.holds_of(replica_id)
        ]


def _end_of(lease: RunningLease) -> Conditional:
    tenant_id, replica_id = lease.key
    return Conditional(
        record=Lease(replica_id=replica_id, tenant_id=tenant_id, ttl_ms=0),
        lease_generation=lease.generation,
    )


def _ended(task: asyncio.Task[None]) -> None:
    """The task runs for ever; where a bug ends it, say so instead of keeping quiet."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("no lease is ended any more: restart the server", exc_info=error)
