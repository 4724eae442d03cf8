"""How fast the KV sidecar is, from ZMQ frames to events handed to a sink, and how large.

    python bench/kv_sidecar.py [--frames 4000] [--blocks 64] [--shape vllm|sglang]

Frames are queued at the sidecar before the clock starts, so that one core is measured and no
publisher. Speeds are blocks per second of wall time and of this process's processor time, the
I/O threads' included: into a sink that counts, and through the publisher into a server of its
own process until all is acknowledged. The parts behind the sockets are shown alone as well.
Memory is what a block costs in the ledger, by tracemalloc.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
import tracemalloc
from collections.abc import Iterable, Sequence

import msgspec
import zmq
from warmindex.client import IndexClient
from warmindex.event import CacheEvent, EventType
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import decode_batch
from warmindex_subscriber.kv.outbox import Outbox, Producer
from warmindex_subscriber.kv.ranks import publishers
from warmindex_subscriber.kv.residence import Residence
from warmindex_subscriber.kv.sidecar import Sidecar, SidecarOptions
from warmindex_subscriber.publisher import Publisher, PublisherOptions

BLOCK_TOKENS = 16
VOCABULARY = 150_000


class CountingSink:
    """Takes everything once the gate is open, counts it, and hands it to a publisher if any."""

    def __init__(self, behind: Publisher | None = None) -> None:
        self._behind = behind
        self.reported = asyncio.Event()
        self.gate = asyncio.Event()
        self.blocks = 0
        self.events = 0
        self._wanted = 0
        self._done = asyncio.Event()

    async def all_of(self, blocks: int) -> None:
        self._wanted = blocks
        await self._done.wait()

    async def publish(self, events: Sequence[CacheEvent]) -> None:
        await self.gate.wait()
        if self._behind is not None:
            await self._behind.publish(events)
        for event in events:
            if event.type is EventType.EMBEDDED:
                self.blocks += len(event.content_hashes)
            self.events += 1
        if self._wanted and self.blocks >= self._wanted:
            self._done.set()

    async def report(self, replica_id: str, entries: Iterable[CacheEvent]) -> None:
        if self._behind is not None:
            await self._behind.report(replica_id, entries)
        self.reported.set()


def payloads(frames: int, blocks: int, shape: str, rng: random.Random) -> list[bytes]:
    """One chain a frame: one event of `blocks` blocks, or `blocks` events of one."""
    made = []
    for number in range(frames):
        hashes = [rng.getrandbits(63) for _ in range(blocks)]
        tokens = [rng.randrange(VOCABULARY) for _ in range(blocks * BLOCK_TOKENS)]
        per_event = blocks if shape == "vllm" else 1
        events = []
        for first in range(0, blocks, per_event):
            event = {
                "type": "BlockStored",
                "block_hashes": hashes[first : first + per_event],
                "parent_block_hash": hashes[first - 1] if first else None,
                "token_ids": tokens[first * BLOCK_TOKENS : (first + per_event) * BLOCK_TOKENS],
                "block_size": BLOCK_TOKENS,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
            }
            if shape == "vllm":
                event |= {"extra_keys": [None] * per_event, "group_idx": 0}
            events.append(event)
        made.append(msgspec.msgpack.encode([1.7e9 + number, events, 0]))
    return made


async def through_sockets(
    batches: list[bytes], blocks: int, behind: Publisher | None = None
) -> tuple[float, float]:
    """Blocks per second of wall time and of processor time."""
    context = zmq.Context()
    pub = context.socket(zmq.PUB)
    pub.set_hwm(0)
    port = pub.bind_to_random_port("tcp://127.0.0.1")
    sink = CountingSink(behind)
    where = publishers([0], [f"tcp://127.0.0.1:{port}"])
    sidecar = Sidecar(SidecarOptions(replica_id="pod", model_id="m", publishers=where), sink)
    running = asyncio.ensure_future(sidecar.run())
    await sink.reported.wait()
    await asyncio.sleep(0.5)
    for number, payload in enumerate(batches):
        pub.send_multipart([b"", number.to_bytes(8, "big"), payload])
    await asyncio.sleep(1.0)
    began, began_cpu = time.perf_counter(), time.process_time()
    sink.gate.set()
    await sink.all_of(len(batches) * blocks)
    if behind is not None:
        assert await behind.flush(60)
    took, took_cpu = time.perf_counter() - began, time.process_time() - began_cpu
    sidecar.stop()
    await running
    assert sidecar.counters.gaps == 0, sidecar.counters.seen()
    context.destroy(linger=0)
    total = len(batches) * blocks
    return total / took, total / took_cpu


async def through_a_server(batches: list[bytes], blocks: int) -> tuple[float, float]:
    """The same until a server, a process of its own, has acknowledged it all."""
    listen = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "warmindex_server", *listen),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert server.stdout is not None
        address = (await server.stdout.readline()).decode().split()[-1]
        # A short lease, so that its first beat comes soon.
        options = PublisherOptions(lease_s=3.0)
        async with (
            IndexClient(address) as client,
            Publisher(
                client, model_id="m", resync_wanted=lambda _: None, options=options
            ) as publisher,
        ):
            return await through_sockets(batches, blocks, publisher)
    finally:
        server.terminate()
        await server.wait()


def alone(batches: list[bytes], blocks: int) -> None:
    """The parts without sockets, in processor time."""
    began = time.process_time()
    for payload in batches:
        decode_batch(payload)
    decoding = time.process_time() - began
    residence = Residence(Adapters(), Counters())
    outbox = Outbox(Producer("", "m", "pod"))
    began = time.process_time()
    for number, payload in enumerate(batches):
        residence.apply(decode_batch(payload).events, outbox)
        if number % 64 == 63:
            outbox.take()
    everything = time.process_time() - began
    total = len(batches) * blocks
    print(f"  decode alone          {total / decoding:12,.0f} blocks per processor second")
    print(f"  all but the sockets   {total / everything:12,.0f} blocks per processor second")


def memory(batches: list[bytes], blocks: int) -> float:
    """Bytes per block that a residence keeps."""
    decoded = [decode_batch(payload) for payload in batches]
    residence = Residence(Adapters(), Counters())
    outbox = Outbox(Producer("", "m", "pod"))
    tracemalloc.start()
    for batch in decoded:
        # As they come from the wire: integers of their own.
        events = [event._replace(keys=[key + 0 for key in event.keys]) for event in batch.events]
        residence.apply(events, outbox)
        outbox.drop()
    del events
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(residence) == len(batches) * blocks
    return kept / len(residence)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--frames", type=int, default=4000)
    parser.add_argument("--blocks", type=int, default=64)
    parser.add_argument("--shape", choices=("vllm", "sglang"), default="vllm")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    batches = payloads(arguments.frames, arguments.blocks, arguments.shape, random.Random(1))
    print(f"{arguments.frames} frames of {arguments.blocks} blocks, {arguments.shape} shape")
    ways = {"frame to sink": through_sockets, "frame to acknowledged": through_a_server}
    for name, way in ways.items():
        for _ in range(arguments.rounds):
            wall, cpu = await way(batches, arguments.blocks)
            print(f"  {name:21} {wall:12,.0f} blocks/s, {cpu:,.0f} per processor second")
    alone(batches, arguments.blocks)
    print(f"  memory                {memory(batches, arguments.blocks):12.0f} bytes a block")


if __name__ == "__main__":
    asyncio.run(main())
