"""Journals side by side, in one run: appends, and what a start reads.

    python bench/journal.py [--quick]

    append   records of 100 hashes in groups: memory, sqlite and redis, and what is under
             them: the same bytes written and fsynced, and a bare XADD pipeline through redis-py
    store    publishers that await each record (index and group commit included), one record
             of 100 hashes each
    start    a snapshot of a million KV entries, and of vectors of 384, loaded into an index;
             vectors from a cold file, beside `dd iflag=direct` of that file

Each round measures all of them in turn; the table gives medians, and ratios within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import numpy as np
import redis.asyncio
from warmindex.event import CacheEvent, EventType, Tier
from warmindex.index import Index
from warmindex_server.journal.base import Journal, JournalOptions
from warmindex_server.journal.codec import encode
from warmindex_server.journal.registry import open_journal
from warmindex_server.store import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.redis_server import RedisServer

HASHES = 100
PUBLISHERS = 64
PART_HASHES = 1000
MIB = 2**20


def kv_events(count: int, hashes: int = HASHES) -> list[CacheEvent]:
    """Events of an engine: `hashes` block keys of 8 bytes each."""
    raw = np.random.default_rng(7).integers(0, 2**63, count * hashes, dtype=np.uint64).tobytes()
    return [
        CacheEvent(
            type=EventType.EMBEDDED,
            replica_id=f"pod-{number % 4}",
            model_id="acme/llama-8b",
            hash_scheme="xxh3-chain/16",
            content_hashes=[
                raw[at : at + 8] for at in range(number * hashes * 8, (number + 1) * hashes * 8, 8)
            ],
            token_count=16,
            tier=Tier.DEVICE,
            timestamp_us=number,
        )
        for number in range(count)
    ]


def vector_events(count: int, hashes: int = PART_HASHES, width: int = 384) -> Iterator[CacheEvent]:
    """Events of a catalogue: vectors of `width` under text hashes."""
    chance = np.random.default_rng(8)
    for _ in range(count):
        raw = chance.bytes(32 * hashes)
        yield CacheEvent(
            type=EventType.EMBEDDED,
            replica_id="gateway",
            model_id="emb/1;p=tei",
            content_hashes=[raw[at : at + 32] for at in range(0, len(raw), 32)],
            embeddings=chance.standard_normal((hashes, width), dtype=np.float32),
        )


class Places:
    """Where each journal of this run lies."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.server = server
        self._count = 0

    @asynccontextmanager
    async def opened(self, kind: str) -> AsyncIterator[Journal]:
        """A journal of that kind, new."""
        self._count += 1
        url = {
            "memory": "memory",
            "sqlite": f"sqlite:///{self.folder}/{self._count}.db",
            "redis": self.server.url,
        }[kind]
        journal = open_journal(url, JournalOptions(redis_prefix=f"bench{self._count}"))
        await journal.start()
        try:
            yield journal
        finally:
            await journal.close()
            for left in self.folder.glob(f"{self._count}.db*"):
                left.unlink()
            with self.server.client() as client:
                client.flushall()


# ---- appending -------------------------------------------------------------------------


async def append_rate(places: Places, kind: str, groups: Sequence[Sequence[CacheEvent]]) -> float:
    """Records a second, one append after the other."""
    async with places.opened(kind) as journal:
        started = time.perf_counter()
        for group in groups:
            await journal.append(group)
        return sum(map(len, groups)) / (time.perf_counter() - started)


async def xadd_rate(places: Places, groups: Sequence[Sequence[CacheEvent]]) -> float:
    """Records a second of a bare pipeline of XADD with the same bytes."""
    encoded = [[encode(event) for event in group] for group in groups]
    async with redis.asyncio.Redis(port=places.server.port) as client:
        started = time.perf_counter()
        for group in encoded:
            pipeline = client.pipeline(transaction=False)
            for frame in group:
                pipeline.xadd("bare", {"r": frame})
            await pipeline.execute()
        seconds = time.perf_counter() - started
        await client.delete("bare")
    return sum(map(len, groups)) / seconds


async def file_rate(places: Places, groups: Sequence[Sequence[CacheEvent]]) -> float:
    """Records a second of the same bytes written to a file, fsynced once a group."""
    encoded = [b"".join(map(encode, group)) for group in groups]
    path = places.folder / "bare"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        started = time.perf_counter()
        for frames in encoded:
            os.write(descriptor, frames)
            await asyncio.to_thread(os.fdatasync, descriptor)
        return sum(map(len, groups)) / (time.perf_counter() - started)
    finally:
        os.close(descriptor)
        path.unlink()


async def store_rate(places: Places, kind: str, events: Sequence[CacheEvent]) -> float:
    """Records a second of publishers that await each of their records."""
    async with places.opened(kind) as journal:
        store = Store(journal)
        await store.start()
        waiting = iter(events)

        async def publish() -> None:
            for event in waiting:
                await store.publish(event)

        started = time.perf_counter()
        await asyncio.gather(*(publish() for _ in range(PUBLISHERS)))
        seconds = time.perf_counter() - started
        await store.close()
        return len(events) / seconds


# ---- starting --------------------------------------------------------------------------


