"""Leases over the wire: who sets, renews and loses them, and what goes with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from support.serving import embedded, field_of, reason_of, serving, stub_of
from warmindex import limits
from warmindex.errors import JournalUnavailableError
from warmindex.v1 import event_pb2, index_service_pb2_grpc
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server
from warmindex_server.leader import Alone
from warmindex_server.leases import keeper

Stub = index_service_pb2_grpc.IndexServiceStub

# Shorter than the contract allows, so that tests need not wait; and so is what counts as
# being held up, for a machine that is busy with other things.
TTL_S = 0.2
HELD_UP_S = 0.06
LONG_S = 100.0


@pytest.fixture(autouse=True)
def _short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEASE_TTL_S_MIN", 0.01)
    monkeypatch.setattr(keeper, "HELD_UP_S_MAX", HELD_UP_S)


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def server(request: pytest.FixtureRequest, journal_settings) -> AsyncIterator[Server]:
    async with serving(**journal_settings(request.param)) as server:
        yield server


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Stub]:
    async with stub_of(server) as stub:
        yield stub


def lease(replica_id: str = "pod", ttl_s: float = TTL_S, tenant_id: str = "") -> pb.ReplicaLease:
    ttl = Duration()
    ttl.FromMicroseconds(round(ttl_s * 1e6))
    return pb.ReplicaLease(replica_id=replica_id, ttl=ttl, tenant_id=tenant_id)


class Stream:
    """A PublishEvents stream, a message at a time."""

    def __init__(self, stub: Stub) -> None:
        self._call = stub.PublishEvents()

    async def say(
        self, events: Sequence[event_pb2.CacheEvent] = (), leases: Sequence[pb.ReplicaLease] = ()
    ) -> pb.PublishEventsResponse:
        await self._call.write(pb.PublishEventsRequest(events=events, leases=leases))
        response = await self._call.read()
        if response is grpc.aio.EOF:
            await self._call
        return response  # type: ignore[return-value]

    async def renew_for(self, duration_s: float, every_s: float = TTL_S / 5) -> None:
        """Send messages without anything for a while."""
        until_s = time.monotonic() + duration_s
        while time.monotonic() < until_s:
            await self.say()
            await asyncio.sleep(every_s)

    async def end(self) -> None:
        await self._call.done_writing()
        assert await self._call.read() is grpc.aio.EOF


async def replicas(
    stub: Stub, tenant_id: str = ""
) -> dict[tuple[str, str], pb.ListReplicasResponse.Replica]:
    response = await stub.ListReplicas(pb.ListReplicasRequest(tenant_id=tenant_id))
    return {(each.replica_id, each.model_id): each for each in response.replicas}


async def until(
    stub: Stub, holds: Callable[[set[tuple[str, str]]], bool], tenant_id: str = ""
) -> None:
    while not holds(set(await replicas(stub, tenant_id))):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


def has_lease(server: Server, replica_id: str = "pod", tenant_id: str = "") -> bool:
    assert server._store is not None
    return (tenant_id, replica_id) in server._store.index.leases


async def until_ended(server: Server, replica_id: str = "pod") -> None:
    while has_lease(server, replica_id):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)


# ---- the end of a lease ------------------------------------------------------------------


async def test_what_a_silent_replica_holds_goes(server: Server, stub: Stub):
    """In every model of its tenant, in one go with the lease; nothing of anybody else's."""
    stream = Stream(stub)
    events = [
        embedded([1, 2], replica_id="pod", model_id="m1"),
        embedded([1], replica_id="pod", model_id="m2", adapter_id="lora"),
        embedded([1], replica_id="other", model_id="m1"),
        embedded([1], replica_id="pod", model_id="m1", tenant_id="t"),
    ]
    response = await stream.say(events, [lease()])
    assert [result.outcome for result in response.results] == [1, 1, 1, 1]
    assert not response.resync_required
    await stream.end()
    await until(stub, lambda there: there == {("other", "m1")})
    assert set(await replicas(stub, "t")) == {("pod", "m1")}
    await until_ended(server)


