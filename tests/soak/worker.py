"""What the processes of a run have in common: told what to do on stdin, they answer on stdout."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from soak.evidence import Evidence


class Orders:
    """What the harness tells a worker, a line each."""

    def __init__(self) -> None:
        self._reader = asyncio.StreamReader()

    async def open(self) -> None:
        """Begin to listen."""
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), sys.stdin)

    async def next(self) -> str:
        """The next order; "" where the harness is gone."""
        return (await self._reader.readline()).decode().strip()


def say(word: str) -> None:
    """Answer the harness."""
    print(word, flush=True)  # noqa: T201 - it reads it


async def until_told(orders: Orders, work: Coroutine[Any, Any, None]) -> str:
    """Work until an order comes; the order. What the work raises ends the worker."""
    working = asyncio.create_task(work)
    ordered = asyncio.create_task(orders.next())
    await asyncio.wait((working, ordered), return_when=asyncio.FIRST_COMPLETED)
    if not ordered.done():
        ordered.cancel()
        working.result()
        raise AssertionError("the work has ended by itself")
    working.cancel()
    await asyncio.wait((working,))
    if not working.cancelled():
        working.result()
    return ordered.result()


def run(main: Callable[[dict[str, Any], Evidence, Orders], Awaitable[None]]) -> None:
    """Run a worker: argv has its settings as JSON, and where its evidence goes."""
    logging.disable(logging.ERROR)  # Faults are what the run is about.
    settings = json.loads(sys.argv[1])
    evidence = Evidence(Path(sys.argv[2]))

    async def begin() -> None:
        orders = Orders()
        await orders.open()
        try:
            await main(settings, evidence, orders)
        except Exception as error:
            evidence.note("wrong", what=f"{type(error).__name__}: {error}")
            raise

    asyncio.run(begin())
