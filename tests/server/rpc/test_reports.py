"""ReportState over the wire: what it does, and never over what came after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from support.reporting import (
    Stub,
    end,
    entries,
    header,
    held,
    publish,
    refused,
    replica,
    report,
)
from support.serving import embedded, reason_of, rows, serving, stub_of, text_key
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server

M = event_pb2.PartitionKey(model_id="m")
DEVICE, HOST = event_pb2.CACHE_TIER_DEVICE, event_pb2.CACHE_TIER_HOST


@pytest.fixture(params=["memory", "sqlite"])
async def server(request: pytest.FixtureRequest, tmp_path) -> AsyncIterator[Server]:
    journal = "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"
    async with serving(journal) as server:
        yield server


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Stub]:
    async with stub_of(server) as stub:
        yield stub


# ---- what a report does ------------------------------------------------------------------


async def test_a_report_replaces_all_that_a_producer_holds(stub: Stub):
    """In every adapter, scheme and tier of its model; nothing of anybody else's."""
    await publish(
        stub,
        embedded([1, 2], replica_id="pod", vectors=False),
        embedded([3], replica_id="pod", vectors=False, adapter_id="lora"),
        embedded([4], replica_id="pod", vectors=False, hash_scheme="own"),
        embedded([1, 2], replica_id="pod", vectors=False, tier=HOST),
        embedded([1], replica_id="pod", vectors=False, model_id="m2"),
        embedded([1, 2], replica_id="other", vectors=False),
    )
    response = await report(
        stub, header(), entries([2, 5]), entries([2, 6], adapter_id="lora", tier=HOST), end(4)
    )
    assert (response.holds_added, response.holds_removed) == (3, 5)
    assert await held(stub, range(10)) == {
        2: [("", DEVICE), ("lora", HOST)],
        5: [("", DEVICE)],
        6: [("lora", HOST)],
    }
    assert await held(stub, range(10), model_id="m2") == {1: [("", DEVICE)]}
    assert set(await held(stub, range(10), "other")) == {1, 2}
    response = await report(stub, header(), end(0))
    assert (response.holds_added, response.holds_removed) == (0, 4)
    assert await held(stub, range(10)) == {}


async def test_a_report_brings_vectors_and_documents(stub: Stub):
    """As an EMBEDDED does; a key that is listed twice ends as it was told last."""
    named = entries([1, 2], vectors=True)
    for name in ("first", "second"):
        named.entries.documents.add(name=name, description="measures rain")
    again = entries([1])
    again.entries.embeddings.CopyFrom(rows([7]))
    await report(stub, header(), named, again, end(3))
    request = pb.GetEmbeddingsRequest(partition=M, content_hashes=[text_key(1), text_key(2)])
    response = await stub.GetEmbeddings(request)
    assert response.embeddings.values == rows([7, 2]).values
    found = await stub.Search(pb.SearchRequest(partition=M, query_text="rain"))
    assert {hit.document.name for hit in found.hits} == {"first", "second"}


async def test_a_vector_in_a_report_ends_a_claim(stub: Stub):
    """Whoever publishes it, and however."""
    request = pb.GetEmbeddingsRequest(
        partition=M, content_hashes=[text_key(1)], claimant_id="a", wait={"seconds": 0}
    )
    await stub.GetEmbeddings(request)
    request.claimant_id = "b"
    request.wait.seconds = 60
    call = asyncio.ensure_future(stub.GetEmbeddings(request))
    await report(stub, header(), entries([1], vectors=True), end(1))
    assert (await call).states == [pb.GetEmbeddingsResponse.STATE_FOUND]


async def test_the_same_report_again_changes_nothing(stub: Stub):
    """Its answer is as good: it says at which revision the state is what it lists."""
    parts = (header(7, 3), entries([1, 2], vectors=True), end(2))
    first = await report(stub, *parts)
    again = await report(stub, *parts)
    assert (first.holds_added, again.holds_added, again.holds_removed) == (2, 0, 0)
    assert again.revision > first.revision


async def test_numbering_goes_on_from_the_header(stub: Stub):
    """A report includes all events up to its number: that one is a duplicate, the next applies."""
    await report(stub, header(7, 3), entries([1]), end(1))
    told = await replica(stub)
    assert (told.epoch, told.sequence, told.resync_required) == (7, 3, False)
    old, following = await publish(
        stub,
        embedded([2], replica_id="pod", vectors=False, epoch=7, sequence=3),
        embedded([3], replica_id="pod", vectors=False, epoch=7, sequence=4),
    )
    assert old.outcome == pb.EventResult.OUTCOME_DUPLICATE
    assert (following.outcome, following.resync_required) == (1, False)
    assert set(await held(stub, range(5))) == {1, 3}


async def test_a_new_life_that_begins_with_a_report_owes_none(stub: Stub):
    """Sequence 0: no event of the epoch came before, and the first one is number 1."""
    await publish(stub, embedded([1], replica_id="pod", vectors=False, epoch=7, sequence=1))
    await report(stub, header(8, 0), entries([2]), end(1))
    (result,) = await publish(
        stub, embedded([3], replica_id="pod", vectors=False, epoch=8, sequence=1)
    )
    assert (result.outcome, result.resync_required) == (1, False)
    assert set(await held(stub, range(5))) == {2, 3}


