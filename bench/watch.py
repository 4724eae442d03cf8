"""What watching costs, and what a mirror gives: ratios in one run.

    .venv/bin/python bench/watch.py              all of it, about two minutes
    .venv/bin/python bench/watch.py fetch        one of them

publisher   the rate of one PublishEvents stream with 100 watchers of other models, and with
            1, 10 and 100 watchers of everything, over its rate without any in the same run.
            Server, publisher and watchers are processes of their own on the same cores, so
            the time that the server itself works for an event stands beside it.
catch-up    a mirror that is a million entries behind, 1000 hashes an event: from its cursor,
            and from a snapshot, in entries per second
fetch       140 x 384 through a mirror over redis-py + hiredis MGET of the same bytes
snapshot    the longest steps of a snapshot of a million entries, in the server's own process
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import grpc
import numpy as np
from warmindex.client import IndexClient
from warmindex.event import CacheEvent, EventType, PartitionKey
from warmindex.index import Index
from warmindex.index.snapshot import Snapshot
from warmindex.mirror import Mirror
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub
from warmindex.wire import event_to_wire

ROOT = Path(__file__).parent.parent
SCHEME = "xxh3-chain/16"
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """A server as a process: its address and its process id."""
    command = [sys.executable, "-m", "warmindex_server", "--log-level", "warning"]
    command += ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1], process.pid
        finally:
            process.terminate()


def cpu_s(pid: int) -> float:
    """The time that a process has worked so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def kv_event(hashes: int, model_id: str = "m") -> CacheEvent:
    return CacheEvent(
        type=EventType.EMBEDDED,
        replica_id="pod",
        model_id=model_id,
        hash_scheme=SCHEME,
        content_hashes=[os.urandom(8) for _ in range(hashes)],
        token_count=16,
    )


# ---- publisher -------------------------------------------------------------------------------

ROUNDS = 5
MESSAGES = 150
EVENTS_PER_MESSAGE = 16
HASHES = 100


async def watch_until_told(address: str, watchers: int, model_id: str) -> None:
    """A process with many watchers: says when they are live, ends with its input."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(min(watchers, 4))]
    calls = []
    for number in range(watchers):
        stub = IndexServiceStub(channels[number % len(channels)])
        calls.append(stub.WatchEvents(pb.WatchEventsRequest(model_id=model_id)))
    live = [asyncio.Event() for _ in calls]
    tasks = [asyncio.create_task(drain(call, one)) for call, one in zip(calls, live, strict=True)]
    for one in live:
        await one.wait()
    print("live", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


async def drain(call, live: asyncio.Event) -> None:
    async for response in call:
        if response.bookmark.kind == pb.Bookmark.KIND_LIVE:
            live.set()


@contextmanager
def watching(address: str, watchers: int, model_id: str) -> Iterator[None]:
    if not watchers:
        yield
        return
    command = [sys.executable, __file__, "--watch", address, str(watchers), model_id]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "live\n"
        yield
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def publish_round(address: str, pid: int) -> tuple[float, float]:
    """Seconds, and seconds of the server's work, for one round of messages."""
    messages = []
    for _ in range(MESSAGES):
        events = [event_to_wire(kv_event(HASHES)) for _ in range(EVENTS_PER_MESSAGE)]
        messages.append(pb.PublishEventsRequest(events=events))
    with grpc.insecure_channel(address) as channel:
        stub = IndexServiceStub(channel)
        worked, started = cpu_s(pid), time.perf_counter()
        answers = sum(1 for _ in stub.PublishEvents(iter(messages)))
        took = time.perf_counter() - started
    assert answers == MESSAGES
    time.sleep(0.5)  # Watchers are told in this time; that is the server's work too.
    return took, cpu_s(pid) - worked


