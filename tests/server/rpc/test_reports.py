"""ReportState over the wire: complete or nothing, and never over what came after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

import grpc
import pytest
from support.serving import (
    chain_key,
    embedded,
    field_of,
    reason_of,
    rows,
    serving,
    stub_of,
    text_key,
)
from warmindex.v1 import event_pb2, index_service_pb2_grpc
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server
from warmindex_server.reports import staging

Stub = index_service_pb2_grpc.IndexServiceStub
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


def header(epoch: int = 0, sequence: int = 0, **fields: str) -> pb.ReportStateRequest:
    named = {"replica_id": "pod", "model_id": "m", **fields}
    return pb.ReportStateRequest(
        header=pb.ReportStateHeader(epoch=epoch, sequence=sequence, **named)
    )


def entries(
    numbers: Sequence[int], *, vectors: bool = False, **fields: object
) -> pb.ReportStateRequest:
    empty = {"replica_id": "", "model_id": "", **fields}
    return pb.ReportStateRequest(entries=embedded(numbers, vectors=vectors, **empty))


def end(count: int) -> pb.ReportStateRequest:
    return pb.ReportStateRequest(end=pb.ReportStateEnd(content_hashes=count))


async def report(stub: Stub, *parts: pb.ReportStateRequest) -> pb.ReportStateResponse:
    return await stub.ReportState(iter(parts))


async def refused(stub: Stub, *parts: pb.ReportStateRequest) -> tuple[str, str, str]:
    """The status, reason and field that a report ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await report(stub, *parts)
    error = caught.value
    return error.code().name, reason_of(error), field_of(error)


async def publish(stub: Stub, *events: event_pb2.CacheEvent) -> list[pb.EventResult]:
    return [
        (await stub.PublishEvent(pb.PublishEventRequest(event=event))).result for event in events
    ]


async def held(
    stub: Stub, numbers: Iterable[int], replica_id: str = "pod", model_id: str = "m"
) -> dict[int, list[tuple[str, int]]]:
    """In which adapters and tiers a replica holds keys."""
    found = {}
    for number in numbers:
        response = await stub.GetEntry(pb.GetEntryRequest(content_hash=text_key(number)))
        holds = [
            (entry.partition.adapter_id, hold.tier)
            for entry in response.entries
            for hold in entry.holds
            if entry.partition.model_id == model_id and hold.replica_id == replica_id
        ]
        if holds:
            found[number] = holds
    return found


async def replica(stub: Stub, replica_id: str = "pod") -> pb.ListReplicasResponse.Replica:
    response = await stub.ListReplicas(pb.ListReplicasRequest())
    (found,) = [each for each in response.replicas if each.replica_id == replica_id]
    return found


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


# ---- complete or nothing -----------------------------------------------------------------


BAD_VECTOR = entries([2], vectors=True)
BAD_VECTOR.entries.embeddings.values = bytes(16)
EVICTED = entries([2])
EVICTED.entries.type = event_pb2.CacheEvent.EVICTED
SHORT_KEY = entries([2])
SHORT_KEY.entries.content_hashes[0] = b"short"
HALF_NUMBERED = entries([2])
HALF_NUMBERED.entries.epoch = 5
INVALID, INCOMPLETE = "INVALID_ARGUMENT", "REPORT_INCOMPLETE"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), (INVALID, INCOMPLETE, "header")),
        ((entries([2]), end(1)), (INVALID, "FIELD_REQUIRED", "header")),
        ((header(),), (INVALID, INCOMPLETE, "end")),
        ((header(), entries([2])), (INVALID, INCOMPLETE, "end")),
        ((header(), entries([2]), end(2)), (INVALID, INCOMPLETE, "end.content_hashes")),
        ((header(), entries([2]), end(0)), (INVALID, INCOMPLETE, "end.content_hashes")),
        ((header(), header(), end(0)), (INVALID, "CONFLICT", "header")),
        ((header(), pb.ReportStateRequest(), end(0)), (INVALID, "FIELD_REQUIRED", "part")),
        ((header(0, 3), end(0)), (INVALID, "CONFLICT", "header.sequence")),
        ((header(replica_id=""), end(0)), (INVALID, "FIELD_REQUIRED", "header.replica_id")),
        ((header(model_id=""), end(0)), (INVALID, "FIELD_REQUIRED", "header.model_id")),
        ((header(tenant_id="t" * 129),), (INVALID, "FIELD_TOO_LONG", "header.tenant_id")),
        ((header(), EVICTED, end(1)), (INVALID, "VALUE_UNKNOWN", "entries.type")),
        (
            (header(), entries([2], replica_id="other"), end(1)),
            (INVALID, "CONFLICT", "entries.replica_id"),
        ),
        (
            (header(), entries([2], tenant_id="t"), end(1)),
            (INVALID, "CONFLICT", "entries.tenant_id"),
        ),
        (
            (header(), SHORT_KEY, end(1)),
            (INVALID, "HASH_LENGTH", "entries.content_hashes"),
        ),
        (
            (header(), entries([3]), BAD_VECTOR, end(2)),
            (INVALID, "EMBEDDING_VALUE", "entries.embeddings.values"),
        ),
    ],
)
async def test_anything_but_a_whole_report_changes_nothing(
    parts: Sequence[pb.ReportStateRequest], expected: tuple[str, str, str]
):
    """Each fault is named; what the producer holds stays as it was."""
    async with serving() as server, stub_of(server) as stub:
        await publish(stub, embedded([1], replica_id="pod"))
        assert server._store is not None
        revision = server._store.revision
        assert await refused(stub, *parts) == expected
        assert server._store.revision == revision
        assert server._service._reports.bytes == 0  # type: ignore[union-attr]


