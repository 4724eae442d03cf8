"""A TCP proxy between a client and a real server, for what networks do."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes bytes on both ways. `lose_answers`: cut each connection instead of answering."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._target = port
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.lose_answers = 0
        self._going = asyncio.Event()
        self._going.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self.port, ssl=self._tls
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection, without a word."""
        for writer in list(self._writers):
            writer.transport.abort()

    def pause(self) -> None:
        """Keep connections open, and pass nothing on."""
        self._going.clear()

    def go_on(self) -> None:
        """End a pause."""
        self._going.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers.add(up_writer)
            with suppress(ConnectionError):
                await asyncio.gather(
                    self._pass_on(reader, up_writer), self._answer(up_reader, writer)
                )
            up_writer.transport.abort()
            self._writers.discard(up_writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._going.wait()
            writer.write(data)
            await writer.drain()
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._going.wait()
            if self.lose_answers:
                self.lose_answers -= 1
                writer.transport.abort()
                return
            writer.write(data)
            await writer.drain()
        writer.transport.abort()
