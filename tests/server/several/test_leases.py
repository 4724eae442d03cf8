"""Leases of several servers on one Redis: heard by any of them is heard; one ends what is over."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import asynccontextmanager

import pytest
from google.protobuf.duration_pb2 import Duration
from support.journals import RedisPlace, read_all
from support.server import ServerHere
from support.serving import embedded
from support.several import processes_on, servers_on, stub_at, stubs_at, until
from warmindex import limits
from warmindex.event import Cause
from warmindex.record import Conditional, Lease
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server import shared, snapshots
from warmindex_server.leases import keeper
from warmindex_server.shared import Peers

TTL_S = 0.4
POD = ("", "pod")


@pytest.fixture
def short_leases(monkeypatch):
    """Leases shorter than the contract's, so that tests need not wait."""
    monkeypatch.setattr(limits, "LEASE_TTL_S_MIN", 0.01)
    monkeypatch.setattr(keeper, "RETRY_S", 0.05)
    monkeypatch.setattr(shared, "MEET_S", 0.05)


def lease(ttl_s: float = TTL_S, replica_id: str = "pod") -> pb.ReplicaLease:
    ttl = Duration()
    ttl.FromMicroseconds(round(ttl_s * 1e6))
    return pb.ReplicaLease(replica_id=replica_id, ttl=ttl)


class Stream:
    """A PublishEvents stream, a message at a time."""

    def __init__(self, stub) -> None:
        self._call = stub.PublishEvents()

    async def say(self, events=(), leases=()) -> pb.PublishEventsResponse:
        await self._call.write(pb.PublishEventsRequest(events=events, leases=leases))
        return await self._call.read()

    async def renew_for(self, duration_s: float, every_s: float) -> None:
        until_s = time.monotonic() + duration_s
        while time.monotonic() < until_s:
            await self.say()
            await asyncio.sleep(every_s)


def peers_of(server: ServerHere) -> Peers:
    found = server.server._peers
    assert found is not None
    return found


@asynccontextmanager
async def led(url: str, prefix: str):
    """Two servers, the leader first."""
    async with servers_on(url, prefix) as servers:
        await until(lambda: any(peers_of(server).leads for server in servers))
        yield sorted(servers, key=lambda server: not peers_of(server).leads)


async def holds(stub) -> dict[str, int]:
    response = await stub.ListReplicas(pb.ListReplicasRequest())
    return {each.replica_id: each.holds for each in response.replicas}


# ---- who is heard ------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_renewal_at_any_server_counts(redis_of_all, redis_prefix, short_leases):
    """Messages without anything in them, at the server that does not lead: the lease lives."""
    async with led(redis_of_all.url, redis_prefix) as (leader, other):
        stream = Stream(other.stub)
        await stream.say([embedded([1], replica_id="pod")], [lease(1.0)])
        records = other.store.revision
        await stream.renew_for(3.0, 0.1)
        assert await holds(leader.stub) == {"pod": 1}
        assert other.store.revision == records, "a renewal in time is not journaled"
        (replica,) = (await leader.stub.ListReplicas(pb.ListReplicasRequest())).replicas
        assert 0 < replica.lease_remaining.ToTimedelta().total_seconds() <= 1.0
        await until(lambda: POD not in other.store.index.leases)
        assert await holds(other.stub) == {}


async def test_one_server_ends_what_is_over(redis_of_all, redis_prefix, short_leases):
    """The journal has one clear a model and one end of the lease, whoever leads."""
    async with led(redis_of_all.url, redis_prefix) as servers:
        stream = Stream(servers[1].stub)
        events = [embedded([1], replica_id="pod", model_id=model) for model in ("m", "n")]
        await stream.say(events, [lease()])
        for server in servers:
            await until(lambda server=server: POD not in server.store.index.leases)
        await asyncio.sleep(3 * TTL_S)
    async with RedisPlace(redis_of_all.url, redis_prefix).opened() as journal:
        records = [record for _, record in await read_all(journal)]
    judged = [each.record for each in records if isinstance(each, Conditional)]
    assert sum(isinstance(each, Lease) for each in judged) == 1
    assert sum(getattr(each, "cause", None) is Cause.LEASE for each in judged) == 2
    assert len(judged) == 3


