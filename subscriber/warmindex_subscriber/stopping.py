"""How a command ends: by itself, or by a signal, as an end and not as a failure."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from contextlib import suppress


async def until_stopped(run: Awaitable[None]) -> None:
    """Run until it ends, or until SIGTERM or SIGINT cancels it."""
    task = asyncio.ensure_future(run)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
