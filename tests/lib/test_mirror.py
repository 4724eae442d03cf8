"""A mirror has what its servers have, whatever happens to them and to the way there."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import pytest_asyncio
from support.numbered import OWN, cleared, embedded, key, row
from support.proxy import Proxy
from support.questions import content
from support.server import ServerHere, running
from support.watching import until
from warmindex.client import IndexClient
from warmindex.event import Document, EventType, PartitionKey
from warmindex.index.index import Query
from warmindex.index.route import Reason as RouteReason
from warmindex.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = PartitionKey("", "m", OWN, "")
WAIT_S = 30


@asynccontextmanager
async def mirror_of(*servers: ServerHere, **fields: Any) -> AsyncIterator[Mirror]:
    addresses = ",".join(server.address for server in servers)
    async with IndexClient(addresses) as client, Mirror(client, **fields) as mirror:
        await mirror.ready(WAIT_S)
        yield mirror


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ServerHere]:
    """A fresh server in this process."""
    async with running(grace_s=0.5) as here:
        yield here


async def test_a_mirror_answers_as_its_server_does(server: ServerHere):
    """Vectors, documents and routes: from the snapshot, and after each change."""
    store = server.store
    texts = [Document("query", "ask a database"), Document("mail", "send a letter")]
    matrix = np.array([[1, 0], [0, 1]], np.float32)
    await store.publish(embedded(1, 2, embeddings=matrix, documents=texts, token_count=16))
    async with mirror_of(server, model_id="m") as mirror:
        applied = await store.publish(embedded(3, embeddings=row(2, 1), replica_id="s"))
        await mirror.reached(applied.revision, WAIT_S)
        assert content(mirror._index) == content(store.index)
        found = mirror.fetch(KEY, [key(3), key(9), key(1)])
        assert found.found == [True, False, True]
        assert np.frombuffer(found.values, np.float32).tolist() == [2, 1, 1, 0]
        assert [hit.content_hash for hit in mirror.search(KEY, Query(text="letter"))] == [key(2)]
        query = Query(embedding=row(0, 1)[0], limit=1)
        assert [hit.content_hash for hit in mirror.search(KEY, query)] == [key(2)]
        route = mirror.lookup(KEY, {OWN: [key(1), key(2), key(3)]})
        assert [(match.replica_id, match.blocks) for match in route.matches] == [("r", 2)]
        assert mirror.lookup(KEY, {OWN: [key(3)]}, replica_ids=["r"]).reason is RouteReason.NO_MATCH


async def test_a_mirror_follows_what_it_is_told_to(server: ServerHere):
    """One tenant, some adapters, without vectors."""
    store = server.store
    fields = {"tenant_id": "blue", "adapter_ids": ["a"], "embeddings": False}
    async with mirror_of(server, **fields) as mirror:
        for tenant_id in ("", "blue"):
            for adapter_id in ("", "a"):
                names = {"tenant_id": tenant_id, "adapter_id": adapter_id}
                await store.publish(embedded(1, **names, embeddings=row(1, 2)))
        await mirror.reached(store.revision, WAIT_S)
        ((place, entry),) = content(mirror._index).items()
        assert place.key == PartitionKey("blue", "m", OWN, "a")
        assert entry[1] is None


async def test_a_mirror_gives_back_what_clears_retire(server: ServerHere):
    """A clear is seen at once, and its memory is reclaimed in the background."""
    store = server.store
    await store.publish(embedded(*range(4000)))
    async with mirror_of(server) as mirror:
        applied = await store.publish(cleared())
        await mirror.reached(applied.revision, WAIT_S)
        assert mirror.lookup(KEY, {OWN: [key(1)]}).matches == ()
        await until(lambda: not mirror._index.reclaimable)
        assert mirror._index.partition(KEY) is None


async def test_a_mirror_works_on_while_the_server_is_away_and_resumes(tmp_path: Path):
    """It answers from its copy, says so, and catches up without a snapshot."""
    journal = f"sqlite:///{tmp_path}/journal"
    async with running(journal=journal, grace_s=2) as server:
        await server.store.publish(embedded(1, embeddings=row(1, 2)))
        port = server.server.port
        client = IndexClient(server.address)
        mirror = Mirror(client)
        mirror.start()
        await mirror.ready(WAIT_S)
        assert mirror.problem == ""
    await until(lambda: bool(mirror.problem))
    assert mirror.usable
    assert mirror.fetch(KEY, [key(1)]).rows == 1
    async with running(journal=journal, listen=f"127.0.0.1:{port}") as server:
        applied = await server.store.publish(embedded(2))
        await mirror.reached(applied.revision, WAIT_S)
        assert mirror.resets == 1
        assert content(mirror._index) == content(server.store.index)
        await mirror.close()
        await client.close()


async def test_a_mirror_goes_to_another_server(tmp_path: Path):
    """Of two that share a journal it follows the one that can be reached."""
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    from support.redis_server import RedisServer

    redis_server = RedisServer(tmp_path / "redis").start()
    try:
        async with (
            running(journal=redis_server.url, grace_s=1) as one,
            running(journal=redis_server.url, grace_s=1) as other,
            mirror_of(other, one) as mirror,
        ):
            await one.store.publish(embedded(1))
            await other.server.stop()
            applied = await one.store.publish(embedded(2))
            await mirror.reached(applied.revision, WAIT_S)
            assert mirror.resets == 1
            assert content(mirror._index) == content(one.store.index)
    finally:
        redis_server.kill()


@pytest.mark.parametrize("seed", range(3))
async def test_a_mirror_is_whole_however_often_its_connection_is_cut(server: ServerHere, seed: int):
    """In the snapshot, between changes, in the middle of a revision."""
    chance = random.Random(seed)
    store = server.store
    await store.publish(embedded(*range(500), embeddings=np.ones((500, 384), np.float32)))
    async with (
        Proxy(server.server.port) as proxy,
        IndexClient(f"127.0.0.1:{proxy.port}") as client,
        Mirror(client) as mirror,
    ):
        for turn in range(60):
            numbers = [chance.randrange(800) for _ in range(50)]
            names = {"replica_id": chance.choice("rs"), "adapter_id": chance.choice(("", "a"))}
            if chance.random() < 0.3:
                sweep = {"type": EventType.EVICTED, "hash_scheme": "", "adapter_id": ""}
                await store.publish(embedded(*numbers, **(names | sweep)))
            else:
                matrix = np.full((50, 384), turn + 2, np.float32)
                rows = len(set(numbers))
                await store.publish(embedded(*set(numbers), embeddings=matrix[:rows], **names))
            await asyncio.sleep(chance.choice((0, 0, 0.005)))
            if chance.random() < 0.15:
                proxy.cut()
        await store.publish(embedded(1000))
        await mirror.reached(store.revision, WAIT_S)
        assert content(mirror._index) == content(store.index)


async def test_a_new_history_gives_a_new_copy(tmp_path: Path):
    """What the servers have lost, the mirror forgets too, once the new copy is whole."""
    async with running(grace_s=1) as server:
        port = server.server.port
        await server.store.publish(embedded(1))
        client = IndexClient(server.address)
        mirror = Mirror(client)
        mirror.start()
        await mirror.ready(WAIT_S)
    async with running(listen=f"127.0.0.1:{port}") as server:
        applied = await server.store.publish(embedded(2))
        await mirror.reached(applied.revision, WAIT_S)
        assert mirror.resets == 2
        assert content(mirror._index) == content(server.store.index)
        await mirror.close()
        await client.close()
    assert mirror.problem == "closed"
    assert mirror.fetch(KEY, [key(2)]).found == [False]


async def test_a_client_that_is_closed_first_is_told_of(server: ServerHere):
    """The mirror does not go on as if it followed; nor does it end quietly."""
    client = IndexClient(server.address)
    async with Mirror(client) as mirror:
        await mirror.ready(WAIT_S)
        await client.close()
        await until(lambda: "closed here" in mirror.problem or mirror.resets > 1)
        assert mirror._task is not None
        assert not mirror._task.done()
    await client.close()
