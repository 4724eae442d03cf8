"""Watches of several servers on one Redis: a cursor of one of them is good at the others."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.questions import content
from support.server import ServerHere, running
from support.watching import LIVE, RESET, Watcher
from warmindex.event import CacheEvent, EventType
from warmindex.index.selection import Selection
from warmindex_server.rpc import watch
from warmindex_server.rpc.cursors import CursorScope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from support.redis_server import RedisServer


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    from support.redis_server import RedisServer

    started = RedisServer(tmp_path / "redis").start()
    yield started
    started.kill()


@asynccontextmanager
async def two_on(redis_server: RedisServer) -> AsyncIterator[tuple[ServerHere, ServerHere]]:
    async with (
        running(journal=redis_server.url, grace_s=0.5) as one,
        running(journal=redis_server.url, grace_s=0.5) as other,
    ):
        yield one, other


def embedded(number: int) -> CacheEvent:
    return CacheEvent(
        type=EventType.EMBEDDED,
        replica_id="r",
        model_id="m",
        hash_scheme="own",
        content_hashes=[number.to_bytes(8, "big")],
    )


async def test_a_watch_goes_on_at_another_server(redis_server: RedisServer):
    """To and fro, without loss and without a reset."""
    async with two_on(redis_server) as servers, Watcher(servers[0].address) as watcher:
        await watcher.bookmark(LIVE)
        for number in range(10):
            here, there = servers[number % 2], servers[1 - number % 2]
            applied = await there.store.publish(embedded(number))
            await watcher.until(applied.revision)
            await watcher.disconnect()
            await there.store.publish(embedded(100 + number))
            await watcher.connect(there.address)
            assert here is not there
        await watcher.until(servers[0].store.revision)
        assert watcher.kinds().count(RESET) == 1
        assert watcher.content() == content(servers[1].store.index)


async def test_a_server_that_is_behind_a_cursor_waits_for_it(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    """It answers when it has come so far; what lies beyond the journal's end is a reset."""
    monkeypatch.setattr(watch, "CURSOR_WAIT_S", 1.0)
    async with two_on(redis_server) as (one, _):
        await one.store.publish(embedded(1))
        scope = CursorScope(one.store.history_id, Selection())
        ahead = scope.cursor(one.store.revision + 3)
        async with Watcher(one.address, cursor=ahead) as watcher:
            with pytest.raises(TimeoutError):
                await watcher.next(0.2)
            for number in range(2, 5):
                applied = await one.store.publish(embedded(number))
            live = await watcher.next()
            assert live is not None
            assert (live.bookmark.kind, live.revision) == (LIVE, applied.revision)
        beyond = scope.cursor(one.store.revision + 3)
        async with Watcher(one.address, cursor=beyond) as watcher:
            await watcher.bookmark(LIVE)
            assert watcher.kinds() == [RESET, LIVE]


async def test_a_journal_that_is_emptied_resets_every_watch(redis_server: RedisServer):
    """FLUSHALL is a new history: watchers of both servers forget what they know."""
    async with two_on(redis_server) as (one, other):
        await one.store.publish(embedded(1))
        async with Watcher(one.address) as here, Watcher(other.address) as there:
            for watcher in (here, there):
                await watcher.bookmark(LIVE)
            with redis_server.client() as client:
                client.flushall()
            for watcher in (here, there):
                await watcher.bookmark(LIVE)
                assert watcher.kinds() == [RESET, LIVE, RESET, LIVE]
                assert watcher.content() == {}
            await asyncio.sleep(0)
            applied = await one.store.publish(embedded(2))
            for watcher in (here, there):
                await watcher.until(applied.revision)
                assert len(watcher.content()) == 1
