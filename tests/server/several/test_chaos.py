"""Whatever happens to Redis and to the way there: nothing acknowledged is lost, all agree.

Connections are cut, answers lost on the way back, Redis killed and started with its data, or
paused; meanwhile numbered producers publish at every server, and move on where they are refused.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import grpc
import pytest
from support.proxy import Proxy
from support.questions import same_answers
from support.redis_server import RedisServer
from support.server import ServerHere
from support.serving import embedded
from support.several import plain_of, servers_on, until
from support.watching import LIVE, Watcher
from warmindex.v1 import index_service_pb2 as pb

DUPLICATE = pb.EventResult.OUTCOME_DUPLICATE
SECONDS = 6.0


class Producer:
    """Numbers its events, sends each until it is answered, and knows what was acknowledged."""

    def __init__(self, name: str, servers: list[ServerHere], dice: random.Random) -> None:
        self.name = name
        self.sequence = 0
        self.revisions: dict[int, int] = {}
        self._servers = servers
        self._dice = dice

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.sequence += 1
            await self._send()

    async def _send(self) -> None:
        """Again and again: whether a refused one was journaled, nobody knows but its number."""
        event = embedded(
            [self._dice.randrange(50)], replica_id=self.name, epoch=1, sequence=self.sequence
        )
        while True:
            stub = self._dice.choice(self._servers).stub
            try:
                response = await stub.PublishEvent(pb.PublishEventRequest(event=event), timeout=10)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.02)
            else:
                assert not response.result.resync_required, "a number was lost"
                if response.result.outcome != DUPLICATE:
                    self.revisions[self.sequence] = response.result.revision
                return


def troubles(
    own_redis: RedisServer, proxies: list[Proxy], dice: random.Random
) -> list[Callable[[], Awaitable[None]]]:
    """What may happen, each a moment long."""

    async def cut() -> None:
        dice.choice(proxies).cut()

    async def lose_answers() -> None:
        dice.choice(proxies).lose_answers = dice.randint(1, 4)

    async def kill() -> None:
        own_redis.kill()
        await asyncio.sleep(dice.uniform(0.0, 0.5))
        own_redis.start()

    async def pause() -> None:
        own_redis.pause()
        await asyncio.sleep(dice.uniform(0.1, 0.5))
        own_redis.go_on()

    return [cut, cut, lose_answers, lose_answers, kill, pause]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_acknowledged_is_lost(own_redis, seed):
    """Every server equals the plain model of the journal, and every answer stands in it."""
    dice = random.Random(seed)
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(Proxy(own_redis.port)) for _ in range(3)]
        servers = []
        for proxy in proxies:
            url = f"redis://127.0.0.1:{proxy.port}"
            servers += await stack.enter_async_context(servers_on(url, count=1))
        watcher = await stack.enter_async_context(Watcher(servers[0].address))
        await watcher.bookmark(LIVE)
        producers = [Producer(f"pod-{n}", servers, random.Random(seed + n)) for n in range(6)]
        stop = asyncio.Event()
        work = [asyncio.create_task(producer.run(stop)) for producer in producers]
        asyncio.get_running_loop().call_later(SECONDS, stop.set)
        while not stop.is_set():
            await dice.choice(troubles(own_redis, proxies, dice))()
            await asyncio.sleep(dice.uniform(0.0, 0.4))
        for proxy in proxies:
            proxy.lose_answers = 0
        await asyncio.gather(*work)
        # Something that surely changes the index, so that watchers are told at once.
        last = Producer("last", servers, dice)
        last.sequence = 1
        await last._send()
        plain = await plain_of(own_redis.url)
        for server in servers:
            await until(lambda server=server: server.store.revision == plain.revision)
            same_answers(server.store.index, plain)
        await watcher.until(last.revisions[1])
        assert watcher.content() == plain.entries
        assert len({server.store.history_id for server in servers}) == 1
    for producer in producers:
        numbering = plain.producers["", "m", producer.name]
        assert (numbering.sequence, numbering.resync_required) == (producer.sequence, False)
        assert sorted(producer.revisions.values()) == list(producer.revisions.values())
    revisions = [r for producer in producers for r in producer.revisions.values()]
    assert len(set(revisions)) == len(revisions), "a revision was given twice"
