"""A floor to hold a server against, and clients that cost little themselves.

The floor is a grpc.aio server in a process of its own, with a server's own options, whose
handlers do nothing and return given bytes. Clients send and take raw bytes.

    python bench/load.py floor FOLDER                              serve the floor
    python bench/load.py client ADDRESS METHOD FILE SECONDS        call, and count
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grpc
from warmindex_server.app import GRPC_OPTIONS

ROUNDS = 15
CALLS_PER_ROUND = 100

Target = tuple[str, str]  # address, method


@dataclass(frozen=True)
class Servers:
    """The two servers, and where the floor finds what it is to answer."""

    real: str
    real_pid: int
    floor: str
    floor_pid: int
    folder: Path

    def floor_method(self, name: str, response: bytes, *, stream: bool = False) -> Target:
        """Have the floor answer `response` to every message."""
        (self.folder / name).write_bytes(response)
        return self.floor, f"/{'stream' if stream else 'unary'}/{name}"


# ---- the floor ---------------------------------------------------------------------------


class Floor(grpc.GenericRpcHandler):
    """Answers /unary/NAME and /stream/NAME with the content of the file NAME."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handlers: dict[str, grpc.RpcMethodHandler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        handler = self._handlers.get(details.method)
        if handler is None:
            _, kind, name = details.method.split("/")
            handler = self._make(kind, (self._folder / name).read_bytes())
            self._handlers[details.method] = handler
        return handler

    def _make(self, kind: str, response: bytes) -> grpc.RpcMethodHandler:
        async def unary(_request, _context):
            return response

        async def stream(requests, _context):
            async for _ in requests:
                yield response

        if kind == "unary":
            return grpc.unary_unary_rpc_method_handler(unary)
        return grpc.stream_stream_rpc_method_handler(stream)


async def serve_floor(folder: Path) -> None:
    server = grpc.aio.server(options=GRPC_OPTIONS)
    server.add_generic_rpc_handlers((Floor(folder),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


# ---- clients -----------------------------------------------------------------------------


def channel_to(address: str) -> grpc.Channel:
    """A connection of its own, not shared with other channels of the process."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.insecure_channel(address, options)


def call_once(target: Target, request: bytes) -> bytes:
    address, method = target
    with channel_to(address) as channel:
        return channel.unary_unary(method)(request)


def p50s_s(targets: Sequence[Target], request: bytes) -> list[list[float]]:
    """Per round, each target's median time of a call; rounds alternate between targets."""
    channels = [channel_to(address) for address, _ in targets]
    calls = [c.unary_unary(method) for c, (_, method) in zip(channels, targets, strict=True)]
    for call in calls * 2:
        for _ in range(CALLS_PER_ROUND):
            call(request)
    rounds = []
    for _ in range(ROUNDS):
        medians = []
        for call in calls:
            times = []
            for _ in range(CALLS_PER_ROUND):
                start = time.perf_counter()
                call(request)
                times.append(time.perf_counter() - start)
            medians.append(median(times))
        rounds.append(medians)
    for channel in channels:
        channel.close()
    return rounds


def stream_s(target: Target, requests: Sequence[bytes]) -> float:
    """How long a stream takes to answer all requests, each sent as soon as there is room."""
    address, method = target
    with channel_to(address) as channel:
        start = time.perf_counter()
        answers = sum(1 for _ in channel.stream_stream(method)(iter(requests)))
        elapsed = time.perf_counter() - start
    assert answers == len(requests)
    return elapsed


def one_by_one(target: Target, request: bytes, seconds: float) -> None:
    """Call from four connections, one call after the other on each; print how many."""

    async def client() -> int:
        address, method = target
        options = [("grpc.use_local_subchannel_pool", 1)]
        until = time.perf_counter() + seconds
        count = 0
        async with grpc.aio.insecure_channel(address, options) as channel:
            call = channel.unary_unary(method)
            while time.perf_counter() < until:
                await call(request)
                count += 1
        return count

    async def clients() -> int:
        return sum(await asyncio.gather(*(client() for _ in range(4))))

    print(asyncio.run(clients()))


def calls_per_s(folder: Path, target: Target, request: bytes, seconds: float) -> float:
    """Calls a second from eight connections, of two processes."""
    path = folder / "request"
    path.write_bytes(request)
    command = [sys.executable, __file__, "client", *target, str(path), str(seconds)]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return sum(int(client.communicate()[0]) for client in clients) / seconds


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


# ---- processes ---------------------------------------------------------------------------


@contextmanager
def process(*command: str) -> Iterator[tuple[str, int]]:
    """A server's address and process id, from its start to its end."""
    running = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert running.stdout is not None
    try:
        yield running.stdout.readline().removeprefix("listening on ").strip(), running.pid
    finally:
        running.terminate()
        running.wait()
        running.stdout.close()


if __name__ == "__main__":
    if sys.argv[1] == "floor":
        asyncio.run(serve_floor(Path(sys.argv[2])))
    else:
        address, method, path, seconds = sys.argv[2:]
        one_by_one((address, method), Path(path).read_bytes(), float(seconds))
