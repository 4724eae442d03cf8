"""The publisher's shell: one stream at a time, to whichever server can be reached.

    publish --> outbox --sender--> stream --> index
                   ^                  |
                   +----receiver------+      heartbeat renews the leases

A publish waits while the outbox is full, so a slow or absent index slows its source down and
loses nothing. Where the index asks for it (a gap, a lease that ended, another history), the
source is told to report; until its report has come, the replica is silent.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from warmindex.client import IndexClient
from warmindex.errors import (
    FencedError,
    OvertakenError,
    QuotaError,
    UnavailableError,
    WarmindexError,
)
from warmindex.event import CacheEvent
from warmindex.index import Outcome
from warmindex.publish_stream import PublishStream, StreamAnswer
from warmindex.record import Lease

from warmindex_subscriber.publisher.outbox import Outbox

_log = logging.getLogger(__name__)

# After a failure the next attempt waits a random part of a pause that doubles up to this.
RETRY_S_FIRST: Final = 0.2
RETRY_S_MAX: Final = 10.0
# A quota that is reached is not free again in a moment.
LIMITED_PAUSE_S: Final = 1.0
# A lease is renewed three times within its life: two messages may be lost.
BEATS_PER_LEASE: Final = 3
# Without leases the stream is still asked now and then for another history.
BEAT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """How much is held back and sent at once.

    `lease_s` 0 takes no lease. `linger_s` is how long a message waits for more events.
    """

    lease_s: float = 30.0
    buffer_bytes_max: int = 16 * 2**20
    message_events_max: int = 256
    message_bytes_max: int = 2**20
    messages_under_way_max: int = 16
    linger_s: float = 0.005
    flush_s: float = 10.0


class Publisher:
    """Publishes for any number of replicas of one model. Use `async with`."""

    def __init__(
        self,
        client: IndexClient,
        *,
        tenant_id: str = "",
        model_id: str,
        resync_wanted: Callable[[str], None] = lambda _replica_id: None,
        options: PublisherOptions | None = None,
    ) -> None:
        """`resync_wanted` is told a replica that owes a `report`."""
        self._client = client
        self._tenant_id = tenant_id
        self._model_id = model_id
        self._resync_wanted = resync_wanted
        self._options = options or PublisherOptions()
        # Microseconds: a life that begins later has a larger epoch.
        self._outbox = Outbox(time.time_ns() // 1000)
        self._stream: PublishStream | None = None
        self._leased: set[str] = set()
        self._history_id = ""
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._room = asyncio.Condition()
        self._limited_until_s = 0.0
        self.refused = 0
        self.dropped = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
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
        """Accept events, in order; wait while there is no room for them.

        Raises FencedError where a newer life of the replica has published.
        """
        for event in events:
            await self._wait_for_room(event.replica_id)
            self._outbox.put(event)
            self._wake.set()

    async def report(self, replica_id: str, entries: Iterable[CacheEvent]) -> None:
        """Replace all that the index has of a replica by `entries`, in one step.

        It includes everything published for the replica before: what of that is still under
        way is dropped. Tried until it succeeds. Raises FencedError.
        """
        replica = self._outbox.replica(replica_id)
        self._outbox.drop(replica_id)
        replica.owes_report = True
        pause_s = RETRY_S_FIRST
        while True:
            try:
                await self._client.report_state(
                    replica_id,
                    self._model_id,
                    entries,
                    tenant_id=self._tenant_id,
                    epoch=replica.epoch,
                    sequence=replica.sequence,
                )
            except (UnavailableError, OvertakenError, QuotaError) as error:
                _log.warning("report of %r, again soon: %s", replica_id, error.message)
                await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - jitter
                pause_s = min(2 * pause_s, RETRY_S_MAX)
            except FencedError:
                replica.fenced = True
                raise
            else:
                break
        replica.owes_report = False
        self._wake.set()
        await self._tell_room()

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything has been answered; False after `timeout_s` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._room:
                await self._room.wait_for(lambda: self._outbox.idle)
        return self._outbox.idle

    async def close(self) -> None:
        """Flush, as far as that goes, and stop."""
        if self._task is None:
            return
        if not await self.flush(self._options.flush_s):
            _log.error("events are left that no index has acknowledged")
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def _wait_for_room(self, replica_id: str) -> None:
        outbox, replica = self._outbox, self._outbox.replica(replica_id)
        full = self._options.buffer_bytes_max
        if outbox.queued_bytes + outbox.unanswered_bytes >= full and not replica.owes_report:
            async with self._room:
                await self._room.wait_for(
                    lambda: (
                        outbox.queued_bytes + outbox.unanswered_bytes < full
                        or replica.owes_report
                        or replica.fenced
                    )
                )
        if replica.fenced:
            raise FencedError(f"a newer life of {replica_id!r} has published: this one must end")

    async def _tell_room(self) -> None:
        async with self._room:
            self._room.notify_all()

    # ---- the stream --------------------------------------------------------------------

    async def _run(self) -> None:
        """Keep a stream open, on one server after the other, for ever."""
        pause_s = RETRY_S_FIRST
        while True:
            stream = self._client.publish_stream()
            began_s = time.monotonic()
            try:
                await self._exchange(stream)
            except WarmindexError as error:
                _log.warning("publishing to %s failed: %s", stream.address, error.message)
            finally:
                await stream.close()
                self._leased.clear()
                self._outbox.disconnected()
            self._client.move_on(stream.address)
            if time.monotonic() - began_s > RETRY_S_MAX:
                pause_s = RETRY_S_FIRST
            await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - jitter, no secret
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def _exchange(self, stream: PublishStream) -> None:
        """Send and receive until the stream ends, which raises."""
        sender = asyncio.create_task(self._send_all(stream))
        receiver = asyncio.create_task(self._receive_all(stream))
        try:
            done, _ = await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in (sender, receiver):
                task.cancel()
                with suppress(asyncio.CancelledError, WarmindexError):
                    await task

    async def _send_all(self, stream: PublishStream) -> None:
        options, outbox = self._options, self._outbox
        beat_s = options.lease_s / BEATS_PER_LEASE if options.lease_s else BEAT_S
        await self._send(stream, [])
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), beat_s)
            beating = not self._wake.is_set()
            self._wake.clear()
            if beating:
                await self._send(stream, [])
            if time.monotonic() >= self._limited_until_s:
                outbox.resend_limited()
            if outbox.queued_bytes < options.message_bytes_max and options.linger_s:
                await asyncio.sleep(options.linger_s)
            while outbox.messages_unanswered < options.messages_under_way_max:
                events = outbox.take(options.message_events_max, options.message_bytes_max)
                if not events:
                    break
                await self._send(stream, events)

    async def _send(self, stream: PublishStream, events: Sequence[CacheEvent]) -> None:
        """Send a message, with leases for the replicas that have none on this stream yet."""
        if not events:
            self._outbox.beat()
        leases: list[Lease] = []
        if self._options.lease_s:
            fresh = [each for each in self._outbox.replicas if each not in self._leased]
            ttl_ms = int(self._options.lease_s * 1000)
            leases = [
                Lease(replica_id=each, tenant_id=self._tenant_id, ttl_ms=ttl_ms) for each in fresh
            ]
            self._leased.update(fresh)
        await stream.send(events, leases)

    async def _receive_all(self, stream: PublishStream) -> None:
        while True:
            answer = await stream.receive()
            self._take_answer(answer)
            await self._tell_room()
            self._wake.set()

    def _take_answer(self, answer: StreamAnswer) -> None:
        if self._history_id and answer.history_id != self._history_id:
            _log.warning("the index has another history: everything is reported again")
            self._ask_for_reports(self._outbox.replicas)
        self._history_id = answer.history_id
        wanted = set()
        for replica_id, result in self._outbox.answered(answer.results):
            if result.outcome is Outcome.REFUSED:
                self.refused += 1
                _log.error("the index refused an event of %r: %s", replica_id, result.error)
            elif result.outcome is Outcome.FENCED:
                _log.error("%r is fenced: %s", replica_id, result.error)
            elif result.outcome is Outcome.LIMITED:
                self._limited_until_s = time.monotonic() + LIMITED_PAUSE_S
                _log.warning("the index is full for %r: %s", replica_id, result.error)
                asyncio.get_running_loop().call_later(LIMITED_PAUSE_S, self._wake.set)
            if result.resync_required:
                wanted.add(replica_id)
        if answer.resync_required and not answer.results:
            # Some producer of the stream's leases; a message without events names none.
            wanted.update(self._outbox.replicas)
        self._ask_for_reports(wanted)

    def _ask_for_reports(self, replica_ids: Iterable[str]) -> None:
        for replica_id in list(replica_ids):
            replica = self._outbox.replica(replica_id)
            if not replica.owes_report and not replica.fenced:
                replica.owes_report = True
                self._outbox.drop(replica_id)
                self._resync_wanted(replica_id)
