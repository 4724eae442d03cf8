"""KV events all the way, over processes: the publisher, the sidecar, and how soon a route knows.

    python bench/kv_end_to_end.py [--blocks 400000]

publisher   blocks a second through a Publisher until all is acknowledged, for events of 64, 512
            and 4096 blocks, beside a bare stream that carries the same messages, encoded before
            the clock starts, to the same server
sidecar     frames of 64 blocks from an engine's sockets to visible in the index; the sidecar is a
            process of its own, whose processor time is counted
route       from an engine's publish until LookupRoute finds the block, one at a time
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from warmindex.client import IndexClient
from warmindex.demo.processes import line_with, running
from warmindex.event import CacheEvent, EventType, PartitionKey
from warmindex.wire import event_to_part
from warmindex_subscriber.fake_engine.cache import Stored
from warmindex_subscriber.fake_engine.publisher import Endpoints, EventPublisher
from warmindex_subscriber.fake_engine.shapes import Writer
from warmindex_subscriber.publisher import Publisher, PublisherOptions

BLOCK_TOKENS = 16
VOCABULARY = 150_000
CHAIN = 64
UNDER_WAY = 16
RUNS = 3
ROUTES = 200
TARGET_PUBLISHER = 300_000
TARGET_SIDECAR = 200_000


def cpu_s(pid: int) -> float:
    """The processor time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def server() -> AsyncIterator[tuple[IndexClient, int]]:
    """A server of its own process; its client and process id."""
    flags = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
    async with running("warmindex_server", flags) as process:
        address = (await line_with(process, "listening on")).rpartition(" ")[2]
        async with IndexClient(address) as client:
            yield client, process.pid


# ---- the publisher -------------------------------------------------------------------------


def events_of(model: str, blocks: int, size: int) -> list[CacheEvent]:
    """Events of `size` new blocks each."""
    return [
        CacheEvent(
            type=EventType.EMBEDDED,
            replica_id="pod",
            model_id=model,
            hash_scheme=f"xxh3-chain/{BLOCK_TOKENS}",
            token_count=BLOCK_TOKENS,
            content_hashes=[os.urandom(8) for _ in range(size)],
        )
        for _ in range(blocks // size)
    ]


async def through_publisher(client: IndexClient, model: str, events: list[CacheEvent]) -> float:
    """Seconds until all is acknowledged."""
    async with Publisher(client, model_id=model, resync_wanted=print) as publisher:
        # Its lease is set, and its stream is open.
        await publisher.publish([events[0]])
        assert await publisher.flush(60)
        began = time.perf_counter()
        await publisher.publish(events[1:])
        assert await publisher.flush(60)
        took = time.perf_counter() - began
        assert publisher.counters.acknowledged == len(events)
        return took


async def through_bare_stream(client: IndexClient, events: list[CacheEvent]) -> float:
    """The same bytes in messages of the same size, with nothing else to do."""
    options = PublisherOptions()
    parts = [event_to_part(event, 1, number) for number, event in enumerate(events, 1)]
    messages: list[list[bytes]] = [[]]
    for part in parts[1:]:
        size = sum(map(len, messages[-1])) + len(part)
        if len(messages[-1]) == options.message_events_max or size > options.message_bytes_max:
            messages.append([])
        messages[-1].append(part)
    stream = client.publish_stream()
    await stream.send(parts[:1])
    await stream.receive()
    began, answered = time.perf_counter(), 0
    for sent, message in enumerate(messages, 1):
        await stream.send(message)
        while sent - answered >= UNDER_WAY:
            await stream.receive()
            answered += 1
    while answered < len(messages):
        await stream.receive()
        answered += 1
    took = time.perf_counter() - began
    stream.close()
    return took


async def publisher_beside_stream(blocks: int) -> None:
    async with server() as (client, _):
        for size in (CHAIN, 512, 4096):
            rates, cpu_rates, ratios = [], [], []
            for run in range(RUNS):
                events = events_of(f"p{size}.{run}", blocks, size)
                count = (len(events) - 1) * size
                began_cpu = time.process_time()
                real = await through_publisher(client, f"p{size}.{run}", events)
                cpu_rates.append(count / (time.process_time() - began_cpu))
                bare = await through_bare_stream(client, events_of(f"b{size}.{run}", blocks, size))
                rates.append(count / real)
                ratios.append(bare / real)
            print(
                f"publisher    events of {size:4}: {median(rates):5.0f} thousand blocks/s, "
                f"{median(cpu_rates):6.0f} of its own processor time (target "
                f"{TARGET_PUBLISHER / 1000:.0f}); {statistics.median(ratios):.2f} of a bare "
                f"stream's rate ({min(ratios):.2f} to {max(ratios):.2f})"
            )


def median(rates: list[float]) -> float:
    return statistics.median(rates) / 1000


# ---- the sidecar ---------------------------------------------------------------------------


@asynccontextmanager
async def followed(client: IndexClient) -> AsyncIterator[tuple[EventPublisher, Writer, int]]:
    """An engine's sockets with a sidecar process behind them; its process id."""
    engine = EventPublisher(Endpoints("tcp://127.0.0.1:0", "tcp://127.0.0.1:0"))
    live, replay = engine.endpoints
    arguments = [
        *("kv", "--server", client.address, "--model", "m", "--replica", "pod"),
        *("--endpoint", live, "--replay-endpoint", str(replay)),
    ]
    try:
        async with running("warmindex_subscriber", arguments) as process:
            while not engine.answer_replays():  # noqa: ASYNC110 - sockets that are polled
                await asyncio.sleep(0.01)
            # The first batch is awaited: from then on the live socket is subscribed too.
            writer = Writer(block_tokens=BLOCK_TOKENS)
            engine.publish(writer.events([chain(1)]))

            async def seen() -> bool:
                engine.answer_replays()
                return await entries(client) == 1

            await until(seen)
            yield engine, writer, process.pid
    finally:
        engine.close()


def chain(blocks: int) -> Stored:
    """New blocks that begin a prompt."""
    return Stored(
        [random.getrandbits(64) for _ in range(blocks)],
        None,
        [random.randrange(VOCABULARY) for _ in range(blocks * BLOCK_TOKENS)],
        "",
    )


async def entries(client: IndexClient) -> int:
    return sum(each.entries for each in await client.partitions(model_id="m"))


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.005)


