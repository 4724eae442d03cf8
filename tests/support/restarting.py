"""A server process that is killed and comes back on its address."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from support.server import ServerProcess, server_process


class RestartingServer:
    """A server with its command-line `arguments`; starts when entered, ends when left."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._lives = ExitStack()
        self.process: ServerProcess | None = None
        self.address = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._lives.close)

    async def start(self) -> None:
        """Start it, on the address that it had before if it had one."""
        where = ("--listen", self.address) if self.address else ()
        life = server_process(*self._arguments, *where)
        self.process = await asyncio.to_thread(self._lives.enter_context, life)
        self.address = self.process.address

    async def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.signal(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)
