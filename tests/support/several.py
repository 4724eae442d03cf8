"""Several servers on one Redis: in this process, or as processes of their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

import grpc
from support.journals import RedisPlace, read_all
from support.model import PlainIndex
from support.server import LARGE_MESSAGES, ServerHere, ServerProcess, running, server_process
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub

# Longer than any test's story takes; a test that gets here has failed.
WAIT_S_MAX = 60.0


@asynccontextmanager
async def servers_on(
    url: str, prefix: str = "warmindex", count: int = 2, **settings: Any
) -> AsyncIterator[list[ServerHere]]:
    """Servers in this process."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                running(**{"journal": url, "redis_prefix": prefix, "grace_s": 0.5, **settings})
            )
            for _ in range(count)
        ]


@contextmanager
def processes_on(
    url: str, prefix: str = "warmindex", count: int = 2
) -> Iterator[list[ServerProcess]]:
    """Servers as processes; they start at once."""
    arguments = ("--journal", url, "--redis-prefix", prefix, "--grace", "1")
    with ExitStack() as stack:
        started = [
            stack.enter_context(server_process(*arguments, wait=False)) for _ in range(count)
        ]
        for process in started:
            process.wait_until_listening()
        yield started


@asynccontextmanager
async def stub_at(address: str) -> AsyncIterator[Any]:
    """A plain client of a server."""
    async with grpc.aio.insecure_channel(address, LARGE_MESSAGES) as channel:
        yield IndexServiceStub(channel)


@asynccontextmanager
async def stubs_at(*servers: ServerHere | ServerProcess) -> AsyncIterator[list[Any]]:
    """A plain client of each server."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(stub_at(each.address)) for each in servers]


async def until(holds: Callable[[], object], what: str = "") -> None:
    """Wait until something holds."""
    give_up = time.monotonic() + WAIT_S_MAX
    while not holds():
        assert time.monotonic() < give_up, f"never came: {what or holds}"
        await asyncio.sleep(0.01)


async def plain_of(url: str, prefix: str = "warmindex") -> PlainIndex:
    """The plain model of all that a journal has; it has to begin at its beginning."""
    plain = PlainIndex()
    async with RedisPlace(url, prefix).opened() as journal:
        for revision, record in await read_all(journal):
            plain.apply(revision, record)
    return plain