async def test_a_stream_renews_what_it_has_set(server: Server, stub: Stub):
    """By every message, one without events too; and by nothing once it is silent."""
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id=name) for name in ("a", "b")], [lease("a")])
    await stream.say([], [lease("b")])
    await stream.renew_for(3 * TTL_S)
    there = await replicas(stub)
    assert set(there) == {("a", "m"), ("b", "m")}
    for each in there.values():
        assert 0 < each.lease_remaining.ToTimedelta().total_seconds() <= TTL_S
    await until(stub, lambda there: not there)


async def test_a_single_event_renews_a_lease_that_exists(server: Server, stub: Stub):
    """PublishEvent makes none."""
    await stub.PublishEvent(pb.PublishEventRequest(event=embedded([1], replica_id="free")))
    assert not has_lease(server, "free")
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id="pod")], [lease()])
    for number in range(20):
        await stub.PublishEvent(pb.PublishEventRequest(event=embedded([number], replica_id="pod")))
        await asyncio.sleep(TTL_S / 6)
    assert set(await replicas(stub)) == {("free", "m"), ("pod", "m")}
    await until(stub, lambda there: there == {("free", "m")})


async def test_another_streams_messages_do_not_renew(server: Server, stub: Stub):
    """A stream stands for the replicas whose leases it has set, and for no others."""
    stream, other = Stream(stub), Stream(stub)
    await stream.say([embedded([1], replica_id="pod")], [lease()])
    await other.say([], [lease("elsewhere", LONG_S)])
    renewing = asyncio.create_task(other.renew_for(20 * TTL_S))
    await until_ended(server)
    assert has_lease(server, "elsewhere")
    renewing.cancel()


async def test_tenants_have_leases_of_their_own(server: Server, stub: Stub):
    """The same replica's name in two tenants is two replicas."""
    stream = Stream(stub)
    events = [embedded([1], replica_id="pod", tenant_id=tenant) for tenant in ("", "t")]
    await stream.say(events, [lease(ttl_s=TTL_S), lease(ttl_s=LONG_S, tenant_id="t")])
    await stream.end()
    await until(stub, lambda there: not there)
    assert set(await replicas(stub, "t")) == {("pod", "m")}
    assert has_lease(server, tenant_id="t")


async def test_a_lease_is_replaced(server: Server, stub: Stub):
    """The last one counts, whoever set it; in one message too."""
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id="pod")], [lease(ttl_s=LONG_S), lease()])
    await stream.say([], [lease(ttl_s=LONG_S)])
    await asyncio.sleep(2 * TTL_S)
    assert set(await replicas(stub)) == {("pod", "m")}
    await Stream(stub).say([], [lease()])
    await until(stub, lambda there: not there)


async def test_saying_the_same_again_costs_no_record(server: Server, stub: Stub):
    """A producer may put its leases into every message."""
    stream = Stream(stub)
    first = (await stream.say([embedded([1], replica_id="pod")], [lease(ttl_s=LONG_S)])).results[0]
    for _ in range(3):
        await stream.say([], [lease(ttl_s=LONG_S)])
    last = (await stream.say([embedded([2], replica_id="pod")], [lease(ttl_s=LONG_S)])).results[0]
    assert last.revision == first.revision + 1


# ---- coming back -------------------------------------------------------------------------


async def test_a_producer_that_comes_back_is_asked_for_a_report(server: Server, stub: Stub):
    """Without an event of its own too; its lease runs again, and ALL_CLEARED heals."""
    stream, other = Stream(stub), Stream(stub)
    await stream.say([embedded([1], replica_id="pod", epoch=7, sequence=1)], [lease()])
    await other.say([], [lease("other", LONG_S)])
    await until_ended(server)
    assert (await stream.say()).resync_required
    assert has_lease(server)
    assert not (await other.say()).resync_required
    response = await stream.say([embedded([2], replica_id="pod", epoch=7, sequence=2)])
    assert response.resync_required
    assert response.results[0].resync_required
    cleared = event_pb2.CacheEvent(type=4, replica_id="pod", model_id="m", epoch=7, sequence=3)
    assert not (await stream.say([cleared])).resync_required
    await until_ended(server)


