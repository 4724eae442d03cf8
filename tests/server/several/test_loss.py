"""A Redis that is away, empty, older than it was, or shared with others: noticed and healed."""

from __future__ import annotations

import asyncio
import re

import aiohttp
import grpc
import pytest
from support.claiming import ask, publish
from support.journals import RedisPlace, batches_of
from support.questions import content, same_answers
from support.server import ServerHere, fault, running, server_process
from support.serving import embedded, state_names
from support.several import plain_of, processes_on, servers_on, stubs_at, until
from support.watching import LIVE, RESET, Watcher
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.journal.base import JournalStartError


async def ready(server: ServerHere) -> tuple[int, str]:
    """What /readyz says."""
    url = f"http://127.0.0.1:{server.server.http_port}/readyz"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, (await answer.json())["state"]


async def history_of(server: ServerHere) -> str:
    return (await server.stub.GetServerInfo(pb.GetServerInfoRequest())).history_id


async def refused(server: ServerHere, number: int = 99) -> None:
    """A publish fails for now, and says when to come again."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish(server.stub, embedded([number]))
    found = fault(caught.value)
    assert found.status == "UNAVAILABLE"
    assert found.reason == "ERROR_REASON_JOURNAL_UNAVAILABLE"
    assert found.retry_after_s


async def found(server: ServerHere, *numbers: int) -> list[str]:
    return state_names(await server.stub.GetEmbeddings(ask(numbers)))


async def all_well(servers: list[ServerHere]) -> None:
    for server in servers:
        await until(lambda server=server: not server.store.problem)
        assert await ready(server) == (200, "serving")


# ---- away --------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["kill", pytest.param("pause", marks=pytest.mark.slow)])
async def test_an_outage_is_told_and_outlived(own_redis, way):
    """Reads go on, publishes fail with a hint, /readyz says so; then all is as before."""
    async with servers_on(own_redis.url) as servers, Watcher(servers[1].address) as watcher:
        one, other = servers
        await watcher.bookmark(LIVE)
        first = await publish(one.stub, embedded([1]))
        await watcher.until(first.revision)
        history = await history_of(one)
        getattr(own_redis, way)()
        try:
            for server in servers:
                await until(lambda server=server: server.store.problem)
                status, state = await ready(server)
                assert status == 503
                assert "journal away" in state
                await refused(server)
                assert await found(server, 1, 2) == ["FOUND", "ABSENT"]
        finally:
            own_redis.start() if way == "kill" else own_redis.go_on()
        await all_well(servers)
        second = await publish(other.stub, embedded([2]))
        await watcher.until(second.revision)
        assert watcher.kinds().count(RESET) == 1
        assert [await history_of(server) for server in servers] == [history] * 2
        same_answers(other.store.index, await plain_of(own_redis.url))


@pytest.mark.slow
async def test_publishers_do_not_wait_out_an_outage(own_redis):
    """Those whose record is on its way hear so as well: a hundred at once, in a moment."""
    async with servers_on(own_redis.url, count=1) as (server,):
        await publish(server.stub, embedded([1]))
        own_redis.pause()
        try:
            calls = [asyncio.create_task(refused(server, number)) for number in range(100)]
            await asyncio.gather(*calls)
            await until(lambda: server.store.problem)
            await refused(server)
        finally:
            own_redis.go_on()
        await all_well([server])
        await publish(server.stub, embedded([2]))
        plain = await plain_of(own_redis.url)
        await until(lambda: server.store.revision == plain.revision)
        same_answers(server.store.index, plain)


# ---- lost --------------------------------------------------------------------------------


async def check_new_history(
    servers: list[ServerHere], watchers: list[Watcher], old: str, url: str
) -> None:
    """All are in one new history, watchers have what is there, and everything works."""
    for server in servers:
        await until(lambda server=server: server.store.history_id != old)
    await all_well(servers)
    assert len({await history_of(server) for server in servers}) == 1
    response = await servers[0].stub.PublishEvent(pb.PublishEventRequest(event=embedded([7])))
    assert response.history_id == await history_of(servers[1])
    plain = await plain_of(url)
    for server in servers:
        await until(lambda server=server: server.store.revision == plain.revision)
        same_answers(server.store.index, plain)
    for watcher in watchers:
        await watcher.until(response.result.revision)
        assert watcher.kinds() == [RESET, LIVE, RESET, LIVE]
        assert watcher.content() == plain.entries


@pytest.mark.parametrize("way", ["flushall", "restart without data", "log deleted"])
async def test_data_that_is_gone_is_a_new_history(own_redis, way):
    """Everyone notices, also where nobody publishes; watchers begin anew, producers are told."""
    async with (
        servers_on(own_redis.url) as servers,
        Watcher(servers[0].address) as here,
        Watcher(servers[1].address) as there,
    ):
        for number in range(5):
            last = await publish(servers[number % 2].stub, embedded([number]))
        for watcher in (here, there):
            await watcher.until(last.revision)
        old = await history_of(servers[0])
        if way == "restart without data":
            own_redis.kill()
            own_redis.forget()
            own_redis.start()
        else:
            with own_redis.client() as client:
                if way == "flushall":
                    client.flushall()
                else:
                    client.delete(f"{{warmindex}}:log:{old}")
        await check_new_history(servers, [here, there], old, own_redis.url)
        assert len(here.content()) == 1


async def test_a_failover_that_lost_records_is_a_new_history(own_redis, tmp_path):
    """What is left is kept, nobody goes on as if nothing had happened, and revisions still rise."""
    async with servers_on(own_redis.url) as servers:
        await publish(servers[0].stub, embedded([1]))
        own_redis.kill()
        own_redis.save_data(tmp_path / "older")
        own_redis.start()
        await all_well(servers)
        async with Watcher(servers[0].address) as here, Watcher(servers[1].address) as there:
            last = await publish(servers[1].stub, embedded([2, 3]))
            for watcher in (here, there):
                await watcher.until(last.revision)
            old = await history_of(servers[0])
            own_redis.kill()
            own_redis.take_data(tmp_path / "older")
            own_redis.start()
            await check_new_history(servers, [here, there], old, own_redis.url)
            assert len(here.content()) == 2
            assert servers[1].store.revision > last.revision
            assert await found(servers[1], 1, 2, 3, 7) == ["FOUND", "ABSENT", "ABSENT", "FOUND"]


async def test_a_cursor_of_the_old_history_is_a_reset(own_redis):
    """Also where the watcher was away when it happened, and at the other server."""
    async with servers_on(own_redis.url) as (one, other), Watcher(one.address) as watcher:
        last = await publish(one.stub, embedded([1]))
        await watcher.until(last.revision)
        await watcher.disconnect()
        old = await history_of(other)
        with own_redis.client() as client:
            client.flushall()
        await until(lambda: other.store.history_id != old)
        await watcher.connect(other.address)
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE, RESET, LIVE]
        assert watcher.content() == {}


async def test_who_waits_for_a_revision_of_the_old_history_is_answered(own_redis):
    """A new history starts above all revisions before."""
    async with servers_on(own_redis.url) as (one, other):
        last = await publish(one.stub, embedded([1]))
        await until(lambda: other.store.revision == last.revision)
        request = ask([1], wait_s=30.0, min_revision=last.revision + 1)
        call = asyncio.ensure_future(other.stub.GetEmbeddings(request))
        await asyncio.sleep(0.1)
        with own_redis.client() as client:
            client.flushall()
        assert state_names(await call) == ["ABSENT"]


@pytest.mark.parametrize("keep_records", [0, 20])
async def test_a_log_that_was_trimmed_past_a_server_is_loaded_again(
    redis_of_all, redis_prefix, monkeypatch, keep_records
):
    """Same history: it begins at the snapshot, and so do its watchers."""
    async with (
        servers_on(redis_of_all.url, redis_prefix) as (one, late),
        Watcher(late.address) as watcher,
    ):
        first = await publish(one.stub, embedded([1]))
        await watcher.until(first.revision)
        goes_on = asyncio.Event()
        apply = late.store.apply

        async def slow(*args):
            await goes_on.wait()
            return await apply(*args)

        monkeypatch.setattr(late.store, "apply", slow)
        # More than what one answer of Redis brings: the rest is cut behind its back.
        for number in range(120):
            last = await publish(one.stub, embedded([number % 50 + 2]))
        index = one.store.index
        saved = await one.store.journal.save_snapshot(
            index.revision, batches_of(await snapshot_parts(one)), keep_records
        )
        assert saved
        goes_on.set()
        await until(lambda: late.store.revision == last.revision)
        await watcher.until(last.revision)
        assert content(late.store.index) == content(one.store.index) == watcher.content()
        assert late.store.history_id == one.store.history_id
        assert watcher.kinds() == [RESET, LIVE, RESET, LIVE]


async def snapshot_parts(server: ServerHere) -> list:
    snapshot = await server.store.open_snapshot()
    return [part for step in snapshot.steps() for part in step]


# ---- what is refused, and who else is there ----------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru"])
async def test_a_redis_that_may_evict_the_journal_is_refused(own_redis, policy):
    """With the reason and what to do; also when it is set while servers run, and Redis restarts."""
    with own_redis.client() as client:
        client.config_set("maxmemory-policy", policy)
    with pytest.raises(JournalStartError, match=policy):
        async with running(journal=own_redis.url):
            pass
    with server_process("--journal", own_redis.url, wait=False) as process:
        assert process.wait() == 1
        assert policy in process.log
        assert "noeviction" in process.log


async def test_databases_and_prefixes_are_indexes_of_their_own(own_redis):
    """Four pairs of settings, side by side: neither entries nor claims nor leaders are shared."""
    places = [(own_redis.url, "a"), (own_redis.url, "b"), (f"{own_redis.url}/3", "a")]
    for number, (url, prefix) in enumerate(places):
        async with servers_on(url, prefix) as (one, other):
            result = await publish(one.stub, embedded([number]))
            request = ask([0, 1, 2], "me", min_revision=result.revision)
            states = state_names(await other.stub.GetEmbeddings(request))
            assert states == ["FOUND" if n == number else "CLAIMED" for n in range(3)]
            assert other.server._peers.leads or one.server._peers.leads
    with own_redis.client() as client:
        assert all(re.match(rb"\{[ab]\}:", key) for key in client.scan_iter())


async def test_a_server_starts_beside_one_that_publishes(redis_of_all, redis_prefix):
    """While a load is going on, records and snapshots come: it ends up where the others are."""
    async with servers_on(redis_of_all.url, redis_prefix, 1) as (one,):
        stop = asyncio.Event()

        async def go_on() -> None:
            number = 0
            while not stop.is_set():
                await publish(one.stub, embedded([number % 100]))
                number += 1
                if number % 50 == 0:
                    assert await one.server._snapshots.take()

        work = asyncio.create_task(go_on())
        for _ in range(3):
            await asyncio.sleep(0.3)
            async with servers_on(redis_of_all.url, redis_prefix, 1) as (late,):
                await until(lambda late=late: late.store.revision >= one.store.revision - 5)
        stop.set()
        await work
        async with servers_on(redis_of_all.url, redis_prefix, 1) as (late,):
            assert late.state() == one.state()


@pytest.mark.slow
async def test_processes_outlive_a_kill_of_redis_without_its_data(own_redis):
    """And publish again what they are asked to, into one new history."""
    with processes_on(own_redis.url) as processes:
        async with stubs_at(*processes) as (one, other):
            old = (await one.GetServerInfo(pb.GetServerInfoRequest())).history_id
            await publish(one, embedded([1]))
            own_redis.kill()
            own_redis.forget()
            own_redis.start()
            codes, again = set(), pb.PublishEventRequest(event=embedded([2]))
            async with asyncio.timeout(30):
                while True:
                    try:
                        answer = await other.PublishEvent(again)
                        break
                    except grpc.aio.AioRpcError as error:
                        codes.add(error.code())
                        await asyncio.sleep(0.1)
            assert codes <= {grpc.StatusCode.UNAVAILABLE}
            assert answer.history_id != old
            request = ask([1, 2], min_revision=answer.result.revision)
            assert state_names(await one.GetEmbeddings(request)) == ["ABSENT", "FOUND"]


async def test_a_redis_that_is_not_there_yet_stops_the_start(own_redis):
    """With what to look at; a supervisor starts the server again."""
    own_redis.kill()
    place = RedisPlace(own_redis.url, "warmindex")
    with server_process("--journal", place.url, wait=False) as process:
        assert process.wait() == 1
        assert str(own_redis.port) in process.log
