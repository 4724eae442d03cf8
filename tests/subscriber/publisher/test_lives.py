"""Leases, reports and lives of a publisher, against a real server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.proxy import Proxy
from support.publishing import MODEL, Source, event_of, holds_in, until, until_same
from support.restarting import RestartingServer
from support.server import ServerHere
from warmindex.client import IndexClient
from warmindex.errors import FencedError
from warmindex.event import EventType
from warmindex.index import listing
from warmindex.publish_stream import PublishStream
from warmindex_subscriber.publisher.line import BEAT_S_MAX

EMBEDDED, CLEARED = EventType.EMBEDDED, EventType.ALL_CLEARED


def entries_in(server: ServerHere) -> int:
    """How many entries somebody holds."""
    return listing.entries_total(server.store.index)


async def test_holds_live_as_long_as_their_publisher(server: ServerHere):
    """A quiet publisher renews its leases; when it is gone, its holds go."""
    source = Source("pod-1", "pod-2")
    await server.client.publish(event_of("pod-9", EMBEDDED, [7]))
    async with source.publishing(server.address, lease_s=1.0):
        await source.say(event_of("pod-1", EMBEDDED, [1]), event_of("pod-2", EMBEDDED, [2]))
        await source.settled()
        await asyncio.sleep(2.5)
        assert entries_in(server) == 3
    await until(lambda: entries_in(server) == 1)
    await until(lambda: not server.store.index.leases)


async def test_after_a_lease_has_ended_everything_is_reported(server: ServerHere):
    """The connection was gone for too long; the replicas that lost holds report, no other."""
    source = Source("pod-1", "pod-2", "pod-3")
    async with (
        Proxy(server.server.port) as proxy,
        source.publishing(f"127.0.0.1:{proxy.port}", lease_s=1.0) as publisher,
    ):
        await source.say(
            event_of("pod-1", EMBEDDED, [1]),
            event_of("pod-2", EMBEDDED, [2]),
            event_of("pod-3", CLEARED),
        )
        await source.settled()
        for times in (1, 2):
            proxy.pause()
            await until(lambda: entries_in(server) == 0)
            proxy.cut()
            proxy.go_on()
            await until(lambda: entries_in(server) == 2)
            await until_same(source, server.address)
            assert sorted(source.reported) == sorted(["pod-1", "pod-2"] * times)
            assert publisher.counters.probes == times


async def test_another_models_debt_is_not_ours(server: ServerHere):
    """The same replica owes a report in another model: ours are probed, and do not report."""
    source = Source("pod-1", "pod-2")
    for sequence in (1, 5):
        fields = {"model_id": "acme/draft", "epoch": 1, "sequence": sequence}
        await server.client.publish(event_of("pod-1", EMBEDDED, [1], **fields))
    async with source.publishing(server.address, lease_s=1.0) as publisher:
        await source.say_something(20)
        await until(lambda: publisher.counters.probes == 1)
        await asyncio.sleep(1.0)
        await source.say_something(20)
        await source.settled()
        found = {
            place: holds
            for place, holds in (await holds_in(server.address)).items()
            if place.key.model_id == MODEL
        }
        assert found == source.holds
        assert publisher.counters.probes == 1
    assert source.reported == []


async def test_a_new_life_reports_what_is_left_of_the_last(server: ServerHere):
    """Its first event is not ALL_CLEARED, and there are holds of the last life."""
    first, second = Source("pod-1"), Source("pod-1")
    async with first.publishing(server.address):
        await first.say(event_of("pod-1", EMBEDDED, [1, 2, 3]))
    async with second.publishing(server.address):
        await second.say(event_of("pod-1", EMBEDDED, [3, 4]))
        await until(lambda: second.reported == ["pod-1"])
        await until_same(second, server.address)


async def test_a_life_that_begins_with_a_clear_needs_no_report(server: ServerHere):
    """It says itself that nothing of the last life counts."""
    first, second = Source("pod-1"), Source("pod-1")
    async with first.publishing(server.address):
        await first.say(event_of("pod-1", EMBEDDED, [1, 2, 3]))
    async with second.publishing(server.address):
        await second.say(event_of("pod-1", CLEARED), event_of("pod-1", EMBEDDED, [4]))
        await until_same(second, server.address)
    assert second.reported == []


async def test_an_older_life_is_fenced(server: ServerHere):
    """It learns so, says so to its source, changes nothing, and keeps no lease alive."""
    old, new = Source("pod-1", "pod-2"), Source("pod-1")
    async with old.publishing(server.address, lease_s=1.0) as publisher:
        await old.say(event_of("pod-1", EMBEDDED, [1]), event_of("pod-2", EMBEDDED, [2]))
        await old.settled()
        async with new.publishing(server.address, lease_s=1.0):
            await new.say(event_of("pod-1", CLEARED), event_of("pod-1", EMBEDDED, [9]))
            await new.settled()
            await publisher.publish([event_of("pod-1", EMBEDDED, [1])])
            await until(lambda: publisher.counters.fenced == 1)
            with pytest.raises(FencedError, match="newer life of 'pod-1'"):
                await publisher.publish([event_of("pod-1", EMBEDDED, [1])])
            with pytest.raises(FencedError):
                await publisher.report("pod-1", [])
            # Its other replica goes on.
            await publisher.publish([event_of("pod-2", EMBEDDED, [3])])
            await old.settled()
        # The new life is gone; the old one must not keep its holds alive.
        await until(lambda: {lease[1] for lease in server.store.index.leases} == {"pod-2"})
        held = {
            int.from_bytes(place.content_hash, "big"): {hold.replica_id for hold in holds}
            for place, holds in (await holds_in(server.address)).items()
        }
        assert held == {2: {"pod-2"}, 3: {"pod-2"}}


async def test_a_fenced_replica_is_not_asked_for_anything():
    """Another history does not know of the newer life; the older one does."""
    old = Source("pod-1", "pod-2")
    async with RestartingServer() as server, old.publishing(server.address) as publisher:
        await old.say(event_of("pod-1", CLEARED), event_of("pod-2", EMBEDDED, [2]))
        await old.settled()
        async with IndexClient(server.address) as client:
            await client.publish(event_of("pod-1", CLEARED, epoch=2**62, sequence=1))
        await old.say(event_of("pod-1", CLEARED))
        await until(lambda: publisher.counters.fenced == 1)
        await server.kill()
        await server.start()
        await until(lambda: publisher.counters.reports == 1)
        await until_same(old, server.address)
    assert old.reported == ["pod-2"]
    assert publisher.counters.reports_wanted == 1


async def test_a_report_of_an_older_life_is_fenced(server: ServerHere):
    """A report tells it as an event does."""
    await server.client.publish(event_of("pod-1", CLEARED, epoch=2**62, sequence=1))
    async with Source("pod-1").publishing(server.address) as publisher:
        with pytest.raises(FencedError):
            await publisher.report("pod-1", [event_of("pod-1", EMBEDDED, [1])])
        with pytest.raises(FencedError):
            await publisher.publish([event_of("pod-1", EMBEDDED, [1])])


async def test_a_gap_is_healed_by_a_report(server: ServerHere):
    """Somebody else has used a number of this life; the index asks, the source reports."""
    source = Source("pod-1")
    async with source.publishing(server.address) as publisher:
        await source.say(event_of("pod-1", EMBEDDED, [1]))
        await source.settled()
        gap = {"epoch": publisher._outbox.epoch, "sequence": 7}
        await server.client.publish(event_of("pod-1", EMBEDDED, [66], **gap))
        for key in range(2, 20):
            await source.say(event_of("pod-1", EMBEDDED, [key]))
        await until(lambda: source.reported == ["pod-1"])
        await until_same(source, server.address)


async def test_a_report_comes_after_its_lease(server: ServerHere, monkeypatch: pytest.MonkeyPatch):
    """The first thing that a replica says is a report: there is no hold without a lease."""
    send = PublishStream.send

    async def send_slowly(*arguments: Any) -> None:
        await asyncio.sleep(0.1)
        await send(*arguments)

    monkeypatch.setattr(PublishStream, "send", send_slowly)
    source = Source("pod-1")
    async with source.publishing(server.address, lease_s=300.0) as publisher:
        await until(lambda: publisher._line.open)
        for key in range(9):
            source.truth.apply(key + 1, event_of("pod-1", EMBEDDED, [key]))
        # Long before the next beat.
        async with asyncio.timeout(BEAT_S_MAX / 2):
            await source.report("pod-1")
        generation = server.store.index.leases["", "pod-1"].generation
        assert generation < server.store.revision
        await source.say(event_of("pod-1", EMBEDDED, [9]))
        await until_same(source, server.address)
    assert source.reported == ["pod-1"]


async def test_a_report_that_is_cut_off_is_made_again(server: ServerHere):
    """Its entries are gone through anew; what was published before is in it."""
    source = Source("pod-1")
    async with (
        Proxy(server.server.port) as proxy,
        source.publishing(f"127.0.0.1:{proxy.port}", lease_s=30.0) as publisher,
    ):
        await source.say_something(300)
        proxy.pause()
        reporting = asyncio.create_task(source.report("pod-1"))
        await asyncio.sleep(0.1)
        proxy.cut()
        proxy.go_on()
        await reporting
        await source.say_something(30)
        await until_same(source, server.address)
        assert publisher.counters.reports == 1


async def test_a_report_that_is_too_large_is_published_in_many_steps(
    server: ServerHere, monkeypatch: pytest.MonkeyPatch
):
    """The index takes no report of that size: it is cleared, and told everything."""
    monkeypatch.setattr("warmindex_server.reports.staging.REPORT_BYTES_MAX", 1000)
    source = Source("pod-1")
    async with source.publishing(server.address, lease_s=30.0) as publisher:
        for key in range(100):
            source.truth.apply(key + 1, event_of("pod-1", EMBEDDED, [key]))
        await server.client.publish(event_of("pod-1", EMBEDDED, [1000]))
        await source.report("pod-1")
        await source.say_something(10)
        await until_same(source, server.address)
        assert publisher.counters.reports == 0
        assert publisher.counters.accepted > 10
