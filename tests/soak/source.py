"""The package's publisher, and a source beside it that says random things."""

from __future__ import annotations

import asyncio
from typing import Any

from soak.evidence import Evidence
from soak.worker import Orders, run, say
from support.publishing import Source, event_of
from warmindex.event import EventType

MESSAGE_EVENTS_MAX = 8
BUFFER_BYTES_MAX = 50_000


async def speak(source: Source, orders: Orders) -> None:
    """Say things until told to stop, and now and then report without being asked.

    A call that has begun comes to its end: a source that breaks off in the middle of one no
    longer knows what it has said.
    """
    told = asyncio.create_task(orders.next())
    while not told.done():
        await source.say_something(source.random.randint(1, 20))
        if source.random.random() < 0.05:
            await source.report(source.random.choice(source.replica_ids))
        await asyncio.sleep(source.random.random() / 10)


async def main(settings: dict[str, Any], evidence: Evidence, orders: Orders) -> None:
    """Speak until told to finish; then tell what is held in the end."""
    source = Source(*settings["replicas"], seed=settings["seed"])
    options = {
        "lease_s": settings["lease_s"],
        "message_events_max": MESSAGE_EVENTS_MAX,
        "buffer_bytes_max": BUFFER_BYTES_MAX,
    }
    async with source.publishing(",".join(settings["servers"]), **options) as publisher:
        # What a life before has left is nobody's.
        await source.say(*(event_of(each, EventType.ALL_CLEARED) for each in settings["replicas"]))
        say("begun")
        await speak(source, orders)
        await source.settled()
        # Whoever has lost records has told so by now, on whichever server the line is.
        await source.say(event_of(source.replica_ids[0], EventType.EVICTED, [10**6]))
        await source.settled()
        assert publisher.counters.refused == 0
        entries = [
            [*place.key, place.content_hash.hex(), hold.replica_id, int(hold.tier)]
            for place, holds in source.holds.items()
            for hold in holds
        ]
        evidence.note("truth", entries=entries)
        say("finished")
        await orders.next()


if __name__ == "__main__":
    run(main)
