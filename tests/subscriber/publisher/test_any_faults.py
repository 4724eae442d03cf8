"""Faults of every kind, in any order: kill -9, a stopped server, cut and silent connections."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.proxy import Proxy
from support.publishing import Source, until_same
from support.restarting import RestartingServer

ROUNDS = 12


class Faults:
    """What can go wrong between a publisher and its server."""

    def __init__(self, server: RestartingServer, proxy: Proxy, source: Source) -> None:
        self.server, self.proxy, self.source = server, proxy, source
        self.random = source.random
        self.saying: list[asyncio.Task[None]] = []

    async def a_while(self) -> None:
        """Let things take their course, for a random time."""
        await self.source.say_something(self.random.randint(0, 60))
        await asyncio.sleep(self.random.random() / 5)

    async def a_while_at_most(self) -> None:
        """The same where the server may not answer: a report that waits for it, and all that
        waits for the report, goes on later.
        """
        saying = asyncio.create_task(self.a_while())
        await asyncio.wait({saying}, timeout=self.random.random() * 2)
        self.saying.append(saying)

    async def cut(self) -> None:
        self.proxy.cut()

    async def lose_answers(self) -> None:
        self.proxy.lose_answers = self.random.randint(1, 3)

    async def fall_silent(self) -> None:
        self.proxy.pause()
        await self.a_while_at_most()
        if self.random.random() < 0.5:
            self.proxy.cut()
        self.proxy.go_on()

    async def kill(self) -> None:
        await self.server.kill()
        await self.a_while()
        await self.server.start()

    async def stop_and_go_on(self) -> None:
        assert self.server.process is not None
        self.server.process.signal(signal.SIGSTOP)
        try:
            await self.a_while_at_most()
        finally:
            self.server.process.signal(signal.SIGCONT)

    async def report(self) -> None:
        """A source may report whenever it likes."""
        await self.source.report(self.random.choice(self.source.replica_ids))


@pytest.mark.slow
@pytest.mark.parametrize("journal", ["memory", "sqlite"])
@pytest.mark.parametrize("seed", [random.randrange(10**9)], ids=["any seed"])
async def test_after_any_faults_the_index_has_what_was_said(
    journal: str, seed: int, tmp_path: Path
):
    """Whatever was acknowledged, lost, sent twice or forgotten meanwhile."""
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    source = Source("pod-1", "pod-2", "pod-3", seed=seed)
    url = f"sqlite:///{tmp_path / 'journal'}" if journal == "sqlite" else journal
    async with (
        RestartingServer(f"--journal={url}") as server,
        Proxy(int(server.address.rpartition(":")[2])) as proxy,
        source.publishing(
            f"127.0.0.1:{proxy.port}", lease_s=1.0, message_events_max=5, buffer_bytes_max=50_000
        ) as publisher,
    ):
        faults = Faults(server, proxy, source)
        kinds: list[Callable[[], Awaitable[None]]] = [
            *(faults.cut, faults.lose_answers, faults.fall_silent),
            *(faults.kill, faults.stop_and_go_on, faults.report),
        ]
        for _ in range(ROUNDS):
            await faults.a_while()
            await source.random.choice(kinds)()
        proxy.lose_answers = 0
        await asyncio.gather(*faults.saying)
        await until_same(source, server.address)
        assert publisher.counters.refused == 0
