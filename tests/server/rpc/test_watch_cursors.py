"""Cursors of watches: they go on where they stood, or say that they cannot; they never jump."""

from __future__ import annotations

import base64
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from support.numbered import cleared, embedded, evicted
from support.questions import content
from support.server import ServerHere, running
from support.watching import LIVE, RESET, Watcher
from warmindex.event import EventType, Tier
from warmindex.index.selection import Selection
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.rpc.cursors import CursorScope
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


@pytest.mark.parametrize("seed", range(4))
async def test_a_watch_resumes_without_loss_and_without_repeat(server: ServerHere, seed: int):
    """However often the connection breaks, and whatever happens meanwhile."""
    chance = random.Random(seed)
    store = server.store
    async with Watcher(server.address, adapter_ids=["", "a"]) as watcher:
        for _ in range(60):
            some = [chance.randrange(12) for _ in range(3)]
            names = {
                "replica_id": chance.choice("rst"),
                "adapter_id": chance.choice(("", "a", "b")),
            }
            make = chance.choice((embedded, embedded, evicted))
            await store.publish(make(*some, **names, tier=chance.choice((Tier.DEVICE, Tier.HOST))))
            if chance.random() < 0.1:
                await store.publish(cleared(replica_id=chance.choice("rst")))
            if chance.random() < 0.3:
                sweep = {"hash_scheme": "", "tier": Tier.UNSPECIFIED, "replica_id": "r"}
                await store.publish(evicted(*some, **sweep))
            for _ in range(chance.randrange(3)):
                with suppress(TimeoutError):
                    await watcher.next(0.05)
            if chance.random() < 0.3:
                await watcher.disconnect()
                await watcher.connect()
        await store.publish(embedded(99))
        await watcher.until(store.revision)
        assert watcher.content() == {
            place: entry
            for place, entry in content(store.index).items()
            if place.key.adapter_id in ("", "a")
        }
        assert watcher.kinds().count(RESET) <= watcher.begun


async def test_a_cursor_means_what_it_meant(server: ServerHere):
    """Whoever hands one back gets exactly the responses that came after it, again and again."""
    store = server.store
    async with Watcher(server.address) as first:
        await first.bookmark(LIVE)
        for number in range(20):
            await store.publish(embedded(number, number + 1, adapter_id=str(number % 3)))
        sweep = embedded(5, type=EventType.EVICTED, hash_scheme="", replica_id="r")
        await store.publish(sweep)
        await store.publish(embedded(99))
        await first.until(store.revision)
    told = first.responses
    for position, response in enumerate(told):
        if not response.cursor:
            continue
        again = server.stub.WatchEvents(pb.WatchEventsRequest(cursor=response.cursor))
        live = await again.read()
        assert live.bookmark.kind == LIVE
        assert (live.cursor, live.revision) == (response.cursor, response.revision)
        rest = [await again.read() for _ in told[position + 1 :]]
        again.cancel()
        assert rest == told[position + 1 :]


def foreign_cursors(server: ServerHere) -> dict[str, str]:
    store = server.store
    scope = CursorScope(store.history_id, Selection())
    return {
        "none": "",
        "no base64": "%%%",
        "not ASCII": "é",
        "too short": base64.urlsafe_b64encode(b"short").decode(),
        "random": base64.urlsafe_b64encode(bytes(24)).decode(),
        "another history": CursorScope("other", Selection()).cursor(store.revision),
        "another request": CursorScope(store.history_id, Selection("blue")).cursor(store.revision),
        "beyond the end": scope.cursor(store.revision + 1),
        "far beyond": scope.cursor(2**64 - 1),
        "long": "x" * 100_000,
    }


async def test_a_cursor_that_cannot_be_followed_gets_a_reset_and_a_snapshot(server: ServerHere):
    """Whatever is the matter with it: never an error, never a silent jump."""
    await server.store.publish(embedded(1))
    for name, cursor in foreign_cursors(server).items():
        async with Watcher(server.address, cursor=cursor) as watcher:
            await watcher.bookmark(LIVE)
            assert watcher.kinds() == [RESET, LIVE], name
            assert watcher.content() == content(server.store.index), name


@pytest.mark.parametrize(
    "changed",
    [
        {"tenant_id": "blue"},
        {"model_id": "m"},
        {"adapter_ids": ["a"]},
        {"adapter_ids": ["a", "b", "c"]},
        {"omit_embeddings": True},
        {"omit_documents": True},
    ],
    ids=str,
)
async def test_a_cursor_is_bound_to_the_request(server: ServerHere, changed: dict[str, Any]):
    """With another filter it is as good as none; the order of adapters is no other filter."""
    async with Watcher(server.address, adapter_ids=["a", "b"]) as watcher:
        cursor = (await watcher.bookmark(LIVE)).cursor
    async with Watcher(server.address, adapter_ids=["b", "a", "b"], cursor=cursor) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [LIVE]
    fields = {"adapter_ids": ["a", "b"], "cursor": cursor, **changed}
    async with Watcher(server.address, **fields) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE]


async def test_a_cursor_older_than_what_is_kept_gets_a_reset(server: ServerHere):
    """And one that is not that old does not."""
    keep_little(server)
    async with Watcher(server.address) as watcher:
        old = (await watcher.bookmark(LIVE)).cursor
        for number in range(100):
            await server.store.publish(embedded(number))
        await watcher.until(server.store.revision)
        recent = watcher.cursor
    async with Watcher(server.address, cursor=old) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE]
        assert watcher.content() == content(server.store.index)
    async with Watcher(server.address, cursor=recent) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [LIVE]


async def test_a_watch_resumes_after_a_restart_of_the_server(tmp_path: Path):
    """What is replayed fills the log, so that a watcher goes on where it stood."""
    journal = f"sqlite:///{tmp_path}/journal"
    async with running(journal=journal) as server:
        await server.store.publish(embedded(1))
        watcher = Watcher(server.address)
        await watcher.connect()
        await watcher.bookmark(LIVE)
        await watcher.disconnect()
        await server.store.publish(embedded(2))
    async with running(journal=journal) as server:
        await watcher.connect(server.address)
        last = await server.store.publish(embedded(3))
        await watcher.until(last.revision)
        assert watcher.kinds() == [RESET, LIVE, LIVE]
        assert watcher.content() == content(server.store.index)
        await watcher.disconnect()
