"""The line to the index: one stream after the other, to whichever server can be reached.

    greet      set the leases of all replicas, and learn which history the index has, before
               anything else is sent
    exchange   a sender and a receiver; several messages may be under way
    stale      the same server again, with another stream
    failure    everything that is not answered waits again; a pause; the next server. One that
               is never let in ends instead: its credential, or its address, is wrong

What an answer means is for the publisher to decide: it is told each one.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from warmindex import limits
from warmindex.client import IndexClient
from warmindex.errors import (
    ForbiddenError,
    InvalidError,
    NotBuiltError,
    UnauthenticatedError,
    UnavailableError,
    WarmindexError,
    out_of_range,
)
from warmindex.publish_stream import PublishStream, StreamAnswer

from warmindex_subscriber.publisher.counters import PublisherCounters
from warmindex_subscriber.publisher.leases import Leases
from warmindex_subscriber.publisher.outbox import Outbox

_log = logging.getLogger(__name__)

# After a failure the next attempt waits a random part of a pause that doubles up to this. It may
# be short: connections are made at gRPC's own pace, and until there is one an attempt costs
# nothing. A fleet must not come all at once.
RETRY_S_FIRST: Final = 0.1
RETRY_S_MAX: Final = 2.0
# What no time mends, where it is the first answer that there ever was. Later it may be a mistake
# that somebody is about to mend, and what waits is worth waiting for that.
NEVER_LET_IN: Final = (InvalidError, UnauthenticatedError, ForbiddenError, NotBuiltError)
# The same failure over and over is told once in so long.
TOLD_AGAIN_S: Final = 60.0
# A quota that is reached is not free again in a moment.
LIMITED_PAUSE_S: Final = 1.0
# A lease is renewed three times within its life: two messages may be lost.
BEATS_PER_LEASE: Final = 3
# Without leases the stream is still asked now and then for another history.
BEAT_S_MAX: Final = 30.0
# A server that is connected and does not answer in this time is left for the next one.
ANSWER_S_MAX: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherOptions:
    """How much is held back and sent at once.

    `lease_s` 0 takes no lease. A message that could take more waits for it `linger_s`, but
    not where none is under way. `flush_s` is how long `close` waits for the last answers.
    """

    lease_s: float = 30.0
    buffer_bytes_max: int = 16 * limits.MIB
    message_events_max: int = 256
    message_bytes_max: int = limits.MIB
    messages_under_way_max: int = 16
    linger_s: float = 0.005
    flush_s: float = 10.0

    def __post_init__(self) -> None:
        """Raise InvalidError for what the index would refuse."""
        least, most = limits.LEASE_TTL_S_MIN, limits.LEASE_TTL_S_MAX
        if self.lease_s and not least <= self.lease_s <= most:
            raise out_of_range("lease", f"{self.lease_s:g} s", f"0, or {least:g} s to {most:g} s")
        if not 1 <= self.message_events_max <= limits.EVENTS_PER_MESSAGE_MAX:
            raise out_of_range(
                "message_events_max",
                self.message_events_max,
                f"1 to {limits.EVENTS_PER_MESSAGE_MAX}",
            )

    @property
    def beat_s(self) -> float:
        """The longest time without a message."""
        return min(self.lease_s / BEATS_PER_LEASE or BEAT_S_MAX, BEAT_S_MAX)


class Line:
    """Carries an outbox's events to the index; `answered` is told each answer, in order."""

    def __init__(
        self,
        client: IndexClient,
        outbox: Outbox,
        leases: Leases,
        options: PublisherOptions,
        counters: PublisherCounters,
        answered: Callable[[StreamAnswer], None],
    ) -> None:
        self._client = client
        self._outbox = outbox
        self._leases = leases
        self._options = options
        self._counters = counters
        self._answered = answered
        self._wake = asyncio.Event()
        self._limited_until_s: float | None = None
        self._pause_s = RETRY_S_FIRST
        self._told = ("", 0.0)
        # Whether the history of the present stream is known, or of any stream was.
        self.open = self._was_open = False

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    def pause_limited(self) -> None:
        """A quota is reached: what it hit is sent again, but not at once."""
        self._limited_until_s = time.monotonic() + LIMITED_PAUSE_S

    async def run(self) -> None:
        """Keep a stream open, on one server after the other, until cancelled.

        Raises one of `NEVER_LET_IN` where it never was.
        """
        while True:
            stream = self._client.publish_stream()
            self._counters.streams += 1
            try:
                await self._greet(stream)
                await self._exchange(stream)
            except WarmindexError as error:
                self._counters.streams_failed += 1
                if isinstance(error, NEVER_LET_IN) and not self._was_open:
                    raise
                self._tell(f"publishing to {stream.address} failed: {error.message}")
            else:
                continue
            finally:
                self._end(stream)
            self._client.move_on(stream.address)
            await asyncio.sleep(random.uniform(0, self._pause_s))  # noqa: S311 - jitter
            self._pause_s = min(2 * self._pause_s, RETRY_S_MAX)

    def _end(self, stream: PublishStream) -> None:
        stream.close()
        self.open = False
        self._limited_until_s = None
        self._leases.disconnected()
        self._outbox.disconnected()

    async def _greet(self, stream: PublishStream) -> None:
        messages = 1 + len(self._outbox.replicas) // limits.LEASES_PER_MESSAGE_MAX
        for _ in range(messages):
            await self._beat(stream)
        for _ in range(messages):
            await self._receive(stream)
        self.open = self._was_open = True
        _log.info("publishing to %s", stream.address)

    async def _exchange(self, stream: PublishStream) -> None:
        """Send and receive until the stream has to be renewed, or ends, which raises."""
        sender = asyncio.create_task(self._send_all(stream))
        receiver = asyncio.create_task(self._receive_all(stream))
        try:
            done, _ = await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
            # The receiver's error is the better one: it knows the status.
            for task in sorted(done, key=lambda task: task is sender):
                task.result()
        finally:
            for task in (sender, receiver):
                task.cancel()
            await asyncio.wait((sender, receiver))
            for task in (sender, receiver):
                with suppress(asyncio.CancelledError, WarmindexError):
                    task.result()

    # ---- out ---------------------------------------------------------------------------

    async def _send_all(self, stream: PublishStream) -> None:
        options, outbox = self._options, self._outbox
        sent_s = time.monotonic()
        while not outbox.stale:
            self._wake.clear()
            if await self._send_some(stream) or await self._send_leases(stream):
                sent_s = time.monotonic()
                continue
            due_s = sent_s + options.beat_s
            if self._limited_until_s is not None:
                due_s = min(due_s, self._limited_until_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(due_s - time.monotonic()):
                    await self._wake.wait()
            if self._is_limited_no_more():
                outbox.resend_limited()
            if time.monotonic() >= sent_s + options.beat_s:
                await self._beat(stream)
                sent_s = time.monotonic()

    async def _send_some(self, stream: PublishStream) -> bool:
        """Send a message, if there is something to send, and room under way for it."""
        options, outbox = self._options, self._outbox
        if not outbox.waiting.events or (
            outbox.messages_under_way >= options.messages_under_way_max
        ):
            return False
        full = (
            outbox.waiting.events >= options.message_events_max
            or outbox.waiting.bytes >= options.message_bytes_max
        )
        if outbox.messages_under_way and not full:
            await asyncio.sleep(options.linger_s)
        parts = outbox.take(options.message_events_max, options.message_bytes_max)
        if not parts:
            return False
        await stream.send(parts, self._leases.next(outbox.replicas))
        return True

    async def _send_leases(self, stream: PublishStream) -> bool:
        """Set the leases of replicas that have nothing to send: one may be about to report."""
        if not self._leases.wanting(self._outbox.replicas):
            return False
        await self._beat(stream)
        return True

    async def _beat(self, stream: PublishStream) -> None:
        self._outbox.beat()
        await stream.send((), self._leases.next(self._outbox.replicas))

    def _is_limited_no_more(self) -> bool:
        if self._limited_until_s is None or time.monotonic() < self._limited_until_s:
            return False
        self._limited_until_s = None
        return True

    # ---- in ----------------------------------------------------------------------------

    async def _receive_all(self, stream: PublishStream) -> None:
        while True:
            await self._receive(stream)
            # It works: whatever fails next is another failure.
            self._pause_s = RETRY_S_FIRST
            self._wake.set()

    async def _receive(self, stream: PublishStream) -> None:
        try:
            async with asyncio.timeout(self._options.beat_s + ANSWER_S_MAX):
                answer = await stream.receive()
        except TimeoutError:
            raise UnavailableError(f"no answer in time from {stream.address}") from None
        self._leases.answered()
        self._answered(answer)

    def _tell(self, failure: str) -> None:
        """Log a failure: at once where it is another one, else now and then."""
        last, told_s = self._told
        now_s = time.monotonic()
        if failure != last or now_s - told_s >= TOLD_AGAIN_S:
            self._told = (failure, now_s)
            _log.warning("%s", failure)
        else:
            _log.debug("%s", failure)
