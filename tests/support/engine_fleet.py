"""Engines, sidecars and a server as processes, and a twin that knows what each engine holds.

A fake engine's chats are the same for the same seed, so its twin, in the test's process, goes
through them too. How far the engine is it tells itself: by the number of its last batch.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import zmq
import zmq.asyncio
from warmindex.client import IndexClient
from warmindex.event import PartitionKey
from warmindex_subscriber.fake_engine.cache import Engine
from warmindex_subscriber.fake_engine.traffic import Prompt, Traffic

MODEL = "acme/llm"
ADAPTERS = ("sql-lora", "chat-lora")
BLOCK_TOKENS = 16
BLOCKS_MAX = 300
WAIT_S_MAX = 60.0
# Prompts that are looked up: the last ones, of which much is held, and older ones.
PROMPTS_ASKED: Final = 15
STILL_LOOKS: Final = 5
_LOST: Final = 2**64 - 1


class Command:
    """A command of this package as a process; ended by its process id when left."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "warmindex_subscriber", *arguments]
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "log"
        self._process: subprocess.Popen[bytes] | None = None

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            await self.end(signal.SIGKILL)
        self._folder.cleanup()

    def start(self) -> None:
        """Start it, once more if it has ended."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None
        os.kill(self._process.pid, number)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send it a signal and wait for its end; the exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return await asyncio.to_thread(self._process.wait, WAIT_S_MAX)

    @property
    def log(self) -> str:
        """What it has printed and logged so far, in all of its lives."""
        return self._log.read_text(encoding="utf-8")

    async def logged(self, pattern: str) -> tuple[str, ...]:
        """Wait until the log has a pattern; its groups."""
        async with asyncio.timeout(WAIT_S_MAX):
            while (found := re.search(pattern, self.log)) is None:
                assert self._process is not None
                assert self._process.poll() is None, self.log
                await asyncio.sleep(0.02)
        return found.groups()


class FakeEngine(Command):
    """A fake engine, and its twin."""

    def __init__(self, seed: int = 0, rate: float = 3) -> None:
        self.seed = seed
        super().__init__(
            *("fake-engine", "--seed", str(seed), "--rate", str(rate), "--blocks", str(BLOCKS_MAX)),
            *("--adapters", ",".join(ADAPTERS), "--conversations", "8"),
            *("--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0"),
        )
        self.endpoint = self.replay_endpoint = ""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        pattern = r"publishing on (\S+), replays on (\S+)"
        self.endpoint, self.replay_endpoint = await self.logged(pattern)
        # The same ports in its next life.
        for flag, value in (
            ("--endpoint", self.endpoint),
            ("--replay-endpoint", self.replay_endpoint),
        ):
            self._command[self._command.index(flag) + 1] = value
        return self

    async def batches(self) -> int:
        """How many batches it has published in this life."""
        context = zmq.asyncio.Context()
        try:
            dealer = context.socket(zmq.DEALER)
            dealer.connect(self.replay_endpoint)
            await dealer.send_multipart([b"", (0).to_bytes(8, "big")])
            count = 0
            async with asyncio.timeout(WAIT_S_MAX):
                while True:
                    *_, sequence, _ = await dealer.recv_multipart()
                    number = int.from_bytes(sequence, "big")
                    if number == _LOST:
                        return count
                    count = number + 1
        finally:
            context.destroy(linger=0)

    async def twin(self) -> Twin:
        """What it holds now."""
        twin = Twin(self.seed)
        twin.go_to(await self.batches())
        return twin


class Twin:
    """A fake engine of the same seed, in this process."""

    def __init__(self, seed: int) -> None:
        self._engine = Engine(block_tokens=BLOCK_TOKENS, blocks_max=BLOCKS_MAX, seed=seed)
        self._traffic = Traffic(seed=seed, adapters=("", *ADAPTERS), conversations=8)
        self._batches = 0
        self.prompts: list[Prompt] = []

    def go_to(self, batches: int) -> None:
        """Serve prompts until so many batches have been published."""
        while self._batches < batches:
            prompt = self._traffic.next()
            self._engine.serve_prompt(prompt.tokens, prompt.adapter, prompt.answer)
            self._batches += bool(self._engine.take_changes())
            self.prompts.append(prompt)

    @property
    def has_evicted(self) -> bool:
        """Whether some prompt is no longer held as it was."""
        return any(
            self.run_of(prompt.tokens, prompt.adapter) < len(prompt.tokens) // BLOCK_TOKENS
            for prompt in self.prompts
        )

    def run_of(self, tokens: Sequence[int], adapter: str) -> int:
        """How many leading blocks of a prompt it holds."""
        return self._engine.find_prompt(tokens, adapter)


async def routes(
    client: IndexClient, prompts: Sequence[Prompt], adapter: str | None = None
) -> list[dict[str, int]]:
    """Replicas and their runs for each prompt, by its tokens and its adapter, or another one."""
    found = []
    for prompt in prompts:
        where = prompt.adapter if adapter is None else adapter
        key = PartitionKey("", MODEL, "", where)
        answer = await client.lookup_route(key, token_ids=prompt.tokens)
        found.append({match.replica_id: match.blocks for match in answer.matches})
    return found


async def agree(client: IndexClient, **engines: FakeEngine) -> None:
    """Wait until LookupRoute says of each replica what its engine holds, prompt by prompt.

    By then the engines have evicted some of what they once held. They stand still while they
    are compared, for less time than anybody would take for their end.
    """
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            twins = {name: await engine.twin() for name, engine in engines.items()}
            for engine in engines.values():
                engine.send(signal.SIGSTOP)
            try:
                same = all(twin.has_evicted for twin in twins.values()) and await _same(
                    client, twins
                )
            finally:
                for engine in engines.values():
                    engine.send(signal.SIGCONT)
            if same:
                return
            await asyncio.sleep(0.05)


async def _same(client: IndexClient, twins: dict[str, Twin]) -> bool:
    """Whether the index comes to what the twins hold; False where they were behind already."""
    for _ in range(STILL_LOOKS):
        told, expected = await _both(client, twins)
        if told == expected and any(told):
            return True
        await asyncio.sleep(0.05)
    return False


async def _both(
    client: IndexClient, twins: dict[str, Twin]
) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    told: list[dict[str, int]] = []
    expected: list[dict[str, int]] = []
    for twin in twins.values():
        prompts = twin.prompts[-PROMPTS_ASKED:]
        for adapter in ("", *ADAPTERS):
            told += await routes(client, prompts, adapter)
            expected += [
                {
                    name.replace("_", "-"): run
                    for name, each in twins.items()
                    if (run := each.run_of(prompt.tokens, adapter))
                }
                for prompt in prompts
            ]
    return told, expected
