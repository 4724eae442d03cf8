"""Engine, sidecar and server as processes: what LookupRoute says is what the engine holds.

And again after each of them was killed, restarted, or sent away.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
from support.engine_fleet import MODEL, Command, FakeEngine, agree
from support.publishing import until
from support.restarting import RestartingServer
from warmindex.client import IndexClient

pytestmark = pytest.mark.slow


def sidecar(engine: FakeEngine, server: str, replica: str = "pod", *flags: str) -> Command:
    return Command(
        *("kv", "--server", server, "--model", MODEL, "--replica", replica, "--lease", "3"),
        *("--endpoint", engine.endpoint, "--replay-endpoint", engine.replay_endpoint, *flags),
    )


@pytest.fixture
async def server() -> AsyncIterator[RestartingServer]:
    async with RestartingServer() as started:
        yield started


@pytest.fixture
async def client(server: RestartingServer) -> AsyncIterator[IndexClient]:
    async with IndexClient(server.address) as opened:
        yield opened


async def entries(client: IndexClient) -> int:
    return sum(each.entries for each in await client.partitions(model_id=MODEL))


async def until_entries(client: IndexClient, count: int) -> None:
    async with asyncio.timeout(60):
        while await entries(client) != count:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def test_two_engines_each_with_its_sidecar(server: RestartingServer, client: IndexClient):
    """Runs of both, in every adapter, to the block."""
    async with (
        FakeEngine(seed=1) as one,
        FakeEngine(seed=2) as two,
        sidecar(one, server.address, "pod-1"),
        sidecar(two, server.address, "pod-2"),
    ):
        await agree(client, pod_1=one, pod_2=two)


async def test_a_sidecar_that_comes_back(server: RestartingServer, client: IndexClient):
    """SIGTERM: exit code 0, and all it knew is published. A new one learns everything anew."""
    async with FakeEngine() as engine, sidecar(engine, server.address) as command:
        await agree(client, pod=engine)
        assert await command.end() == 0
        assert "Traceback" not in command.log
        assert "publisher: accepted=" in command.log, "counters are in the log"
        assert "no index has acknowledged" not in command.log
        command.start()
        await agree(client, pod=engine)
        await command.end(signal.SIGKILL)
        command.start()
        await agree(client, pod=engine)


async def test_a_server_that_comes_back_empty(server: RestartingServer, client: IndexClient):
    """It has another history: the sidecar reports all that its engine holds."""
    async with FakeEngine() as engine, sidecar(engine, server.address) as command:
        await agree(client, pod=engine)
        await server.kill()
        await asyncio.sleep(0.5)
        await server.start()
        await agree(client, pod=engine)
        await command.logged("another history")


async def test_an_engine_that_comes_back(server: RestartingServer, client: IndexClient):
    """kill -9 and another process on its ports: nothing of its last life is left."""
    async with FakeEngine() as engine, sidecar(engine, server.address):
        await agree(client, pod=engine)
        await engine.end(signal.SIGKILL)
        engine.start()
        await agree(client, pod=engine)
        engine.send(signal.SIGUSR2)
        await agree(client, pod=engine)


async def test_a_pod_that_dies(server: RestartingServer, client: IndexClient):
    """Engine and sidecar are gone without a word: the lease ends, and the holds with it."""
    async with FakeEngine() as engine, sidecar(engine, server.address) as command:
        await agree(client, pod=engine)
        assert await entries(client)
        await engine.end(signal.SIGKILL)
        await command.end(signal.SIGKILL)
        await until_entries(client, 0)


async def test_an_engine_that_dies_alone(server: RestartingServer, client: IndexClient):
    """The sidecar lives, and with it the lease; it notices, and clears."""
    async with FakeEngine() as engine, sidecar(engine, server.address) as command:
        await agree(client, pod=engine)
        await engine.end(signal.SIGKILL)
        await until_entries(client, 0)
        await command.logged("the publisher is away")


async def test_a_sidecar_ends_although_the_index_is_away(server: RestartingServer):
    """SIGTERM is heeded: what cannot be flushed in time is said, and the exit code is 0."""
    async with (
        FakeEngine(rate=200) as engine,
        sidecar(engine, server.address, "pod", "--clear-at-end") as command,
    ):
        await command.logged("publishing to")
        await server.kill()
        await command.logged("publishing to .* failed")
        assert await command.end() == 0
        assert "no index has acknowledged" in command.log


async def test_a_sidecar_clears_at_its_end_if_it_is_told_so(
    server: RestartingServer, client: IndexClient
):
    """For engines that end too: nobody has to wait for the lease."""
    async with (
        FakeEngine() as engine,
        sidecar(engine, server.address, "pod", "--clear-at-end", "--lease", "0") as command,
    ):
        await agree(client, pod=engine)
        assert await command.end() == 0
        assert await entries(client) == 0


async def test_a_newer_sidecar_takes_over(server: RestartingServer, client: IndexClient):
    """The older one says so, and ends with exit code 1: two must not speak for one replica."""
    async with (
        FakeEngine() as engine,
        sidecar(engine, server.address) as old,
    ):
        await agree(client, pod=engine)
        async with sidecar(engine, server.address) as new:
            await old.logged("a newer life of 'pod' has published")
            await until(lambda: old._process is not None and old._process.poll() == 1)
            await agree(client, pod=engine)
            assert await new.end() == 0