def bench_publisher() -> None:
    cases = [(0, ""), (100, "other"), (1, ""), (10, ""), (100, "")]
    seconds: dict[tuple[int, str], list[float]] = {case: [] for case in cases}
    worked: dict[tuple[int, str], list[float]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case in cases:
            with server() as (address, pid), watching(address, *case):
                publish_round(address, pid)
                took, work = publish_round(address, pid)
            seconds[case].append(took)
            worked[case].append(work)
    events = MESSAGES * EVENTS_PER_MESSAGE
    base = median(seconds[cases[0]])
    print(f"publisher, {EVENTS_PER_MESSAGE} events of {HASHES} hashes a message, {ROUNDS} rounds")
    for case in cases:
        count, model_id = case
        what = f"{count} watchers of " + ("other models" if model_id else "everything")
        ratio = base / median(seconds[case])
        work_us = median(worked[case]) / events * 1e6
        rate = events / median(seconds[case])
        print(
            f"  {what:32} rate x {ratio:.2f}  {rate:7.0f} events/s  server works {work_us:5.0f} us"
        )


# ---- catch-up --------------------------------------------------------------------------------

ENTRIES = 1_000_000


async def _catch_up(address: str) -> None:
    async with IndexClient(address) as client:
        behind = Mirror(client, model_id="m")
        behind.start()
        await behind.ready(10)
        await behind.close()
        for _ in range(ENTRIES // 50_000):
            results = await client.publish_all([kv_event(1000) for _ in range(50)])
        revision = results[-1].revision
        print(f"catch-up, {ENTRIES} entries in events of 1000 hashes")
        for name, mirror in (("from a cursor", behind), ("from a snapshot", Mirror(client))):
            mirror._task = None
            started = time.perf_counter()
            mirror.start()
            await mirror.reached(revision, 60)
            took = time.perf_counter() - started
            await mirror.close()
            partition = mirror._index.partition(PartitionKey("", "m", SCHEME, ""))
            assert partition is not None
            assert len(partition.entries) == ENTRIES
            assert mirror.resets == 1
            print(f"  {name:16} {took:.2f} s  {ENTRIES / took:9.0f} entries/s")


def bench_catch_up() -> None:
    for _ in range(3):
        with server() as (address, _):
            asyncio.run(_catch_up(address))


# ---- fetch -----------------------------------------------------------------------------------

FETCHED = 140
DIMENSIONS = 384
CALLS = 200


def bench_fetch() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from support.redis_server import RedisServer  # noqa: PLC0415 - where the tests have it

    with tempfile.TemporaryDirectory() as folder, server() as (address, _):
        redis_server = RedisServer(Path(folder) / "redis").start()
        try:
            asyncio.run(_fetch(address, redis_server))
        finally:
            redis_server.kill()


async def _fetch(address: str, redis_server) -> None:
    hashes = [os.urandom(32) for _ in range(10 * FETCHED)]
    matrix = np.random.default_rng(7).standard_normal((len(hashes), DIMENSIONS), np.float32)
    event = CacheEvent(
        type=EventType.EMBEDDED,
        replica_id="gateway",
        model_id="m",
        content_hashes=hashes,
        embeddings=matrix,
    )
    key = PartitionKey("", "m", "text-sha256", "")
    async with IndexClient(address) as client, Mirror(client, model_id="m") as mirror:
        result = await client.publish(event)
        await mirror.reached(result.revision, 10)
        redis_client = redis_server.client()
        redis_client.mset({key: row.tobytes() for key, row in zip(hashes, matrix, strict=True)})
        order = np.random.default_rng(1).permutation(len(hashes))[:FETCHED]
        for name, some in (
            ("as published", hashes[:FETCHED]),
            ("scattered", [hashes[position] for position in order]),
        ):
            assert b"".join(redis_client.mget(some)) == mirror.fetch(key, some).values
            mirror_s, redis_s, server_s = [], [], []
            for _ in range(ROUNDS):
                mirror_s.append(_timed(lambda some=some: mirror.fetch(key, some)))
                redis_s.append(_timed(lambda some=some: redis_client.mget(some)))
                server_s.append(await _timed_calls(client, key, some))
            here, there, remote = (median(times) for times in (mirror_s, redis_s, server_s))
            print(
                f"fetch {FETCHED} x {DIMENSIONS}, {name}: mirror {here * 1e6:.0f} us, "
                f"MGET {there * 1e6:.0f} us, GetEmbeddings {remote * 1e6:.0f} us; "
                f"mirror / MGET {here / there:.3f}"
            )
        redis_client.close()


def _timed(call: Callable[[], object]) -> float:
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times)


async def _timed_calls(client: IndexClient, key: PartitionKey, some: list[bytes]) -> float:
    times = []
    for _ in range(CALLS // 4):
        started = time.perf_counter()
        await client.get_embeddings(key, some)
        times.append(time.perf_counter() - started)
    return median(times)


# ---- snapshot --------------------------------------------------------------------------------


def bench_snapshot() -> None:
    index = Index()
    for _ in range(ENTRIES // 1000):
        index.apply(index.revision + 1, kv_event(1000))
    for busy in (False, True):
        steps = []
        with Snapshot(index) as snapshot:
            every = snapshot.steps()
            while True:
                started = time.process_time()
                step = next(every, None)
                steps.append(time.process_time() - started)
                if step is None:
                    break
                if busy:
                    index.apply(index.revision + 1, kv_event(100))
        steps.sort()
        what = "while 100 hashes a step are published" if busy else "of an index at rest"
        p50_ms, p99_ms, longest_ms = (
            1e3 * steps[place] for place in (len(steps) // 2, -len(steps) // 100, -1)
        )
        print(
            f"snapshot of {ENTRIES} entries {what}: {sum(steps):.2f} s of work in {len(steps)} "
            f"steps, p50 {p50_ms:.2f} ms, p99 {p99_ms:.1f} ms, longest {longest_ms:.1f} ms "
            "(the list of keys)"
        )


BENCHES = {
    "publisher": bench_publisher,
    "catch-up": bench_catch_up,
    "fetch": bench_fetch,
    "snapshot": bench_snapshot,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", nargs="*", metavar="|".join(BENCHES))
    parser.add_argument("--watch", nargs=3, metavar=("ADDRESS", "COUNT", "MODEL"))
    arguments = parser.parse_args()
    if arguments.watch:
        address, count, model_id = arguments.watch
        asyncio.run(watch_until_told(address, int(count), model_id))
        return
    for which in arguments.which or BENCHES:
        BENCHES[which]()


if __name__ == "__main__":
    main()
