"""Watches that fall behind, other histories, servers that go; sizes, and what is shared."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from support.numbered import OWN, embedded, evicted, key, vectors
from support.questions import content
from support.server import ServerHere, running
from support.watching import CLOSING, LIVE, RESET, Watcher
from warmindex import limits
from warmindex.event import PartitionKey, Tier
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub
from warmindex_server.journal.memory import MemoryJournal
from warmindex_server.watch import EffectLog

if TYPE_CHECKING:
    from pathlib import Path

    from warmindex_server.store import Store


def keep_little(server: ServerHere, kept_bytes: int = 20_000) -> None:
    """Let the server forget soon what it did."""
    store = server.store
    store.log.replace(EffectLog(store.revision, kept_bytes, kept_bytes), store.revision)
    store.log._kept_bytes = store.log._held_bytes = kept_bytes


def followers_of(store: Store) -> int:
    return sum(stream.followers for stream in store.log._streams.values())


# ---- falling behind, other histories, the end ----------------------------------------------


async def test_a_watcher_that_falls_behind_begins_anew(server: ServerHere):
    """It is told to forget, and gets a snapshot; nothing it saw in between is wrong."""
    keep_little(server, 2_000_000)
    store = server.store
    row = np.ones((1, 8192), np.float32)
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        for number in range(2_000):
            await store.publish(embedded(number % 300, embeddings=row * (number + 1)))
        await store.publish(embedded(1000))
        while watcher.content() != content(store.index):
            assert await watcher.next() is not None
        assert watcher.kinds().count(RESET) > 1


async def test_a_watcher_that_does_not_read_costs_no_memory(server: ServerHere):
    """The log keeps what it keeps, and the snapshot that was open is given up."""
    keep_little(server, 2_000_000)
    store = server.store
    for number in range(300):
        await store.publish(embedded(number, embeddings=np.ones((1, 8192), np.float32)))
    async with Watcher(server.address) as watcher:
        await watcher.next()
        assert store.index.versions.layer is not None
        for number in range(1_000):
            row = np.full((1, 8192), number + 2, np.float32)
            await store.publish(embedded(number % 300, embeddings=row))
        assert store.log.size_bytes <= 2_000_000
        while not watcher.live or watcher.content() != content(store.index):
            assert await watcher.next() is not None
        assert watcher.kinds().count(RESET) > 1
    assert store.index.versions.layer is None


async def test_a_new_history_resets_every_watch(server: ServerHere):
    """What a watcher has is of another history: it forgets it."""
    store = server.store
    await store.publish(embedded(1))
    async with Watcher(server.address) as live, Watcher(server.address, tenant_id="t") as other:
        old = (await live.bookmark(LIVE)).cursor
        await other.bookmark(LIVE)
        store.journal = MemoryJournal()
        await store.load()
        for watcher in (live, other):
            await watcher.bookmark(LIVE)
            assert watcher.kinds() == [RESET, LIVE, RESET, LIVE]
        assert live.content() == {}
    async with Watcher(server.address, cursor=old) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE]


async def test_an_index_that_is_loaded_again_in_the_same_history_disturbs_no_watch(
    tmp_path: Path,
):
    """The log that was replayed reaches back to where the watcher stands."""
    async with running(journal=f"sqlite:///{tmp_path}/journal") as server:
        store = server.store
        await store.publish(embedded(1))
        async with Watcher(server.address) as watcher:
            await watcher.bookmark(LIVE)
            await store.load()
            applied = await store.publish(embedded(2))
            await watcher.until(applied.revision)
            assert watcher.kinds() == [RESET, LIVE]
            assert watcher.content() == content(store.index)


async def test_a_server_that_goes_away_says_so(tmp_path: Path):
    """KIND_CLOSING with a cursor, then the end; within the grace, however quiet the watch."""
    async with running(journal=f"sqlite:///{tmp_path}/journal", grace_s=10) as server:
        await server.store.publish(embedded(1))
        async with Watcher(server.address) as watcher:
            await watcher.bookmark(LIVE)
            applied = await server.store.publish(embedded(2))
            await watcher.until(applied.revision)
            stopping = asyncio.create_task(server.server.stop())
            closing = await watcher.next()
            assert closing is not None
            assert closing.bookmark.kind == CLOSING
            assert closing.cursor == watcher.responses[-2].cursor
            assert closing.revision == applied.revision
            assert await watcher.next() is None
            assert await watcher._call.code() is grpc.StatusCode.OK
            await stopping


async def test_a_watch_that_is_hung_up_leaves_nothing_behind(server: ServerHere):
    """Neither a follower nor an open snapshot."""
    store = server.store
    for number in range(300):
        await store.publish(embedded(number, embeddings=np.ones((1, 8192), np.float32)))
    for responses in (1, 2, 400):
        async with Watcher(server.address, tenant_id="") as watcher:
            for _ in range(responses):
                if not watcher.live:
                    await watcher.next()
        async with asyncio.timeout(10):
            while store.index.versions.layer or followers_of(store):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        assert not store.log._snapshots


# ---- sizes and sharing -----------------------------------------------------------------------


async def test_a_large_snapshot_comes_in_pages_of_one_revision(server: ServerHere):
    """3000 x 1024 float32 to a client with default limits, while others publish."""
    store = server.store
    for start in range(0, 3000, 500):
        matrix = vectors(500, 1024) + start
        await store.publish(embedded(*range(start, start + 500), embeddings=matrix))
    expected = content(store.index)
    async with Watcher(server.address) as watcher:
        first = await watcher.next()
        assert first is not None
        for start in range(0, 3000, 100):
            await store.publish(evicted(*range(start, start + 50)))
            await store.publish(embedded(start + 7, embeddings=vectors(1, 1024) - 9))
        await watcher.bookmark(LIVE)
        assert {response.revision for response in watcher.responses} == {first.revision}
        assert watcher.content() == expected
        await watcher.until(store.revision)
        assert watcher.content() == content(store.index)


async def test_an_effect_too_large_for_a_message_is_split(server: ServerHere):
    """Only the last part has the cursor, and together they are the effect."""
    event = embedded(*range(4096), embeddings=vectors(4096, 384))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        applied = await server.store.publish(event)
        await watcher.until(applied.revision)
        told = watcher.responses[2:]
        assert len(told) > 1
        assert [bool(response.cursor) for response in told] == [*[False] * (len(told) - 1), True]
        assert all(each.event.ByteSize() <= limits.EVENT_BYTES_MAX for each in told)
        assert watcher.content() == content(server.store.index)


async def test_many_watchers_of_the_same_cost_one_encoding(server: ServerHere):
    """Each change is encoded once for all of them; watchers of others are not even woken."""
    encoder = server.server._service._watches.encoder
    watchers = [Watcher(server.address, model_id="m") for _ in range(20)]
    for watcher in watchers:
        await watcher.connect()
        await watcher.bookmark(LIVE)
    async with Watcher(server.address, model_id="other") as other:
        await other.bookmark(LIVE)
        before = encoder.encoded
        for number in range(50):
            await server.store.publish(embedded(number))
        for watcher in watchers:
            await watcher.until(server.store.revision)
            assert watcher.content() == content(server.store.index)
        assert encoder.encoded - before == 50
        assert not other.events()
    for watcher in watchers:
        await watcher.disconnect()


async def test_one_snapshot_page_names_a_partition_and_its_holders(server: ServerHere):
    """What a copy needs to answer as the server does."""
    await server.store.publish(embedded(1, adapter_id="a", tier=Tier.HOST, token_count=16))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        partition = watcher.copy.partition(PartitionKey("", "m", OWN, "a"))
        assert partition is not None
        assert partition.tokens.get(key(1)) == 16


@pytest.mark.slow
async def test_a_quiet_watch_survives_a_client_that_pings():
    """Pings every ten seconds on an idle stream, for 90 s, are no reason to hang up."""
    options = (
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )
    async with (
        running() as server,
        grpc.aio.insecure_channel(server.address, options) as channel,
    ):
        server.server._service._watches.idle_s = 1000
        call = IndexServiceStub(channel).WatchEvents(pb.WatchEventsRequest())
        assert [(await call.read()).bookmark.kind for _ in range(2)] == [RESET, LIVE]
        await asyncio.sleep(90)
        await server.store.publish(embedded(1))
        assert list((await call.read()).event.content_hashes) == [key(1)]
        call.cancel()