async def test_a_leader_that_was_stopped_in_the_middle_ends_nothing(
    redis_of_all, redis_prefix, short_leases, monkeypatch
):
    """The replica was heard elsewhere after the leader had judged: its holds stay."""
    async with led(redis_of_all.url, redis_prefix) as (leader, other):
        judged, goes_on = asyncio.Event(), asyncio.Event()
        publish_all = leader.store.publish_all

        async def stopped(records):
            judged.set()
            await goes_on.wait()
            return await publish_all(records)

        await Stream(other.stub).say([embedded([1], replica_id="pod")], [lease()])
        monkeypatch.setattr(leader.store, "publish_all", stopped)
        await judged.wait()
        stream = Stream(other.stub)
        await stream.say([], [lease(100.0)])
        await stream.say()
        goes_on.set()
        await leader.server._leases._changed.wait()
        await until(lambda: leader.store.revision == other.store.revision)
        assert await holds(other.stub) == {"pod": 1}
        assert POD in leader.store.index.leases


@pytest.mark.parametrize("way", ["event", "report", "stream's event"])
async def test_whatever_a_late_replica_sends_sets_its_lease_anew(
    redis_of_all, redis_prefix, short_leases, monkeypatch, way
):
    """Also what sets no lease by itself: what another server is about to journal is void."""
    async with led(redis_of_all.url, redis_prefix) as (leader, other):
        monkeypatch.setattr(leader.store, "publish_all", lambda _: asyncio.Event().wait())
        await Stream(other.stub).say([embedded([1], replica_id="pod")], [lease()])
        before = other.store.index.leases[POD].generation
        await asyncio.sleep(1.5 * TTL_S)
        event = embedded([1, 2], replica_id="pod")
        if way == "event":
            await other.stub.PublishEvent(pb.PublishEventRequest(event=event))
        elif way == "stream's event":
            await Stream(other.stub).say([event])
        else:
            header = pb.ReportStateHeader(replica_id="pod", model_id="m")
            parts = [
                pb.ReportStateRequest(header=header),
                pb.ReportStateRequest(entries=event),
                pb.ReportStateRequest(end=pb.ReportStateEnd(content_hashes=2)),
            ]
            await other.stub.ReportState(iter(parts))
        assert other.store.index.leases[POD].generation > before
        assert await holds(other.stub) == {"pod": 2}


async def test_a_server_that_is_out_of_touch_journals_renewals(
    redis_of_all, redis_prefix, short_leases, monkeypatch
):
    """What it cannot tell the others, the journal does."""
    async with led(redis_of_all.url, redis_prefix) as (_, other):
        stream = Stream(other.stub)
        await stream.say([embedded([1], replica_id="pod")], [lease(100.0)])
        before = other.store.index.leases[POD].generation
        await stream.say()
        assert other.store.index.leases[POD].generation == before
        monkeypatch.setattr(Peers, "in_touch", False)
        await stream.say()
        assert other.store.index.leases[POD].generation > before


@pytest.mark.slow
async def test_an_outage_of_redis_ends_no_lease(own_redis, short_leases, monkeypatch):
    """Nobody could be heard meanwhile, so leases run anew; then silence counts again."""
    monkeypatch.setattr(shared, "IN_TOUCH_S_MAX", 0.3)
    async with led(own_redis.url, "warmindex") as (leader, other):
        stream = Stream(other.stub)
        await stream.say([embedded([1], replica_id="pod")], [lease(1.0)])
        own_redis.kill()
        await asyncio.sleep(1.2)
        own_redis.start()
        stream = Stream(other.stub)
        await until(lambda: not other.store.problem and peers_of(other).in_touch)
        await stream.say([], [lease(1.0)])
        assert await holds(leader.stub) == {"pod": 1}
        await stream.renew_for(2.0, 0.2)
        assert await holds(leader.stub) == {"pod": 1}
        await until(lambda: POD not in leader.store.index.leases)


# ---- who leads ---------------------------------------------------------------------------


