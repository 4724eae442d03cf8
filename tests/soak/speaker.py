"""A producer that numbers its events, retries them, and delivers them as badly as it may.

Not the package's publisher, but the contract's rules in their plainest form: send until there
is an answer, report where one is asked for. On the way it sends some twice, some in the wrong
order, and some to two servers at once. Each life takes a newer epoch and begins with
ALL_CLEARED or a report.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import grpc
from soak import words
from soak.evidence import Evidence
from soak.worker import Orders, run, say, until_told
from support.model import PlainIndex
from warmindex import wire
from warmindex.client import IndexClient
from warmindex.errors import WarmindexError
from warmindex.event import CacheEvent, EventType
from warmindex.index import Outcome
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub

CALL_S_MAX = 3.0
# A server is back within seconds, and so must be whoever speaks to it.
RECONNECT = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 300),
)
PAUSE_S_MAX = 0.05
# Copies of what has long been acknowledged are delivered too.
REMEMBERED = 30
# Where the index cannot be brought to rest in so many attempts, something is wrong.
ATTEMPTS_MAX = 300

USED_UP = (Outcome.APPLIED, Outcome.UNCHANGED, Outcome.DUPLICATE, Outcome.REFUSED)


class Speaker:
    """One replica of a tenant."""

    def __init__(self, settings: dict[str, Any], evidence: Evidence) -> None:
        self.replica_id, self.tenant_id = settings["replica"], settings["tenant"]
        self.random = random.Random(settings["seed"])
        self.evidence = evidence
        self.servers: list[str] = settings["servers"]
        self.channels = [grpc.aio.insecure_channel(each, RECONNECT) for each in self.servers]
        self.client = IndexClient(",".join(self.servers), timeout_s=CALL_S_MAX)
        self.truth = PlainIndex()
        self.epoch = time.time_ns() // 1000
        self.sequence = 0
        self.pending: list[CacheEvent] = []
        self.done: deque[CacheEvent] = deque(maxlen=REMEMBERED)
        self.history_id = ""
        self.owes_report = self.random.random() < 0.5
        if not self.owes_report:
            self.say(CacheEvent(type=EventType.ALL_CLEARED, **self.names))

    @property
    def names(self) -> dict[str, str]:
        """Who it is."""
        return {
            "replica_id": self.replica_id, "tenant_id": self.tenant_id, "model_id": words.MODEL
        }  # fmt: skip

    def say(self, event: CacheEvent) -> None:
        """Number an event; it is true from now on."""
        self.truth.apply(self.sequence, event)
        self.sequence += 1
        self.pending.append(replace(event, epoch=self.epoch, sequence=self.sequence))

    async def speak(self) -> None:
        """Say something, for ever."""
        while True:
            for _ in range(self.random.randint(1, 6)):
                self.say(words.something(self.random, self.replica_id, self.tenant_id))
            while self.pending or self.owes_report:
                await self.step()
            await asyncio.sleep(self.random.random() * PAUSE_S_MAX)

    async def step(self) -> None:
        """One attempt at what is owed, a report before anything else."""
        if self.owes_report:
            await self.report()
        else:
            await self.deliver()

    # ---- events --------------------------------------------------------------------------

    async def deliver(self) -> None:
        """Send what has no answer, in one of many ways."""
        events = list(self.pending)
        way = self.random.random()
        if way < 0.15 and self.done:
            events = self.random.choices(self.done, k=3) + events + events[:2]
        elif way < 0.22:
            self.random.shuffle(events)
        channels = self.random.sample(self.channels, k=min(2, len(self.channels)))
        if way < 0.85:
            del channels[1:]
        if way > 0.92:
            channels = channels[:1] * 2  # The same ones twice, on two streams at once.
        told = await asyncio.gather(*(self.send(each, events) for each in channels))
        if not any(told):
            await asyncio.sleep(0.05)

    async def send(self, channel: grpc.aio.Channel, events: Sequence[CacheEvent]) -> bool:
        """Send events over one stream, in a few messages; whether all were answered."""
        size = self.random.randint(1, 4)
        groups = [events[at : at + size] for at in range(0, len(events), size)]
        requests = [
            pb.PublishEventsRequest(events=[wire.event_to_wire(each) for each in group])
            for group in groups
        ]
        call = IndexServiceStub(channel).PublishEvents(iter(requests), timeout=CALL_S_MAX)
        try:
            async with asyncio.timeout(2 * CALL_S_MAX):
                for group in groups:
                    answer = await call.read()
                    if answer is grpc.aio.EOF:
                        return False
                    for event, result in zip(group, answer.results, strict=True):
                        self.answered(event, wire.result_from_wire(result, answer.history_id))
        except grpc.aio.AioRpcError as error:
            self.evidence.note("failed", code=error.code().name, what=error.details())
            return False
        except TimeoutError:
            return False
        finally:
            call.cancel()
        return True

    def answered(self, event: CacheEvent, result: Any) -> None:
        """An event's answer."""
        number = {"epoch": event.epoch, "sequence": event.sequence}
        outcome = Outcome(result.outcome)
        self.evidence.note(
            "ack",
            **number,
            **self.names,
            revision=result.revision,
            outcome=outcome.name,
            history=result.history_id,
        )
        if outcome not in USED_UP:
            raise AssertionError(f"{event} was answered {result}")
        if event in self.pending:
            self.pending.remove(event)
            self.done.append(event)
        self.owes_report |= result.resync_required
        self.know(result.history_id)

    def know(self, history_id: str) -> None:
        """Another history may have lost everything."""
        self.owes_report |= self.history_id not in ("", history_id)
        self.history_id = history_id

    # ---- reports ---------------------------------------------------------------------------

    async def report(self) -> None:
        """Say all that is held; whatever has no answer yet is in it."""
        entries = list(words.held(self.truth, self.replica_id, self.tenant_id))
        try:
            before = (await self.client.server_info()).history_id
            await self.client.report_state(
                self.replica_id,
                words.MODEL,
                entries,
                tenant_id=self.tenant_id,
                epoch=self.epoch,
                sequence=self.sequence,
                timeout_s=CALL_S_MAX,
            )
        except WarmindexError as error:
            if error.status not in RETRIED:
                raise
            await asyncio.sleep(0.05)
            return
        self.pending.clear()
        self.owes_report = False
        self.history_id = before

    async def finish(self) -> None:
        """Come to rest: everything answered, nothing owed, every server's history known."""
        calm = 0
        for _ in range(ATTEMPTS_MAX):
            await self.step() if self.pending or self.owes_report else await self.probe()
            calm = 0 if self.pending or self.owes_report else calm + 1
            if calm > 2 * len(self.servers):
                return
        raise AssertionError(f"{self.replica_id} never comes to rest")

    async def probe(self) -> None:
        """Evict what is not there, to hear whether anything is owed."""
        self.say(
            CacheEvent(
                type=EventType.EVICTED,
                content_hashes=[words.key(words.KEYS)],
                hash_scheme=words.SCHEME,
                adapter_scoped=True,
                **self.names,
            )
        )
        await self.deliver()


RETRIED = ("UNAVAILABLE", "ABORTED")


async def main(settings: dict[str, Any], evidence: Evidence, orders: Orders) -> None:
    """Speak until told to finish; then tell what is held in the end."""
    speaker = Speaker(settings, evidence)
    say("begun")
    await until_told(orders, speaker.speak())
    await speaker.finish()
    entries = [
        [*place.key, place.content_hash.hex(), speaker.replica_id, int(tier)]
        for place, tier in speaker.truth.held_by(speaker.tenant_id, words.MODEL, speaker.replica_id)
    ]
    evidence.note("truth", entries=entries)
    say("finished")
    await orders.next()


if __name__ == "__main__":
    run(main)
