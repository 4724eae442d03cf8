"""The publisher and real servers: whatever fails, the index comes to what was said."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.proxy import Proxy
from support.publishing import MODEL, Source, event_of, holds_in, until, until_same
from support.restarting import RestartingServer
from support.server import ServerHere, running
from warmindex.channels import Security
from warmindex.client import IndexClient
from warmindex.errors import InvalidError, UnauthenticatedError, UnavailableError
from warmindex.event import Document, EventType
from warmindex.tokens import new_token
from warmindex_subscriber.publisher import Publisher, PublisherOptions, line

if TYPE_CHECKING:
    from support.redis_server import RedisServer

EMBEDDED = EventType.EMBEDDED


async def test_what_is_published_is_held(server: ServerHere):
    """Many events of many replicas, in few messages, and nobody asks for a report."""
    source = Source(*(f"pod-{n}" for n in range(20)))
    async with source.publishing(server.address, lease_s=30) as publisher:
        await source.say_something(500)
        await until_same(source, server.address)
        counters = publisher.counters
        assert counters.accepted == counters.acknowledged + counters.superseded == 500
        assert publisher.counters.streams == 1
        assert source.reported == []
        assert len(server.store.index.leases) == 20


@pytest.mark.parametrize("count", [1, 3000])
async def test_every_replica_gets_its_lease(server: ServerHere, count: int):
    """More replicas than fit into one message get theirs too, and again on a new stream."""
    names = [f"pod-{n}" for n in range(count)]
    source = Source(*names)
    leases = server.store.index.leases
    async with (
        Proxy(server.server.port) as proxy,
        source.publishing(f"127.0.0.1:{proxy.port}", lease_s=30) as publisher,
    ):
        await source.say(*(event_of(name, EMBEDDED, [1]) for name in names))
        await source.settled()
        await until(lambda: len(leases) == count)
        leases.clear()
        proxy.cut()
        await until(lambda: publisher.counters.streams == 2 and len(leases) == count)


@pytest.mark.parametrize("seed", range(3))
async def test_cut_connections_lose_nothing(server: ServerHere, seed: int):
    """Requests or answers are lost, again and again; each event is applied once, in order."""
    source = Source("pod-1", "pod-2", "pod-3", seed=seed)
    options = {"lease_s": 30, "message_events_max": 3}
    async with (
        Proxy(server.server.port) as proxy,
        source.publishing(f"127.0.0.1:{proxy.port}", **options) as publisher,
    ):
        for cut in range(6):
            await until(lambda: publisher._line.open)
            streams, repeated = publisher.counters.streams, publisher.counters.repeated
            if cut % 2:
                proxy.lose_answers = 1
            else:
                proxy.pause()
            await source.say_something(source.random.randint(1, 40))
            await until(lambda: publisher._outbox.messages_under_way or not publisher._line.open)
            if not cut % 2:
                proxy.cut()
                proxy.go_on()
            await until(lambda before=streams: publisher.counters.streams > before)
            assert publisher.counters.repeated > repeated
        await until_same(source, server.address)
    assert source.reported == [], "numbers had a gap"


async def test_a_stopped_server_slows_the_source_down():
    """The buffer has a bound; the source waits, and goes on when the server does."""
    source = Source("pod-1")
    async with (
        RestartingServer() as server,
        source.publishing(
            server.address, buffer_bytes_max=4096, message_events_max=1, messages_under_way_max=3
        ) as publisher,
    ):
        await source.say_something(10)
        await source.settled()
        assert server.process is not None
        server.process.signal(signal.SIGSTOP)
        try:
            saying = asyncio.create_task(source.say_something(1000))
            await until(lambda: publisher._outbox.held.bytes >= 4096)
            accepted = publisher.counters.accepted
            await asyncio.sleep(0.2)
            assert publisher.counters.accepted == accepted
            # One event may go beyond the bound.
            assert publisher._outbox.held.bytes < 4096 + 1024
            assert publisher._outbox.messages_under_way <= 3
        finally:
            server.process.signal(signal.SIGCONT)
        await saying
        await until_same(source, server.address)
    assert source.reported == [], "nothing was lost"


async def test_an_absent_server_is_waited_for():
    """Nothing listens yet: what is published waits, in order, and arrives."""
    source = Source("pod-1", "pod-2")
    async with RestartingServer() as server:
        await server.kill()
        async with source.publishing(server.address):
            await source.say_something(50)
            await server.start()
            await until_same(source, server.address)
            assert source.reported == []


async def test_a_killed_server_with_a_file_forgets_nothing(tmp_path: Path):
    """kill -9 in the middle, again and again: no report is needed, the numbers go on."""
    source = Source("pod-1", "pod-2")
    async with (
        RestartingServer(f"--journal=sqlite:///{tmp_path / 'journal'}") as server,
        source.publishing(server.address, lease_s=60, message_events_max=4) as publisher,
    ):
        for _ in range(2):
            await source.say_something(100)
            await server.kill()
            await source.say_something(30)
            await server.start()
        await until_same(source, server.address)
        assert source.reported == []
        assert publisher.counters.histories == 0


async def test_a_killed_server_without_a_file_is_told_everything_again():
    """Another history: every replica reports, and goes on from there."""
    source = Source("pod-1", "pod-2")
    async with (
        RestartingServer() as server,
        source.publishing(server.address, lease_s=60) as publisher,
    ):
        await source.say_something(100)
        await until_same(source, server.address)
        await server.kill()
        await source.say_something(30)
        await server.start()
        await until_same(source, server.address)
        assert sorted(source.reported) == ["pod-1", "pod-2"]
        assert publisher.counters.histories == 1
        await source.say_something(30)
        await until_same(source, server.address)
        assert len(source.reported) == 2


async def test_a_quiet_source_is_asked_by_another_history_too():
    """It had nothing to say meanwhile, so that no answer could have told it of a gap."""
    source = Source("pod-1", "pod-2")
    async with RestartingServer() as server, source.publishing(server.address, lease_s=1.0):
        await source.say_something(50)
        await source.settled()
        await server.kill()
        await server.start()
        await until(lambda: len(source.reported) == 2)
        await until_same(source, server.address)


async def test_two_servers_on_one_journal_are_one_index(own_redis: RedisServer):
    """One is killed: the publisher goes on with the other, and no report is needed."""
    source = Source("pod-1", "pod-2")
    journal = f"--journal={own_redis.url}"
    async with (
        RestartingServer(journal) as first,
        RestartingServer(journal) as second,
        source.publishing(
            f"{first.address},{second.address}", lease_s=30, message_events_max=4
        ) as publisher,
    ):
        await source.say_something(200)
        await first.kill()
        await source.say_something(200)
        await until_same(source, second.address)
        assert publisher.counters.histories == 0
        assert source.reported == []


async def test_a_server_that_falls_silent_is_left(
    server: ServerHere, monkeypatch: pytest.MonkeyPatch
):
    """It is connected and answers nothing; the next address answers."""
    monkeypatch.setattr(line, "ANSWER_S_MAX", 0.2)
    source = Source("pod-1")
    async with Proxy(server.server.port) as proxy:
        servers = f"127.0.0.1:{proxy.port},{server.address}"
        async with source.publishing(servers, lease_s=1.0) as publisher:
            await source.say_something(20)
            await source.settled()
            proxy.pause()
            await source.say_something(20)
            await until(lambda: publisher.counters.streams == 2)
            await until_same(source, server.address)
            proxy.go_on()
    assert source.reported == []


async def test_a_journal_that_is_away_is_waited_for(own_redis: RedisServer):
    """Redis is killed and comes back with its data: what was accepted meanwhile arrives."""
    source = Source("pod-1")
    async with (
        RestartingServer(f"--journal={own_redis.url}") as server,
        source.publishing(server.address) as publisher,
    ):
        await source.say_something(50)
        await source.settled()
        own_redis.kill()
        await source.say_something(50)
        await until(lambda: publisher.counters.streams_failed > 0)
        own_redis.start()
        await until_same(source, server.address)
        assert source.reported == []


async def test_refused_events_are_counted_and_their_neighbours_applied(server: ServerHere):
    """An index may refuse what a source may say: here, an event larger than it takes."""
    source = Source("pod-1")
    documents = [Document("n" * 999)] * 4096
    large = event_of("pod-1", EMBEDDED, range(4096), documents=documents)
    async with source.publishing(server.address) as publisher:
        await source.say(event_of("pod-1", EMBEDDED, [1]))
        await publisher.publish([large])
        await source.say(event_of("pod-1", EMBEDDED, [2]))
        await until_same(source, server.address)
        assert publisher.counters.refused == 1
    assert source.reported == []


async def test_close_sends_what_is_left(server: ServerHere):
    """Leaving the block flushes; nothing that was accepted is lost."""
    source = Source("pod-1")
    async with source.publishing(server.address):
        await source.say_something(300)
    assert await holds_in(server.address) == source.holds


async def test_close_gives_up_in_time():
    """With nobody to flush to, closing ends nevertheless, and whoever waits is told."""
    source = Source("pod-1")
    events = [source.something() for _ in range(100)]
    async with source.publishing("127.0.0.1:9", flush_s=0.2, buffer_bytes_max=1000) as publisher:
        saying = asyncio.create_task(publisher.publish(events))
        await until(lambda: publisher._outbox.held.bytes >= 1000)
    with pytest.raises(UnavailableError, match="not open"):
        await saying
    with pytest.raises(UnavailableError, match="not open"):
        await publisher.publish(events)


async def test_a_clear_finds_room():
    """A source that ends can say so, although nothing else has room."""
    source = Source("pod-1")
    async with source.publishing("127.0.0.1:9", flush_s=0.1, buffer_bytes_max=1000) as publisher:
        events = [source.something() for _ in range(100)]
        with suppress(TimeoutError):
            await asyncio.wait_for(publisher.publish(events), 0.1)
        assert publisher._outbox.held.bytes >= 1000
        await publisher.publish([event_of("pod-1", EventType.ALL_CLEARED)])
        assert publisher._outbox.held.events == 1


async def test_one_that_is_never_let_in_ends(tmp_path: Path):
    """A wrong token is told to whoever publishes, and not tried for ever."""
    tokens = tmp_path / "tokens"
    secret, digest = new_token()
    entry = {"name": "pod", "sha256": digest, "tenant": "", "role": "producer"}
    tokens.write_text(json.dumps(entry))
    event = event_of("pod-1", EMBEDDED, [1])
    async with running(tokens=tokens, grace_s=0.2) as server:
        async with (
            IndexClient(server.address, security=Security(token=new_token()[0])) as client,
            Publisher(client, model_id=MODEL, resync_wanted=print) as publisher,
        ):
            with pytest.raises(UnauthenticatedError):
                await publisher.report("pod-1", [event])
            with pytest.raises(UnauthenticatedError):
                await publisher.publish([event])
        async with (
            IndexClient(server.address, security=Security(token=secret)) as client,
            Publisher(client, model_id=MODEL, resync_wanted=print) as publisher,
        ):
            await publisher.publish([event])
            assert await publisher.flush(30)


async def test_events_of_another_model_are_not_taken(server: ServerHere):
    """They would be numbered in the wrong order."""
    async with Source("pod-1").publishing(server.address) as publisher:
        for fields in ({"model_id": "other"}, {"tenant_id": "blue"}):
            with pytest.raises(InvalidError, match="open another one"):
                await publisher.publish([event_of("pod-1", EMBEDDED, [1], **fields)])


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"lease_s": 0.5}, "lease"),
        ({"lease_s": 90_000}, "lease"),
        ({"message_events_max": 0}, "message_events_max"),
        ({"message_events_max": 1025}, "message_events_max"),
    ],
)
def test_options_that_no_server_takes_are_refused(options: dict[str, Any], field: str):
    """At once, with their name, and not by every server for ever."""
    with pytest.raises(InvalidError) as caught:
        PublisherOptions(**options)
    assert caught.value.field == field
