"""Reports of a size at which they could hold up everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.reporting import (
    Stub,
    blocks,
    end,
    header,
    publish,
    refused,
    replica,
    report,
    whole,
)
from support.serving import serving, stub_of
from warmindex.v1 import event_pb2
from warmindex_server.app import Server
from warmindex_server.reports import staging


@pytest.fixture(params=["memory", "sqlite"])
async def server(request: pytest.FixtureRequest, tmp_path) -> AsyncIterator[Server]:
    journal = "memory" if request.param == "memory" else f"sqlite:///{tmp_path}/journal.db"
    async with serving(journal) as server:
        yield server


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Stub]:
    async with stub_of(server) as stub:
        yield stub


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