async def test_resync_is_asked_for_in_each_model(server: Server, stub: Stub):
    """A gap in one model is healed there; the stream is told until all are."""
    stream = Stream(stub)
    gaps = [
        embedded([1], replica_id="pod", model_id=model, epoch=1, sequence=5) for model in ("a", "b")
    ]
    assert (await stream.say(gaps, [lease(ttl_s=LONG_S)])).resync_required
    for model, owing in (("a", True), ("b", False)):
        cleared = event_pb2.CacheEvent(
            type=4, replica_id="pod", model_id=model, epoch=1, sequence=6
        )
        assert (await stream.say([cleared])).resync_required is owing
    assert not (await stream.say()).resync_required


async def test_leases_run_anew_after_a_start(tmp_path):
    """Each once, for its whole time; then what it held goes, and the report is owed."""
    journal = f"sqlite:///{tmp_path}/journal.db"
    async with serving(journal) as server, stub_of(server) as stub:
        stream = Stream(stub)
        names = ("brief", "long")
        events = [embedded([1], replica_id=name) for name in names]
        await stream.say(events, [lease("brief", 0.5), lease("long", LONG_S)])
    async with serving(journal) as server, stub_of(server) as stub:
        there = await replicas(stub)
        assert set(there) == {("brief", "m"), ("long", "m")}
        assert not there["brief", "m"].HasField("heard_ago")
        assert there["brief", "m"].lease_remaining.ToTimedelta().total_seconds() <= 0.5
        await until(stub, lambda there: there == {("long", "m")})
        await until_ended(server, "brief")
    async with serving(journal) as server, stub_of(server) as stub:
        assert set(await replicas(stub)) == {("long", "m")}
        assert (await Stream(stub).say([], [lease("brief", 0.5)])).resync_required


# ---- what must not end a lease -----------------------------------------------------------


async def test_a_slow_journal_is_no_silence(server: Server, stub: Stub, monkeypatch):
    """While a message is being written its producer is heard from, however long it takes."""
    store = server._store
    assert store is not None
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id="pod")], [lease()])
    publish_all = store.publish_all

    async def slowly(records):
        await asyncio.sleep(3 * TTL_S)
        return await publish_all(records)

    monkeypatch.setattr(store, "publish_all", slowly)
    await stream.say([embedded([2], replica_id="pod")])
    assert (await replicas(stub))["pod", "m"].holds == 2
    assert has_lease(server)


async def test_a_server_that_was_held_up_ends_nothing(server: Server, stub: Stub):
    """It could not hear anybody meanwhile; the lease runs on from then."""
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id="pod")], [lease(ttl_s=0.3)])
    time.sleep(1)  # noqa: ASYNC251 - this is what is tested
    await asyncio.sleep(0.05)
    assert set(await replicas(stub)) == {("pod", "m")}
    await until(stub, lambda there: not there)


async def test_while_the_journal_is_away_no_lease_ends(server: Server, stub: Stub, monkeypatch):
    """It is tried again, and meanwhile the replica may be heard from."""
    store = server._store
    assert store is not None
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id="pod")], [lease()])
    publish_all = store.publish_all
    tried = asyncio.Event()

    async def away(_records):
        tried.set()
        raise JournalUnavailableError("away")

    monkeypatch.setattr(keeper, "RETRY_S", 0.05)
    monkeypatch.setattr(store, "publish_all", away)
    await tried.wait()
    assert set(await replicas(stub)) == {("pod", "m")}
    monkeypatch.setattr(store, "publish_all", publish_all)
    await stream.renew_for(2 * TTL_S)
    assert set(await replicas(stub)) == {("pod", "m")}
    await until(stub, lambda there: not there)