async def save(journal: Journal, events: Iterator[CacheEvent]) -> None:
    """Let the events be the journal's snapshot."""
    (revision,) = await journal.append([next(events)])

    async def batches() -> AsyncIterator[list[CacheEvent]]:
        for event in events:
            yield [event]

    assert await journal.save_snapshot(revision, batches())


async def load_rate(journal: Journal) -> tuple[float, float]:
    """Entries a second from its snapshot into an index, from start() on; and the seconds."""
    gc.collect()
    started = time.perf_counter()
    await journal.start()
    snapshot = await journal.snapshot()
    assert snapshot is not None
    index = Index(snapshot.revision)
    entries = 0
    async for parts in snapshot.batches:
        for part in parts:
            index.restore(part)
            entries += len(part.content_hashes)
    seconds = time.perf_counter() - started
    return entries / seconds, seconds


async def sqlite_load_rate(places: Places, make: Callable[[], Iterator[CacheEvent]]) -> float:
    """The same from a cold file, and what dd makes of it."""
    path = places.folder / "start.db"
    url = f"sqlite:///{path}"
    journal = open_journal(url)
    await journal.start()
    await save(journal, make())
    await journal.close()
    dd = dd_rate(path)
    forget_file(path)
    journal = open_journal(url)
    rate, seconds = await load_rate(journal)
    size = file_bytes(path) / MIB
    mine = size / seconds
    await journal.close()
    forget_file(path, remove=True)
    print(f"    cold file of {size:4.0f} MiB: {mine:5.0f} MiB/s, {mine / dd:.2f} of dd's {dd:5.0f}")
    return rate


async def redis_load_rate(places: Places, make: Callable[[], Iterator[CacheEvent]]) -> float:
    """The same from Redis."""
    async with places.opened("redis") as journal:
        await save(journal, make())
        return (await load_rate(journal))[0]


def file_bytes(path: Path) -> int:
    return path.stat().st_size


def forget_file(path: Path, *, remove: bool = False) -> None:
    """Let the system's cache of a file go, or the file itself."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    if remove:
        path.unlink()


def dd_rate(path: Path) -> float:
    """MiB a second of the cold file, as dd reads it."""
    forget_file(path)
    started = time.perf_counter()
    subprocess.run(
        ["dd", f"if={path}", "of=/dev/null", "bs=1M", "iflag=direct"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return path.stat().st_size / MIB / (time.perf_counter() - started)


# ---- reporting -------------------------------------------------------------------------


async def compare(
    title: str, rounds: int, works: dict[str, tuple[str, Callable[[], Awaitable[float]]]]
) -> None:
    """Run all works in turn, several times; print medians, and ratios to what each names."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, (_, work) in works.items():
            rates[name].append(await work())
    print(f"\n{title}")
    for name, (base, _) in works.items():
        ratios = [one / other for one, other in zip(rates[name], rates[base], strict=True)]
        ratio = f"{statistics.median(ratios):6.2f} of {base}" if base != name else ""
        print(f"  {name:20} {statistics.median(rates[name]):12,.0f} /s   {ratio}")


async def run(places: Places, quick: bool) -> None:
    rounds = 3 if quick else 7
    events = kv_events(8192 if quick else 16384)
    for size in (1, 64, 1024):
        some = events[: min(len(events), size * 1024)]
        groups = [some[at : at + size] for at in range(0, len(some), size)]
        file, pipeline = "write + fdatasync", "bare XADD pipeline"
        await compare(
            f"append, {HASHES} hashes a record, {size} records a group: records",
            rounds,
            {
                "memory": ("memory", partial(append_rate, places, "memory", groups)),
                file: (file, partial(file_rate, places, groups)),
                "sqlite": (file, partial(append_rate, places, "sqlite", groups)),
                pipeline: (pipeline, partial(xadd_rate, places, groups)),
                "redis": (pipeline, partial(append_rate, places, "redis", groups)),
            },
        )
    await compare(
        f"store, {PUBLISHERS} publishers that await each record of {HASHES} hashes: records",
        rounds,
        {
            kind: ("memory", partial(store_rate, places, kind, events))
            for kind in ("memory", "sqlite", "redis")
        },
    )
    kv, vectors = kv_events(1000, PART_HASHES), 20 if quick else 100
    for title, make in (
        ("a million KV entries", lambda: iter(kv)),
        (f"{vectors} thousand vectors of 384", lambda: vector_events(vectors)),
    ):
        await compare(
            f"start from a snapshot, {title}: entries",
            1 if quick else 5,
            {
                "sqlite": ("sqlite", partial(sqlite_load_rate, places, make)),
                "redis": ("redis", partial(redis_load_rate, places, make)),
            },
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, smaller inputs")
    arguments = parser.parse_args()
    build = Path(__file__).parents[1] / "build"  # On a disk, where /tmp may be memory.
    build.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build, prefix="bench-") as folder:
        server = RedisServer(Path(folder) / "redis", "--appendonly", "no").start()
        try:
            asyncio.run(run(Places(Path(folder), server), arguments.quick))
        finally:
            server.kill()


if __name__ == "__main__":
    main()
