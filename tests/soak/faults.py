"""What goes wrong in a run: one fault or two at a time, each begun and ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

from soak.fleet import Fleet
from soak.processes import Process

FAULT_S_MAX = 1.2
CALM_S_MAX = 0.8
# A fault that nobody notices any more has not been one.
REDIS_AWAY_S_MAX = 2.5


class Faults:
    """Faults of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.random = fleet.random
        self.happened: list[str] = []
        kinds: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.kill_server, 4),
            (self.kill_server_twice, 1),
            (self.stop_server, 1),
            (self.pause_server, 2),
            (self.cut, 3),
            (self.lose_answers, 2),
            (self.delay, 2),
            (self.kill_worker, 2),
            (self.pause_worker, 1),
        ]
        if fleet.disk is not None:
            kinds.append((self.fill_disk, 4))
        if fleet.redis is not None:
            kinds += [(self.kill_redis, 3), (self.pause_redis, 2), (self.cut_redis, 3)]
            if fleet.plan.loses_data:
                kinds.append((self.empty_redis, 3))
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight for _, weight in kinds]

    async def run(self, seconds: float) -> None:
        """Faults for a while; afterwards everything runs again."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            count = self.random.choice((1, 1, 2))
            chosen = self.random.choices(self._kinds, self._weights, k=count)
            self.happened += [each.__name__ for each in chosen]
            await asyncio.gather(*(each() for each in chosen))
            self.fleet.check_alive()
            await asyncio.sleep(self.random.random() * CALM_S_MAX)
        for proxy in self.fleet.proxies:
            proxy.lose_answers = 0

    async def _while(self, longest_s: float = FAULT_S_MAX) -> None:
        await asyncio.sleep(self.random.random() * longest_s)

    # ---- servers -------------------------------------------------------------------------

    async def kill_server(self) -> None:
        """kill -9, and a start after a while."""
        server = self.random.choice(self.fleet.servers)
        async with server.busy:
            await server.end(signal.SIGKILL)
            await self._while()
            await server.start()

    async def kill_server_twice(self) -> None:
        """Killed again while it starts."""
        server = self.random.choice(self.fleet.servers)
        async with server.busy:
            await server.end(signal.SIGKILL)
            await server.spawn()
            await self._while(3 * FAULT_S_MAX)
            await server.end(signal.SIGKILL)
            await server.start()

    async def stop_server(self) -> None:
        """SIGTERM, as a roll-out does."""
        server = self.random.choice(self.fleet.servers)
        async with server.busy:
            code = await server.end(signal.SIGTERM)
            assert code == 0, f"{server.name} ended with {code}: {server.tail()}"
            await server.start()

    async def pause_server(self) -> None:
        """SIGSTOP, so that connections stay open and nothing is answered."""
        await self._pause(self.random.choice(self.fleet.servers), 2 * FAULT_S_MAX)

    async def _pause(self, process: Process, longest_s: float) -> None:
        async with process.busy:
            process.send(signal.SIGSTOP)
            try:
                await self._while(longest_s)
            finally:
                process.send(signal.SIGCONT)

    async def fill_disk(self) -> None:
        """A full disk, maybe with a kill -9 while it is full."""
        (server,) = self.fleet.servers
        disk = self.fleet.disk
        assert disk is not None
        async with server.busy:
            disk.fill(server.pid, server.log)
            try:
                await self._while(2 * FAULT_S_MAX)
                if self.random.random() < 0.4:
                    await server.end(signal.SIGKILL)
            finally:
                disk.free(server.pid)
            if server.dead:
                await server.start()

    # ---- connections -----------------------------------------------------------------------

    async def cut(self) -> None:
        """Every connection to a server ends."""
        self.random.choice(self.fleet.proxies).cut()

    async def lose_answers(self) -> None:
        """What is asked arrives, and what is answered does not."""
        self.random.choice(self.fleet.proxies).lose_answers = self.random.randint(1, 5)

    async def delay(self) -> None:
        """Nothing comes through for a while; then all of it, or a cut."""
        proxy = self.random.choice(self.fleet.proxies)
        proxy.pause()
        await self._while(2 * FAULT_S_MAX)
        if self.random.random() < 0.4:
            proxy.cut()
        proxy.go_on()

    # ---- producers and watchers --------------------------------------------------------------

    async def kill_worker(self) -> None:
        """kill -9 of a producer or a watcher; another life takes its place."""
        worker = self.random.choice(self.fleet.producers + self.fleet.followers)
        async with worker.busy:
            await worker.end(signal.SIGKILL)
            await self._while()
            await worker.start()
            await worker.begun()

    async def pause_worker(self) -> None:
        """A producer that lags, or a slow watcher."""
        worker = self.random.choice(self.fleet.producers + self.fleet.followers)
        await self._pause(worker, 2 * FAULT_S_MAX)

    # ---- Redis -------------------------------------------------------------------------------

    async def kill_redis(self) -> None:
        """kill -9 of Redis, which comes back with its data."""
        await self._redis_away(forget=False)

    async def empty_redis(self) -> None:
        """Redis comes back without its data, or loses it while it runs."""
        redis = self.fleet.redis
        assert redis is not None
        if self.random.random() < 0.5:
            await self._redis_away(forget=True)
            return
        async with self.fleet.redis_busy:
            with redis.client() as client:
                await asyncio.to_thread(client.flushall)

    async def _redis_away(self, *, forget: bool) -> None:
        redis = self.fleet.redis
        assert redis is not None
        async with self.fleet.redis_busy:
            self.fleet.excuse()
            await asyncio.to_thread(redis.kill)
            if forget:
                redis.forget()
            await self._while(REDIS_AWAY_S_MAX)
            await asyncio.to_thread(redis.start)
            self.fleet.excuse()

    async def pause_redis(self) -> None:
        """Redis stands still."""
        redis = self.fleet.redis
        assert redis is not None
        async with self.fleet.redis_busy:
            self.fleet.excuse()
            redis.pause()
            try:
                await self._while(REDIS_AWAY_S_MAX)
            finally:
                redis.go_on()
                self.fleet.excuse()

    async def cut_redis(self) -> None:
        """The connections to Redis end, or carry nothing for a while."""
        proxy = self.fleet.redis_proxy
        assert proxy is not None
        self.fleet.excuse()
        if self.random.random() < 0.5:
            proxy.pause()
            await self._while(REDIS_AWAY_S_MAX)
        elif self.random.random() < 0.5:
            proxy.lose_answers = self.random.randint(1, 4)
        proxy.cut()
        proxy.go_on()