async def test_a_server_that_leaves_hands_over_at_once(redis_of_all, redis_prefix):
    """Long before it would count as gone."""
    async with led(redis_of_all.url, redis_prefix) as (leader, other):
        assert not peers_of(other).leads
        began = time.monotonic()
        await peers_of(leader).close()
        await until(lambda: peers_of(other).leads)
        assert time.monotonic() - began < shared.GONE_S


async def test_prefixes_have_leaders_of_their_own(redis_of_all, redis_prefix):
    """Two fleets on one Redis do not wait for each other."""
    async with (
        servers_on(redis_of_all.url, f"{redis_prefix}a", 1) as (one,),
        servers_on(redis_of_all.url, f"{redis_prefix}b", 1) as (other,),
    ):
        assert peers_of(one).leads
        assert peers_of(other).leads


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_leader_that_is_gone_is_replaced(redis_of_all, redis_prefix, number):
    """Within seconds another server ends leases; one that comes back only follows."""
    with processes_on(redis_of_all.url, redis_prefix, 2) as processes:
        (leader,) = [p for p in processes if "ends leases" in p.log]
        (other,) = [p for p in processes if p is not leader]
        async with stubs_at(other, leader) as (stub, leaders):
            stream, silent = Stream(stub), Stream(stub)
            await stream.say([embedded([1], replica_id="pod")], [lease(1.0)])
            await silent.say([embedded([2], replica_id="gone")], [lease(1.0, "gone")])
            leader.signal(number)
            async with asyncio.timeout(30):
                while "gone" in await holds(stub):
                    await stream.renew_for(0.2, 0.2)
            assert await holds(stub) == {"pod": 1}
            assert "ends leases" in other.log
            if number is signal.SIGSTOP:
                leader.signal(signal.SIGCONT)
                await stream.renew_for(2.5, 0.2)
                assert await holds(stub) == {"pod": 1}
                async with asyncio.timeout(30):
                    while await holds(leaders) != {"pod": 1}:
                        await stream.renew_for(0.2, 0.2)


# ---- snapshots ---------------------------------------------------------------------------


async def test_one_server_takes_snapshots(redis_of_all, redis_prefix, monkeypatch):
    """The leader; the others neither read their index for it nor take one when they lead."""
    monkeypatch.setattr(snapshots, "RECORDS_MAX", 20)
    monkeypatch.setattr(snapshots, "CHECK_S", 0.05)
    monkeypatch.setattr(shared, "MEET_S", 0.05)
    opened: list[ServerHere] = []
    async with led(redis_of_all.url, redis_prefix) as (leader, other):
        for server in (leader, other):
            open_snapshot = server.store.open_snapshot

            async def counted(*args, server=server, open_snapshot=open_snapshot):
                opened.append(server)
                return await open_snapshot(*args)

            monkeypatch.setattr(server.store, "open_snapshot", counted)
        for number in range(30):
            await other.stub.PublishEvent(pb.PublishEventRequest(event=embedded([number])))
        own, others = leader.server._snapshots, other.server._snapshots
        await until(lambda: own.last_revision and others.last_revision == own.last_revision)
        assert others._records < 20
        await peers_of(leader).close()
        await until(lambda: peers_of(other).leads)
        await asyncio.sleep(0.3)
        assert opened
        assert set(map(id, opened)) == {id(leader)}


async def test_a_server_starts_from_the_snapshot_of_another(redis_of_all, redis_prefix):
    """With its leases, numbers and holds; and follows from there."""
    async with led(redis_of_all.url, redis_prefix) as (leader, other):
        await Stream(other.stub).say([embedded([1], replica_id="pod")], [lease(100.0)])
        await until(lambda: leader.store.revision == other.store.revision)
        assert await leader.server._snapshots.take()
        await other.stub.PublishEvent(pb.PublishEventRequest(event=embedded([2])))
        async with servers_on(redis_of_all.url, redis_prefix, 1) as (late,):
            assert late.state() == other.state()
            assert late.store.replayed == 1
            async with stub_at(leader.address) as stub:
                await stub.PublishEvent(pb.PublishEventRequest(event=embedded([3])))
            await until(lambda: late.store.revision == leader.store.revision)
            assert late.state() == leader.state()