async def test_a_report_heals(stub: Stub):
    """After a gap nothing is asked for any more; epoch 0 leaves the numbers alone."""
    for first, head in ((5, header(7, 5)), (9, header())):
        (result,) = await publish(
            stub, embedded([1], replica_id="pod", vectors=False, epoch=7, sequence=first)
        )
        assert result.resync_required
        await report(stub, head, entries([1]), end(1))
        told = await replica(stub)
        assert (told.epoch, told.sequence, told.resync_required) == (7, first, False)


async def test_a_report_renews_a_lease_that_exists(server: Server, stub: Stub, monkeypatch):
    """For as long as its parts come in; it makes none."""
    monkeypatch.setattr("warmindex.limits.LEASE_TTL_S_MIN", 0.01)
    stream = stub.PublishEvents()
    lease = pb.ReplicaLease(replica_id="pod", ttl={"nanos": 200_000_000})
    await stream.write(pb.PublishEventsRequest(leases=[lease]))
    await stream.read()

    async def slowly() -> AsyncIterator[pb.ReportStateRequest]:
        yield header()
        for number in range(10):
            yield entries([number])
            await asyncio.sleep(0.05)
        yield end(10)

    await stub.ReportState(slowly())
    assert server._store is not None
    assert ("", "pod") in server._store.index.leases
    await report(stub, header(replica_id="free"), end(0))
    assert ("", "free") not in server._store.index.leases


async def test_what_a_report_did_survives_a_restart(tmp_path):
    """It is journaled as one record."""
    journal = f"sqlite:///{tmp_path}/journal.db"
    async with serving(journal) as server, stub_of(server) as stub:
        await publish(stub, embedded([1, 2], replica_id="pod", epoch=7, sequence=1))
        answer = await report(stub, header(7, 1), entries([2, 3], vectors=True), end(2))
    async with serving(journal) as server, stub_of(server) as stub:
        assert server._store is not None
        assert server._store.revision == answer.revision
        assert set(await held(stub, range(5))) == {2, 3}
        assert (await replica(stub)).sequence == 1


# ---- overtaken and fenced ----------------------------------------------------------------


OVERTAKEN = ("ABORTED", "REPORT_OVERTAKEN", "")


async def test_a_report_that_is_behind_is_overtaken(stub: Stub):
    """The epoch has used a number above the header's."""
    await publish(stub, embedded([1], replica_id="pod", epoch=7, sequence=4))
    assert await refused(stub, header(7, 3), entries([2]), end(1)) == OVERTAKEN
    assert await refused(stub, header(7, 0), entries([2]), end(1)) == OVERTAKEN
    assert set(await held(stub, range(5))) == {1}
    await report(stub, header(7, 4), entries([2]), end(1))


async def test_a_report_of_an_old_life_is_fenced(stub: Stub):
    """A newer epoch is known; this process should stop."""
    await publish(stub, embedded([1], replica_id="pod", epoch=7, sequence=1))
    fenced = ("FAILED_PRECONDITION", "EPOCH_FENCED", "")
    assert await refused(stub, header(6, 9), entries([2]), end(1)) == fenced


@pytest.mark.parametrize(
    ("event", "overtakes"),
    [
        (embedded([9], replica_id="pod"), True),
        (embedded([9], replica_id="pod", epoch=7, sequence=2), True),
        (embedded([1], replica_id="pod", epoch=7, sequence=2), True),
        (embedded([1], replica_id="pod"), False),
        (embedded([9], replica_id="other"), False),
        (embedded([9], replica_id="pod", model_id="m2"), False),
        (event_pb2.CacheEvent(type=4, replica_id="pod", model_id="m"), True),
    ],
)
async def test_what_happens_while_a_report_is_on_its_way(
    stub: Stub, event: event_pb2.CacheEvent, overtakes: bool
):
    """A change of the producer's holds overtakes it, and so does a higher number; no other."""
    await publish(stub, embedded([1], replica_id="pod", epoch=7, sequence=1))
    call = stub.ReportState()
    await call.write(header(7, 1))
    await call.write(entries([1, 2], vectors=True))
    await stub.GetServerInfo(pb.GetServerInfoRequest())
    await asyncio.sleep(0.02)
    await publish(stub, event)
    await call.write(end(2))
    await call.done_writing()
    if not overtakes:
        assert (await call).holds_added == 1
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert (caught.value.code().name, reason_of(caught.value)) == OVERTAKEN[:2]
    assert 2 not in await held(stub, [2])


async def test_two_reports_at_once(stub: Stub):
    """One of them is overtaken by the other, and nothing is mixed."""
    calls = [stub.ReportState(), stub.ReportState()]
    for number, call in enumerate(calls):
        await call.write(header())
        await call.write(entries([number]))
    await asyncio.sleep(0.05)
    for call in calls:
        await call.write(end(1))
        await call.done_writing()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    good = [number for number, each in enumerate(outcomes) if not isinstance(each, Exception)]
    assert len(good) == 1
    assert set(await held(stub, range(3))) == set(good)
