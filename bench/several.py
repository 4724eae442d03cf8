"""Several servers on one Redis, beside a bare XADD pipeline of the same bytes, in one run.

    python bench/several.py [--quick]

    publish   PublishEvents streams, spread over one and two servers as processes, and into one
              with the memory journal; messages of 32 events of 100 hashes each; each event is
              journaled once and applied by every server
    claims    GetEmbeddings of 140 absent keys with claims, and of 140 that are there, beside an
              empty script of Redis

Each round measures all of them in turn; the table gives medians, and ratios within a round.
Everything shares the machine: with two servers each core has more than one process to run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import redis.asyncio
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.redis_server import RedisServer
from support.serving import embedded
from support.several import processes_on, stubs_at

HASHES = 100
EVENTS_PER_MESSAGE = 32
STREAMS = 4
IN_FLIGHT = 4
KEYS = 140


def messages(count: int, stream: int) -> list[pb.PublishEventsRequest]:
    """What one producer sends: KV blocks that nobody else has."""
    return [
        pb.PublishEventsRequest(
            events=[
                event_pb2.CacheEvent(
                    type=event_pb2.CacheEvent.EMBEDDED,
                    replica_id=f"pod-{stream}",
                    model_id="acme/llama-8b",
                    hash_scheme="xxh3-chain/16",
                    token_count=16,
                    content_hashes=[
                        ((stream * count + number) * 10**6 + event * HASHES + place).to_bytes(8)
                        for place in range(HASHES)
                    ],
                )
                for event in range(EVENTS_PER_MESSAGE)
            ]
        )
        for number in range(count)
    ]


async def stream(stub, requests: Sequence[pb.PublishEventsRequest]) -> None:
    """One producer, some messages ahead of its answers."""
    call = stub.PublishEvents()

    async def send() -> None:
        for request in requests:
            await room.acquire()
            await call.write(request)
        await call.done_writing()

    room = asyncio.Semaphore(IN_FLIGHT)
    sending = asyncio.create_task(send())
    async for response in call:
        assert len(response.results) == EVENTS_PER_MESSAGE
        room.release()
    await sending


async def publish_rate(url: str, servers: int, work: list[list[pb.PublishEventsRequest]]) -> float:
    """Events a second, all acknowledged."""
    with processes_on(url, f"bench-{uuid.uuid4().hex}", servers) as processes:
        async with stubs_at(*processes) as stubs:
            started = time.perf_counter()
            await asyncio.gather(
                *(stream(stubs[n % servers], requests) for n, requests in enumerate(work))
            )
            seconds = time.perf_counter() - started
    return sum(map(len, work)) * EVENTS_PER_MESSAGE / seconds


async def xadd_rate(port: int, work: list[list[pb.PublishEventsRequest]]) -> float:
    """Events a second of a bare pipeline, one message a group."""
    frames = [
        [event.SerializeToString() for event in message.events] for one in work for message in one
    ]
    async with redis.asyncio.Redis(port=port) as client:
        started = time.perf_counter()
        for group in frames:
            pipeline = client.pipeline(transaction=False)
            for frame in group:
                pipeline.xadd("bare", {"r": frame})
            await pipeline.execute()
        seconds = time.perf_counter() - started
        await client.delete("bare")
    return sum(map(len, frames)) / seconds


async def call_times(url: str, port: int, calls: int) -> dict[str, float]:
    """Medians of single calls, in milliseconds."""
    found: dict[str, list[float]] = {"script": [], "claims": [], "found": []}
    with processes_on(url, f"bench-{uuid.uuid4().hex}", 2) as processes:
        async with stubs_at(*processes) as stubs, redis.asyncio.Redis(port=port) as client:
            there = embedded(list(range(KEYS)))
            await stubs[0].PublishEvent(pb.PublishEventRequest(event=there))
            partition = event_pb2.PartitionKey(model_id=there.model_id)
            for number in range(calls):
                absent = [sha256(b"%d" % (number * KEYS + n)).digest() for n in range(KEYS)]
                started = time.perf_counter()
                await client.eval("return 1", 0)
                found["script"].append(time.perf_counter() - started)
                for name, hashes in (("claims", absent), ("found", there.content_hashes)):
                    request = pb.GetEmbeddingsRequest(
                        partition=partition, content_hashes=hashes, claimant_id=str(number)
                    )
                    started = time.perf_counter()
                    await stubs[number % 2].GetEmbeddings(request)
                    found[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) * 1e3 for name, times in found.items()}


async def run(server: RedisServer, rounds: int, count: int) -> None:
    work = [messages(count, number) for number in range(STREAMS)]
    rates: dict[str, list[float]] = {}
    for _ in range(rounds):
        rates.setdefault("bare XADD pipeline", []).append(await xadd_rate(server.port, work))
        for journal, url, servers in (
            ("memory", "memory", 1),
            ("redis", server.url, 1),
            ("redis", server.url, 2),
        ):
            rate = await publish_rate(url, servers, work)
            name = f"PublishEvents, {journal}, {servers} server{'s' * (servers > 1)}"
            rates.setdefault(name, []).append(rate)
        with server.client() as client:
            client.flushall()
    bare = rates["bare XADD pipeline"]
    print(f"{'publish':34}{'events/s':>12}{'of bare XADD':>14}")
    for name, found in rates.items():
        ratio = statistics.median(a / b for a, b in zip(found, bare, strict=True))
        print(f"{name:34}{statistics.median(found):12.0f}{ratio:14.2f}")
    times = await call_times(server.url, server.port, 50)
    print(f"\n{'one call (2 servers)':34}{'ms':>12}")
    for name, shown in (
        ("script", "empty script of Redis"),
        ("claims", f"GetEmbeddings, {KEYS} claims"),
        ("found", f"GetEmbeddings, {KEYS} found"),
    ):
        print(f"{shown:34}{times[name]:12.2f}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one short round")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder) / "redis", "--appendonly", "no").start()
        try:
            asyncio.run(run(server, 1 if quick else 5, 40 if quick else 150))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
