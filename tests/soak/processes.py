"""The processes of a run: started, stopped, killed and paused by their ids, and none left over."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
# For a machine that is busy with other things.
ANSWER_S_MAX = 90.0
# A server that finds its journal away at its start ends; whoever runs it starts it again.
STARTS_MAX = 40
LOG_TAIL = 3000


class Process:
    """One process, in one life after the other."""

    def __init__(self, name: str, folder: Path, words: Sequence[str]) -> None:
        self.name = name
        self.words = list(words)
        self.log = folder / f"{name}.log"
        self.busy = asyncio.Lock()  # One fault at a time.
        self.up = False
        self._process: asyncio.subprocess.Process | None = None

    async def spawn(self) -> None:
        """Begin a life."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WARMINDEX")}
        places = [str(TESTS), *filter(None, [environment.get("PYTHONPATH")])]
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *self.words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**environment, "PYTHONPATH": os.pathsep.join(places)},
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def dead(self) -> bool:
        """Whether it has ended, or never began."""
        return self._process is None or self._process.returncode is not None

    async def hear(self, word: str) -> bool:
        """Wait for a line that begins so; False where it ends instead."""
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S_MAX):
            while line := (await self._process.stdout.readline()).decode():
                if line.startswith(word):
                    return True
        await self._process.wait()
        return False

    async def tell(self, word: str) -> None:
        """Give it a line."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n".encode())
        await self._process.stdin.drain()

    def send(self, number: int) -> None:
        """Send it a signal; one that has ended needs none."""
        if not self.dead:
            assert self._process is not None
            self._process.send_signal(number)

    async def end(self, number: int = signal.SIGKILL) -> int:
        """End it by a signal, and wait for that; its exit code."""
        self.up = False
        if self._process is None:
            return 0
        self.send(number)
        async with asyncio.timeout(ANSWER_S_MAX):
            return await self._process.wait()

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL:]


class Server(Process):
    """A server on a port of its own."""

    def __init__(
        self, name: str, folder: Path, words: Sequence[str], excuse: Callable[[], bool]
    ) -> None:
        super().__init__(name, folder, words)
        self._excuse = excuse

    async def start(self) -> None:
        """Start it, again and again where its journal is away."""
        for _ in range(STARTS_MAX):
            excused = self._excuse()
            await self.spawn()
            if await self.hear("listening on "):
                self.up = True
                return
            assert excused or self._excuse(), f"{self.name} does not start: {self.tail()}"
            await asyncio.sleep(0.3)
        raise AssertionError(f"{self.name} never starts: {self.tail()}")


class Worker(Process):
    """A producer or a watcher; see worker.py."""

    def __init__(self, name: str, folder: Path, module: str, settings: dict[str, Any]) -> None:
        self.evidence = folder / f"{name}.jsonl"
        self.module, self.settings, self.lives = module, settings, 0
        super().__init__(name, folder, ())

    async def start(self) -> None:
        """Begin a life; each has a seed of its own."""
        settings = {**self.settings, "seed": self.settings["seed"] + self.lives}
        self.words = [self.module, json.dumps(settings), str(self.evidence)]
        self.lives += 1
        await self.spawn()
        self.up = True

    async def begun(self) -> None:
        """Wait until it is at work."""
        assert await self.hear("begun"), f"{self.name} does not start: {self.tail()}"

    async def finish(self, order: str) -> None:
        """Have it come to rest."""
        await self.tell(order)
        assert await self.hear("finished"), f"{self.name} does not finish: {self.tail()}"