async def sidecar(blocks: int) -> None:
    frames = blocks // CHAIN
    async with server() as (client, server_pid), followed(client) as (engine, writer, pid):
        batches = [writer.events([chain(CHAIN)]) for _ in range(frames)]
        began, began_cpu, began_server = time.perf_counter(), cpu_s(pid), cpu_s(server_pid)
        for batch in batches:
            engine.publish(batch)
            engine.answer_replays()

        async def all_visible() -> bool:
            engine.answer_replays()
            return await entries(client) == frames * CHAIN + 1

        await until(all_visible)
        took, took_cpu = time.perf_counter() - began, cpu_s(pid) - began_cpu
        took_server = cpu_s(server_pid) - began_server
        print(
            f"sidecar      chains of {CHAIN}: {frames * CHAIN / took / 1000:.0f} thousand blocks/s "
            f"from frame to visible, {frames * CHAIN / took_cpu / 1000:.0f} of the sidecar's "
            f"processor time (target {TARGET_SIDECAR / 1000:.0f}), "
            f"{frames * CHAIN / took_server / 1000:.0f} of the server's"
        )


async def route() -> None:
    key = PartitionKey("", "m", f"xxh3-chain/{BLOCK_TOKENS}", "")
    async with server() as (client, _), followed(client) as (engine, writer, _):
        lookups, waits = [], []
        for _ in range(ROUTES):
            block = chain(1)
            events = writer.events([block])
            began = time.perf_counter()
            engine.publish(events)
            answer: Any = None
            while answer is None or not answer.matches:
                asked = time.perf_counter()
                answer = await client.lookup_route(key, token_ids=block.tokens)
            now = time.perf_counter()
            waits.append(now - began)
            lookups.append(now - asked)
            engine.answer_replays()
            await asyncio.sleep(0.005)
        waits.sort()
        print(
            f"route        knows of a block {statistics.median(waits) * 1000:.1f} ms after the "
            f"engine has said it (p99 {waits[int(len(waits) * 0.99)] * 1000:.1f} ms), of which "
            f"{statistics.median(lookups) * 1000:.1f} ms are the lookup itself"
        )


async def main(blocks: int) -> None:
    await publisher_beside_stream(blocks)
    await sidecar(blocks)
    await route()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="See the module's text.")
    parser.add_argument("--blocks", type=int, default=400_000, help="blocks in each measurement")
    sys.exit(asyncio.run(main(parser.parse_args().blocks)))