async def test_a_follower_ends_nothing(server: Server, stub: Stub):
    """Of servers that share a journal one ends leases; another can take over."""

    class Follower(Alone):
        async def judges_until_s(self) -> float | None:
            return None

    leases = server._leases
    assert leases is not None
    leases._leadership = Follower()
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id="pod")], [lease()])
    await asyncio.sleep(3 * TTL_S)
    assert set(await replicas(stub)) == {("pod", "m")}
    leases._leadership = Alone()
    await until(stub, lambda there: not there)


async def test_what_was_published_in_between_goes_too(server: Server, stub: Stub, monkeypatch):
    """Holds that come while the lease is being ended do not stay behind without one."""
    store = server._store
    assert store is not None
    stream = Stream(stub)
    await stream.say([embedded([1], replica_id="pod", model_id="m1")], [lease()])
    publish_all = store.publish_all
    late = [embedded([1], replica_id="pod", model_id="m2")]

    async def with_another(records):
        results = await publish_all(records)
        while late:
            from warmindex.wire import event_from_wire

            await store.publish(event_from_wire(late.pop()))
        return results

    monkeypatch.setattr(store, "publish_all", with_another)
    await until_ended(server)
    assert not await replicas(stub)


# ---- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leases", "field", "reason"),
    [
        ([pb.ReplicaLease(replica_id="pod")], "leases[0].ttl", "FIELD_REQUIRED"),
        ([lease(ttl_s=0.009)], "leases[0].ttl", "OUT_OF_RANGE"),
        ([lease(ttl_s=-1)], "leases[0].ttl", "OUT_OF_RANGE"),
        ([lease(ttl_s=86400.001)], "leases[0].ttl", "OUT_OF_RANGE"),
        ([lease(), lease("")], "leases[1].replica_id", "FIELD_REQUIRED"),
        ([lease("x" * 257)], "leases[0].replica_id", "FIELD_TOO_LONG"),
        ([lease(tenant_id="t" * 129)], "leases[0].tenant_id", "FIELD_TOO_LONG"),
        ([lease(str(n)) for n in range(1025)], "leases", "TOO_MANY"),
    ],
)
async def test_a_bad_lease_ends_the_stream(leases: list[pb.ReplicaLease], field: str, reason: str):
    """Before anything of its message is applied; what came before is."""
    async with serving() as server, stub_of(server) as stub:
        stream = Stream(stub)
        await stream.say([embedded([1])], [lease("good", LONG_S)])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.say([embedded([2])], [lease("better", LONG_S), *leases])
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        if reason != "TOO_MANY":
            field = field.replace("[0]", "[1]") if "[0]" in field else field.replace("[1]", "[2]")
        assert (field_of(caught.value), reason_of(caught.value)) == (field, reason)
        assert has_lease(server, "good")
        assert not has_lease(server, "better")
        assert (await replicas(stub))["catalogue", "m"].holds == 1


async def test_too_many_events_set_no_lease(server: Server, stub: Stub):
    """The fault is the message's, so all of it is left alone."""
    stream = Stream(stub)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.say([embedded([1])] * 1025, [lease(ttl_s=LONG_S)])
    assert (field_of(caught.value), reason_of(caught.value)) == ("events", "TOO_MANY")
    assert not has_lease(server)
    assert not await replicas(stub)


async def test_the_contracts_limits_are_taken(monkeypatch: pytest.MonkeyPatch):
    """A lease of a second and one of a day, and 1024 of them at once."""
    monkeypatch.setattr(limits, "LEASE_TTL_S_MIN", 1.0)
    async with serving() as server, stub_of(server) as stub:
        stream = Stream(stub)
        await stream.say([], [lease(str(n), 1.0 if n % 2 else 86400.0) for n in range(1024)])
        assert all(has_lease(server, str(n)) for n in range(1024))
