"""Reports that are not whole, or not valid: they change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

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
    report,
)
from support.serving import embedded, reason_of, rows, serving, stub_of
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server

HOST = event_pb2.CACHE_TIER_HOST


@pytest.fixture(params=["memory", "sqlite"])
async def server(request: pytest.FixtureRequest, tmp_path) -> AsyncIterator[Server]:
    journal = "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"
    async with serving(journal) as server:
        yield server


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Stub]:
    async with stub_of(server) as stub:
        yield stub


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