async def test_numbers_of_entries_are_ignored(stub: Stub):
    """Half of one too; and names that are the header's are no fault."""
    same = entries([3], replica_id="pod", model_id="m")
    assert (await report(stub, header(), HALF_NUMBERED, same, end(2))).holds_added == 2


async def test_repeats_count_in_the_end(stub: Stub):
    """The end counts what was sent, and a key twice is one hold."""
    response = await report(stub, header(), entries([1, 1]), entries([1], tier=HOST), end(3))
    assert response.holds_added == 2


async def test_vectors_of_one_width(stub: Stub):
    """Another width than the partition's, or than the report's own, fails all of it."""
    await publish(stub, embedded([1], replica_id="other"))
    wide, narrow = entries([2]), entries([3], adapter_id="new")
    wide.entries.embeddings.CopyFrom(rows([2], dimensions=8))
    narrow.entries.embeddings.CopyFrom(rows([3], dimensions=2))
    expected = ("INVALID_ARGUMENT", "DIMENSIONS_MISMATCH", "entries.embeddings.dimensions")
    assert await refused(stub, header(), wide, end(1)) == expected
    wide.entries.adapter_id = "new"
    assert await refused(stub, header(), wide, narrow, end(2)) == expected
    assert await held(stub, range(5)) == {}


async def test_a_client_that_goes_away_changes_nothing(server: Server, stub: Stub):
    """Before its end a report is nothing, however much of it has come."""
    await publish(stub, embedded([1], replica_id="pod"))
    assert server._store is not None
    revision = server._store.revision
    call = stub.ReportState()
    await call.write(header())
    await call.write(entries(range(100, 200)))
    service = server._service
    assert service is not None
    while not service._reports.bytes:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)
    call.cancel()
    while service._reports.bytes:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.005)
    assert server._store.revision == revision


async def test_a_report_on_its_way_does_not_hold_up_a_drain():
    """It is told to go elsewhere."""
    async with serving(grace_s=60) as server, stub_of(server) as stub:
        call = stub.ReportState()
        await call.write(header())
        await call.write(entries([1]))
        await stub.GetServerInfo(pb.GetServerInfoRequest())
        await server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason_of(caught.value) == "SHUTTING_DOWN"


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


# ---- large ones --------------------------------------------------------------------------


def blocks(numbers: range, **fields: object) -> pb.ReportStateRequest:
    event = event_pb2.CacheEvent(
        type=event_pb2.CacheEvent.EMBEDDED,
        hash_scheme="xxh3-chain/16",
        content_hashes=[chain_key(number) for number in numbers],
        token_count=16,
        **fields,  # type: ignore[arg-type]
    )
    return pb.ReportStateRequest(entries=event)


def whole(count: int, skip: int = 0) -> list[pb.ReportStateRequest]:
    starts = range(skip, count, 4096)
    parts = [blocks(range(start, min(start + 4096, count))) for start in starts]
    return [header(), *parts, end(count - skip)]


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
async def test_a_large_report_lets_others_have_their_turn(server: Server, stub: Stub, count: int):
    """All new, all the same, half of it gone: others are answered while it is applied."""
    store = server._store
    assert store is not None
    seen: set[int] = set()

    async def look_on() -> None:
        while True:
            await asyncio.sleep(0)
            model = store.index.models.get(("", "m"))
            seen.add(model.holders.holds_of("pod") if model else 0)

    looking = asyncio.create_task(look_on())
    first = await report(stub, *whole(count))
    assert (first.holds_added, first.holds_removed) == (count, 0)
    again = await report(stub, *whole(count))
    assert (again.holds_added, again.holds_removed) == (0, 0)
    half = await report(stub, *whole(count, skip=count // 2))
    assert (half.holds_added, half.holds_removed) == (0, count // 2)
    looking.cancel()
    assert (await replica(stub)).holds == count - count // 2
    # Somebody had a turn while one of them was half-way.
    assert seen - {0, count, count - count // 2}


async def test_a_publisher_meets_a_large_report_whole(server: Server, stub: Stub, monkeypatch):
    """An event that comes while one is applied is applied after it; its reporter may go away."""
    monkeypatch.setattr("warmindex.index.reports.HASHES_AT_ONCE", 10)
    store = server._store
    assert store is not None
    given_way = asyncio.Event()
    proceed = asyncio.Event()
    give_way = store.give_way

    async def slowly() -> None:
        given_way.set()
        await proceed.wait()

    call = stub.ReportState()
    await call.write(header())
    await call.write(blocks(range(4096)))
    await call.write(blocks(range(4096, 8192)))
    await asyncio.sleep(0.05)
    monkeypatch.setattr(store, "give_way", slowly)
    await call.write(end(8192))
    await given_way.wait()
    clear = event_pb2.CacheEvent(type=4, replica_id="pod", model_id="m")
    publishing = asyncio.create_task(publish(stub, clear))
    await asyncio.sleep(0.05)
    assert not publishing.done()
    call.cancel()
    await asyncio.sleep(0.05)
    proceed.set()
    monkeypatch.setattr(store, "give_way", give_way)
    (result,) = await publishing
    assert result.holds_changed == 8192


async def test_a_report_with_too_much_to_add(stub: Stub, monkeypatch: pytest.MonkeyPatch):
    """It says what to do: publish first, then there is little to add."""
    monkeypatch.setattr(staging, "REPORT_BYTES_MAX", 100_000)
    parts = whole(4096)
    status, reason, _ = await refused(stub, *parts)
    assert (status, reason) == ("RESOURCE_EXHAUSTED", "QUOTA")
    event = parts[1].entries
    event.replica_id, event.model_id = "pod", "m"
    await publish(stub, event)
    assert (await report(stub, *whole(4096))).holds_added == 0
