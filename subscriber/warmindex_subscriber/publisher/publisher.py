"""The publisher: what sources call, and what answers mean.

    publish --> outbox --line--> index        line: one stream at a time
    report  ------------------> index
                  ^               |
                  +-- answers ----+--> resync_wanted, where the index wants a report

A publish waits while the outbox is full, so a slow or absent index slows its source down and
loses nothing. Where the index wants a report (a gap, a lease that ended, another history), the
source is told; until its report has come, the replica is silent.

An index says of a whole stream that some replica on it owes a report, and of an event that
its own does. Where nothing explains the former, each replica is probed with an event that
changes nothing; its answer tells.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, Self

from warmindex.answers import PublishResult
from warmindex.client import IndexClient
from warmindex.errors import (
    FencedError,
    InvalidError,
    OvertakenError,
    QuotaError,
    Reason,
    UnavailableError,
    WarmindexError,
)
from warmindex.event import CacheEvent, EventType
from warmindex.publish_stream import StreamAnswer

from warmindex_subscriber.publisher.counters import PublisherCounters
from warmindex_subscriber.publisher.leases import Leases
from warmindex_subscriber.publisher.line import RETRY_S_FIRST, RETRY_S_MAX, Line, PublisherOptions
from warmindex_subscriber.publisher.outbox import Outbox
from warmindex_subscriber.publisher.replica import Replica

_log = logging.getLogger(__name__)

# Some other producer on the stream's leases may owe a report for as long as it likes: what
# asks our own again is a few bytes each, but not with every answer.
PROBE_PAUSE_S: Final = 60.0
COUNTERS_LOGGED_EVERY_S: Final = 60.0
# A scheme that nobody has, and a key in it: an eviction that finds nothing.
PROBE_SCHEME: Final = "warmindex-probe"
PROBE_KEY: Final = b"\0"


class Publisher:
    """Publishes for any number of replicas of one model. Use `async with`.

    Make it inside a running event loop. Each instance is a new life of its replicas: it
    fences those before it, and is fenced by those after it.
    """

    def __init__(
        self,
        client: IndexClient,
        *,
        tenant_id: str = "",
        model_id: str,
        resync_wanted: Callable[[str], None],
        options: PublisherOptions | None = None,
    ) -> None:
        """`resync_wanted` is told a replica that owes a `report`: it returns at once, and the
        replica is silent until the report has come.
        """
        self._client = client
        self._tenant_id = tenant_id
        self._model_id = model_id
        self._resync_wanted = resync_wanted
        self._options = options or PublisherOptions()
        self.counters = PublisherCounters()
        # Microseconds: a life that begins later has a larger epoch.
        self._outbox = Outbox(time.time_ns() // 1000, self.counters)
        self._leases = Leases(tenant_id, self._options.lease_s)
        self._line = Line(
            client, self._outbox, self._leases, self._options, self.counters, self._answered
        )
        self._history_id = ""
        # On which stream, and when.
        self._probed = (0, 0.0)
        self._logged_s = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._line.run())
        self._task.add_done_callback(self._line_ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ---- what sources call -------------------------------------------------------------

    async def publish(self, events: Sequence[CacheEvent]) -> None:
        """Accept events without numbers, in order; wait while there is no room for them.

        ALL_CLEARED never waits: it makes room. Returns once they are accepted. Raises
        FencedError where a newer life of the replica has published, InvalidError for events of
        another model or tenant, and what the index said where it never let this client in.
        """
        for event in events:
            self._check_names(event)
            await self._room_for(event)
            self._outbox.put(event)
            self._line.wake()

    async def report(self, replica_id: str, entries: Iterable[CacheEvent]) -> None:
        """Replace all that the index has of a replica by `entries`, in one step.

        It includes everything published for the replica before: what of that is still under
        way is dropped. Tried until it succeeds; `entries` are gone through anew each time.
        What is too large for one step is published in many, after ALL_CLEARED. Raises
        FencedError.
        """
        replica = self._outbox.begin_report(replica_id)
        # Its lease comes first: a crash in between leaves a lease without holds, never holds
        # without a lease.
        self._line.wake()
        pause_s = RETRY_S_FIRST
        while True:
            await self._until(
                lambda: replica.fenced or (self._line.open and self._leases.holds(replica_id))
            )
            _check_life(replica)
            try:
                await self._client.report_state(
                    replica_id,
                    self._model_id,
                    entries,
                    tenant_id=self._tenant_id,
                    epoch=self._outbox.epoch,
                    sequence=replica.sequence,
                )
            except (UnavailableError, OvertakenError) as error:
                _log.warning("report of %r, again soon: %s", replica_id, error.message)
                await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - jitter
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            except QuotaError as error:
                _log.warning("report of %r, in many steps: %s", replica_id, error.message)
                await self.publish([self._event(EventType.ALL_CLEARED, replica_id)])
                for event in entries:
                    await self.publish([event])
                return
            except FencedError:
                self._outbox.fence(replica)
                self._line.wake()
                raise
            else:
                break
        self.counters.reports += 1
        self._outbox.end_report(replica)
        self._moved.set()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything accepted has been answered; False after `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._until(lambda: not self._outbox.held.events)
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Flush, as far as that goes, and stop."""
        if self._task is None:
            return
        task = self._task
        try:
            if not task.done() and not await self.flush(self._options.flush_s):
                _log.error(
                    "%d events are left that no index has acknowledged", self._outbox.held.events
                )
        finally:
            task.remove_done_callback(self._line_ended)
            task.cancel()
            await asyncio.wait((task,))
            self._task = None
            self._moved.set()
            self._log_counters()
        owing = [each.replica_id for each in self._outbox.replicas if each.owes_report]
        if owing:
            _log.error("the index still wants a report of %s", ", ".join(map(repr, owing)))

    # ---- waiting -----------------------------------------------------------------------

    @property
    def _running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def _full(self) -> bool:
        return self._outbox.held.bytes >= self._options.buffer_bytes_max

    async def _room_for(self, event: CacheEvent) -> None:
        replica = self._outbox.replica(event.replica_id)
        if self._full or not self._running:
            clears = event.type is EventType.ALL_CLEARED
            await self._until(lambda: clears or not self._full or replica.silent)
        _check_life(replica)

    def _check_names(self, event: CacheEvent) -> None:
        if event.model_id == self._model_id and event.tenant_id == self._tenant_id:
            return
        raise InvalidError(
            f"event is of model {event.model_id!r} in tenant {event.tenant_id!r}: this publisher "
            f"numbers those of {self._model_id!r} in {self._tenant_id!r}; open another one",
            field="event.model_id",
            reason=Reason.CONFLICT,
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until an answer, a report or a fence has made something true."""
        while True:
            if self._task is None or self._task.cancelled():
                raise UnavailableError("the publisher is not open")
            if self._task.done():
                self._task.result()
            if condition():
                return
            self._moved.clear()
            await self._moved.wait()

    def _line_ended(self, task: asyncio.Task[None]) -> None:
        """It runs for ever; where it was never let in, or has a bug, whoever waits is told."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, WarmindexError):
            _log.error("nothing is published: %s", error.message)
        elif error is not None:
            _log.critical("nothing is published any more", exc_info=error)
        self._moved.set()

    # ---- what answers mean -------------------------------------------------------------

    def _answered(self, answer: StreamAnswer) -> None:
        if answer.history_id != self._history_id:
            if self._history_id:
                _log.warning("the index has another history: everything is reported again")
                self.counters.histories += 1
                self._ask_for_reports([each.replica_id for each in self._outbox.replicas])
            self._history_id = answer.history_id
        told = self._outbox.answered(answer.results, answer.resync_required)
        for what, results in zip(("refused", "limited", "fenced"), told[:3], strict=True):
            _log_first(what, results)
        if told.limited:
            self._line.pause_limited()
        self._ask_for_reports(told.owing)
        if told.unexplained:
            self._probe()
        self._moved.set()
        if time.monotonic() - self._logged_s >= COUNTERS_LOGGED_EVERY_S:
            self._log_counters()

    def _ask_for_reports(self, replica_ids: Iterable[str]) -> None:
        for replica_id in replica_ids:
            replica = self._outbox.replica(replica_id)
            if replica.silent or not replica.told:
                continue
            _log.info("the index wants a report of %r", replica_id)
            self.counters.reports_wanted += 1
            self._outbox.begin_report(replica_id)
            self._resync_wanted(replica_id)

    def _probe(self) -> None:
        """Find out which replica owes a report: each one's next answer tells."""
        stream, now_s = self.counters.streams, time.monotonic()
        if self._probed[0] == stream and now_s - self._probed[1] < PROBE_PAUSE_S:
            return
        self._probed = (stream, now_s)
        self.counters.probes += 1
        for replica in self._outbox.replicas:
            if replica.told:
                self._outbox.put(self._event(EventType.EVICTED, replica.replica_id))
        self._line.wake()

    def _log_counters(self) -> None:
        self._logged_s = time.monotonic()
        seen = " ".join(f"{name}={value}" for name, value in self.counters.seen().items())
        _log.info("publisher: %s", seen or "nothing yet")

    def _event(self, kind: EventType, replica_id: str) -> CacheEvent:
        """A clear, or an eviction that finds nothing."""
        evicted = kind is EventType.EVICTED
        return CacheEvent(
            type=kind,
            replica_id=replica_id,
            model_id=self._model_id,
            tenant_id=self._tenant_id,
            content_hashes=(PROBE_KEY,) if evicted else (),
            hash_scheme=PROBE_SCHEME if evicted else "",
            adapter_scoped=evicted,
        )


def _check_life(replica: Replica) -> None:
    if replica.fenced:
        raise FencedError(
            f"a newer life of {replica.replica_id!r} has published: this one must end"
        )


def _log_first(what: str, results: Sequence[tuple[str, PublishResult]]) -> None:
    """Log what became of a message's events, in one line; all are counted."""
    if results:
        replica_id, result = results[0]
        _log.error(
            "%d events were %s, the first of %r: %s", len(results), what, replica_id, result.error
        )
