"""Several servers on other kinds of Redis: a user with few rights, a cluster, a new policy."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from support.claiming import ask, publish, release, states
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.serving import embedded, state_names
from support.several import servers_on, until

DOCS = Path(__file__).parents[3] / "docs" / "journals.md"


async def works(url: str, prefix: str) -> None:
    """Publish here, read there; claim, wait, release; one leader that takes a snapshot."""
    async with servers_on(url, prefix) as (one, other):
        result = await publish(one.stub, embedded([1]))
        answer = await other.stub.GetEmbeddings(ask([1], min_revision=result.revision))
        assert state_names(answer) == ["FOUND"]
        assert await states(one.stub, [2, 3], "a") == ["CLAIMED"] * 2
        call = asyncio.create_task(states(other.stub, [2], "b", wait_s=60))
        assert await states(other.stub, [3], "b") == ["PENDING"]
        assert await release(one.stub, [2], "a") == 1
        assert await call == ["CLAIMED"]
        await publish(one.stub, embedded([3]))
        (leader,) = [server for server in (one, other) if server.server._peers.leads]
        assert await leader.server._snapshots.take()


async def test_the_rights_that_the_documentation_gives_are_enough(own_redis):
    """The line is taken from there as it stands; whatever is refused is an error."""
    text = re.search(r"ACL SETUSER warmindex on >PASSWORD (.+?)\n\n", DOCS.read_text(), re.DOTALL)
    assert text is not None
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "warm", "on", ">pw", *text[1].split())
        client.execute_command("ACL", "LOG", "RESET")
        await works(f"redis://warm:pw@127.0.0.1:{own_redis.port}", "warmindex")
        refused = {entry[b"object"] for entry in client.execute_command("ACL", "LOG")}
        # The client library tells Redis its name, and can do without.
        assert refused <= {b"client"}


async def test_a_cluster(tmp_path):
    """All keys of a prefix lie on one node, claims and heartbeats with the journal."""
    node = RedisServer(tmp_path / "node", "--cluster-enabled", "yes").start()
    try:
        with node.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
            await until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        await works(f"redis+cluster://127.0.0.1:{node.port}", "warm")
    finally:
        node.kill()


@pytest.mark.parametrize("policy", ["allkeys-lru"])
async def test_a_policy_that_may_evict_the_journal_stops_publishes(own_redis, policy):
    """Where it is set while servers run they say so at the next look, and no longer than it is."""
    async with (
        Proxy(own_redis.port) as proxy,
        servers_on(f"redis://127.0.0.1:{proxy.port}") as (one, other),
    ):
        await publish(one.stub, embedded([1]))
        with own_redis.client() as client:
            client.config_set("maxmemory-policy", policy)
            proxy.cut()
            await until(lambda: policy in one.store.problem and policy in other.store.problem)
            assert await states(other.stub, [1, 2], "a") == ["FOUND", "ABSENT"]
            client.config_set("maxmemory-policy", "noeviction")
            await until(lambda: not one.store.problem and not other.store.problem)
        await publish(other.stub, embedded([2]))
