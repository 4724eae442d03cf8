"""The command: options, faults of them, and an engine's events all the way into a real index."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from support.kv_payloads import H1, H2, TOKENS, encode, removed, stored
from support.kv_publisher import PATIENCE_S, FakePublisher, RecordingSink
from support.server import running
from warmindex.client import IndexClient
from warmindex.errors import InvalidError
from warmindex.event import PartitionKey
from warmindex_subscriber.kv import command
from warmindex_subscriber.kv.sink import ResyncWanted


def parse(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())
    return parser.parse_args(["kv", *flags])


class Sinks:
    """Opens a recording sink, and remembers for whom and how to ask it for a resync."""

    def __init__(self) -> None:
        self.sink = RecordingSink()
        self.replicas: list[str] = []
        self.resync: ResyncWanted | None = None

    @asynccontextmanager
    async def __call__(
        self, replica_ids: Sequence[str], resync_wanted: ResyncWanted
    ) -> AsyncIterator[RecordingSink]:
        self.replicas, self.resync = list(replica_ids), resync_wanted
        yield self.sink


@pytest.fixture
async def engine() -> AsyncIterator[FakePublisher]:
    fake = FakePublisher()
    yield fake
    await fake.close()


@asynccontextmanager
async def started(run: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(run)
    try:
        yield
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, PATIENCE_S)


async def test_options_reach_the_sidecar(engine: FakePublisher):
    """Names, the map of adapters, versions, the engine's own scheme, a resync on demand."""
    sinks = Sinks()
    arguments = parse(
        *("--model", "m", "--tenant", "acme", "--replica", "pod-7", "--engine", "sglang"),
        *("--endpoint", engine.endpoint, "--replay-endpoint", engine.replay_endpoint),
        *("--adapter-map", "1=chat-lora,2=sql-lora", "--adapter-map", "3=third lora "),
        *("--adapter-version", "chat-lora=9", "--native-hashes"),
    )
    async with started(command.run_with(arguments, sinks)):
        await engine.subscribed()
        await engine.send(encode(stored([1], lora_id=1), stored([2], lora_id=3)))
        await sinks.sink.until(lambda: len(sinks.sink.index.holds) == 4)
        assert sinks.replicas == ["pod-7"]
        assert {hold[:3] for hold in sinks.sink.index.holds} == {
            ("pod-7", adapter, scheme)
            for adapter in ("chat-lora@9", "third lora ")
            for scheme in ("xxh3-chain/4", "sglang-native")
        }
        assert {event.tenant_id for event in sinks.sink.index.events} == {"acme"}
        assert sinks.resync is not None
        sinks.sink.index.holds.clear()
        sinks.resync("pod-7")
        await sinks.sink.until(lambda: len(sinks.sink.index.holds) == 4)


async def test_lists_come_from_the_environment_too(
    engine: FakePublisher, monkeypatch: pytest.MonkeyPatch
):
    """A flag wins over its variable."""
    monkeypatch.setenv("WARMINDEX_ENDPOINT", engine.endpoint)
    monkeypatch.setenv("WARMINDEX_ADAPTER_MAP", "1=from-environment,2=b")
    for flags, adapter in (
        ((), "from-environment"),
        (("--adapter-map", "1=from-flag"), "from-flag"),
    ):
        sinks = Sinks()
        async with started(command.run_with(parse("--model", "m", *flags), sinks)):
            await engine.subscribed()
            await engine.send(encode(stored(lora_id=1)))
            await sinks.sink.until(lambda sinks=sinks: bool(sinks.sink.index.holds))
            assert {hold[1] for hold in sinks.sink.index.holds} == {adapter}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--endpoint", "tcp://h:1"], "--model is required"),
        (["--model", "m"], "endpoint is required"),
        (["--model", "m", "--endpoint", "tcp://h:1", "--ranks", "none"], "ranks is 'none'"),
        (["--model", "m", "--endpoint", "tcp://*:1"], "--bind"),
        (["--model", "m", "--endpoint", "tcp://h:1", "--adapter-map", "a=b"], "number"),
        (["--model", "m", "--endpoint", "tcp://h:1", "--adapter-map", "1"], "both sides"),
        (["--model", "m", "--endpoint", "tcp://h:1", "--adapter-version", "=7"], "both sides"),
        (["--model", "m" * 3000, "--endpoint", "tcp://h:1"], r"kv\.model_id"),
    ],
)
async def test_bad_options_are_refused_by_name(flags: list[str], problem: str):
    """At once, and saying what to do."""
    with pytest.raises(InvalidError, match=problem):
        await command.run_with(parse(*flags), Sinks())


@pytest.mark.parametrize("module", ["zmq", "msgspec"])
def test_a_missing_extra_is_named(module: str):
    """The options can be shown without it, and running says what to install."""
    code = (
        f"import sys; sys.modules['{module}'] = None\n"
        "import argparse, asyncio\n"
        "from warmindex_subscriber.kv import command\n"
        "from warmindex_subscriber.fake_engine import command as fake\n"
        "from warmindex.errors import WarmindexError\n"
        "parser = argparse.ArgumentParser(); commands = parser.add_subparsers()\n"
        "command.add_to(commands); fake.add_to(commands)\n"
        "parser.format_help()\n"
        "for arguments in (['kv', '--model', 'm'], ['fake-engine']):\n"
        "    arguments = parser.parse_args(arguments)\n"
        "    run = arguments.run(arguments) if arguments.run is fake.run else "
        "command.run_with(arguments, None)\n"
        "    try: asyncio.run(run)\n"
        "    except WarmindexError as error: print(error)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    lines = ended.stdout.splitlines()
    assert len(lines) == 2
    assert all(module in line and "pip install 'warmindex[kv]'" in line for line in lines)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await true():  # noqa: ASYNC110 - a server sets no event
            await asyncio.sleep(0.05)


async def run_of(client: IndexClient, tokens: Sequence[int], adapter: str = "") -> dict[str, int]:
    """Replicas and the length of their run, by tokens alone."""
    answer = await client.lookup_route(PartitionKey("", "m", "", adapter), token_ids=tokens)
    return {match.replica_id: match.blocks for match in answer.matches}


async def test_an_engines_events_become_routes(engine: FakePublisher):
    """From frames through the publisher into a real server, by prompt and adapter."""
    async with running(grace_s=0.5) as server:
        arguments = parse(
            *("--server", server.address, "--model", "m", "--replica", "pod", "--lease", "2"),
            *("--endpoint", engine.endpoint, "--replay-endpoint", engine.replay_endpoint),
        )
        await engine.send(encode(stored([H1], TOKENS)))
        async with started(command.run(arguments)):
            await engine.subscribed()
            await engine.send(
                encode(
                    stored([H2], [1, 2, 3, 4], parent_block_hash=H1),
                    stored([3], TOKENS, lora_name="sql-lora"),
                )
            )
            prompt = [*TOKENS, 1, 2, 3, 4, 9]

            async def whole() -> bool:
                return await run_of(server.client, prompt) == {"pod": 2}

            await until(whole)
            assert await run_of(server.client, prompt, "sql-lora") == {"pod": 1}
            assert await run_of(server.client, [1, 2, 3, 4]) == {}

            async def shorter() -> bool:
                return await run_of(server.client, prompt) == {}

            await engine.send(encode(removed(H1)))
            await until(shorter)
            assert await run_of(server.client, prompt, "sql-lora") == {"pod": 1}
