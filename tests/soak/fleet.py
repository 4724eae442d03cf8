"""A fleet: servers behind proxies on one journal, producers and watchers as processes."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from soak.disk import Disk
from soak.plan import Plan
from soak.processes import Server, Worker
from support.proxy import Proxy
from support.redis_server import RedisServer, free_port

PREFIX = "soak"
# A server may have begun to start while Redis was away, and end only now.
EXCUSED_S = 15.0


class Fleet:
    """See the module's text."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.random = random.Random(plan.seed)
        self.disk: Disk | None = None
        self.redis: RedisServer | None = None
        self.redis_proxy: Proxy | None = None
        self.redis_busy = asyncio.Lock()
        self.excused_until = 0.0
        self.servers: list[Server] = []
        self.proxies: list[Proxy] = []
        self.addresses: list[str] = []  # behind the proxies' backs
        self.producers: list[Worker] = []
        self.followers: list[Worker] = []

    @property
    def url(self) -> str:
        """The journal's, as the servers know it."""
        if self.plan.journal == "redis":
            assert self.redis_proxy is not None
            return f"redis://127.0.0.1:{self.redis_proxy.port}"
        return self.own_url

    @property
    def own_url(self) -> str:
        """The journal's, with nothing in between."""
        if self.plan.journal == "sqlite":
            assert self.disk is not None
            return f"sqlite:///{self.disk.folder / 'journal'}"
        return self.redis.url if self.redis is not None else "memory"

    def excused(self) -> bool:
        """Whether a server may fail to start just now."""
        return time.monotonic() < self.excused_until or bool(self.disk and self.disk.full)

    def excuse(self) -> None:
        """Servers may fail to start for a while."""
        self.excused_until = time.monotonic() + EXCUSED_S

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of it, from start to end."""
        async with AsyncExitStack() as stack:
            await self._open_journal(stack)
            for number in range(self.plan.servers):
                self._add_server(f"server{number}")
            stack.push_async_callback(self._end_all)
            await asyncio.gather(*(server.start() for server in self.servers))
            for address in self.addresses:
                proxy = Proxy(int(address.rpartition(":")[2]))
                self.proxies.append(await stack.enter_async_context(proxy))
            self._add_workers()
            workers = self.producers + self.followers
            await asyncio.gather(*(worker.start() for worker in workers))
            await asyncio.gather(*(worker.begun() for worker in workers))
            yield

    async def _open_journal(self, stack: AsyncExitStack) -> None:
        if self.plan.journal == "sqlite":
            self.disk = Disk(self.folder / "disk")
            stack.callback(self.disk.close)
        elif self.plan.journal == "redis":
            self.redis = await asyncio.to_thread(RedisServer(self.folder / "redis").start)
            stack.callback(self.redis.kill)
            self.redis_proxy = await stack.enter_async_context(Proxy(self.redis.port))

    def _add_server(self, name: str) -> None:
        address = f"127.0.0.1:{free_port()}"
        plan = self.plan
        kept = (plan.snapshot_records, plan.keep_records, plan.keep_bytes)
        words = ["soak.server", *map(str, kept)]
        words += ["--listen", address, "--http-listen", "127.0.0.1:0", "--grace", "1"]
        words += ["--journal", self.url, "--redis-prefix", PREFIX, "--log-level", "warning"]
        self.servers.append(Server(name, self.folder, words, self.excused))
        self.addresses.append(address)

    def _add_workers(self) -> None:
        def worker(name: str, kind: str, **settings: Any) -> Worker:
            servers = [f"127.0.0.1:{proxy.port}" for proxy in self.proxies]
            self.random.shuffle(servers)
            settings |= {"seed": self.random.randrange(10**9), "servers": servers}
            return Worker(name, self.folder, f"soak.{kind}", settings)

        for number, (replica, tenant) in enumerate(self.plan.speakers):
            name = f"speaker{number}"
            self.producers.append(worker(name, "speaker", replica=replica, tenant=tenant))
        for number in range(self.plan.sources):
            self.producers.append(
                worker(
                    f"source{number}",
                    "source",
                    replicas=["pod-1", "pod-2"],
                    lease_s=self.plan.lease_s,
                )
            )
        for number, view in enumerate(self.plan.views):
            self.followers.append(worker(f"follower{number}", "follower", view=view))

    async def _end_all(self) -> None:
        for process in (*self.producers, *self.followers, *self.servers):
            process.send(signal.SIGCONT)
            await process.end()
        if self.redis is not None and self.redis.process is not None:
            self.redis.go_on()

    def check_alive(self) -> None:
        """Nothing ends by itself."""
        for process in (*self.producers, *self.followers, *self.servers):
            assert not (process.up and process.dead), f"{process.name} ended: {process.tail()}"
