"""The demo's server and subscriber, as processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from warmindex.errors import UnavailableError

START_S_MAX: Final = 30.0
STOP_S_MAX: Final = 5.0


@asynccontextmanager
async def running(module: str, arguments: Sequence[str]) -> AsyncIterator[Process]:
    """A process of `python -m module`, ended by its process id when the block is left."""
    # What the user has set for their own servers is not for these.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("WARMINDEX_")
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, env=environment, stdout=PIPE, stderr=DEVNULL
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_S_MAX)
            except TimeoutError:
                process.kill()
                await process.wait()


async def line_with(process: Process, words: str) -> str:
    """The first line on a process's stdout that has these words in it."""
    assert process.stdout is not None  # noqa: S101 - `running` asks for it
    try:
        async with asyncio.timeout(START_S_MAX):
            async for line in process.stdout:
                if words in (text := line.decode().strip()):
                    return text
    except TimeoutError:
        pass
    raise UnavailableError(f"no {words!r} from the process: is another program in the way?")
