"""warmindex-mcp as people run it: a process, the SDK's client before it, two servers behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client
from support.embedding_server import EmbeddingServer, serving
from support.mcp_world import environment, http_server, stdio_config, write_config, write_tools
from support.server import ServerHere, running
from warmindex.embedders import EmbedderOptions, open_embedder
from warmindex.session import Session
from warmindex_subscriber.mcp.config import ServerConfig
from warmindex_subscriber.mcp_server.tokens import tokens_of

LETTER = "Write a letter and send it"
MAIL = [("send_mail", LETTER), ("search", "Search the mail box"), ("fail", "")]
WIKI = [("search", "Search pages of the wiki"), ("whoami", ""), ("crash", ""), ("slow", "Wait")]
FOREIGN = [("burn_letters", "Write a letter and burn it"), ("letter_opener", "Open a letter")]


@pytest.fixture
async def index() -> AsyncIterator[ServerHere]:
    async with running(grace_s=0.2) as here:
        yield here


@pytest.fixture
async def backend() -> AsyncIterator[EmbeddingServer]:
    async with serving() as started:
        yield started


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """A desktop client's file with a process of the earlier protocol and a URL."""
    mail = stdio_config("mail", write_tools(tmp_path / "mail.json", *MAIL), "--legacy")
    with http_server(write_tools(tmp_path / "wiki.json", *WIKI)) as url:
        servers = {"mail": mail, "wiki": ServerConfig("wiki", url=url)}
        yield write_config(tmp_path / "desktop.json", servers)


def command(*arguments: str) -> Client:
    """A client that starts the command."""
    args = ["-m", "warmindex_subscriber.mcp_server", *arguments]
    return Client(stdio_client(StdioServerParameters(command=sys.executable, args=args)))


async def find(client: Client, description: str, *keywords: str) -> Any:
    """What find_tool answers."""
    given = {"tool_description": description, "tool_keywords": list(keywords)}
    result = await client.call_tool("find_tool", given)
    assert not result.is_error, result.content
    return result.structured_content


async def found(client: Client, description: str, condition: Callable[[Any], bool]) -> Any:
    """What find_tool answers once a condition holds; nobody tells when."""
    async with asyncio.timeout(60):
        while True:
            answer = await find(client, description)
            if condition(answer):
                return answer
            await asyncio.sleep(0.05)


async def found_by_meaning(client: Client, description: str) -> Any:
    """What find_tool answers once every vector is there."""
    return await found(client, description, lambda answer: "notes" not in answer)


async def call(client: Client, name: str, **given: Any) -> Any:
    return await client.call_tool("call_tool", {"tool_name": name, "parameters": given})


async def test_a_model_finds_and_calls_the_tools_of_its_servers_and_no_others(
    config: Path, index: ServerHere, backend: EmbeddingServer
):
    """Over stdin and stdout, with an index in which others have published tools that fit better."""
    embedder = open_embedder(EmbedderOptions(kind="tei", urls=(backend.url,)))
    async with Session(FOREIGN, embedder=embedder, client=index.client) as others:
        assert await others.ready()
    await embedder.close()
    flags = ("--server", index.address, "--embedder", "tei", "--embedder-url", backend.url)
    async with command(str(config), *flags) as client:
        answer = await found_by_meaning(client, "write a letter and burn it")
        names = [each["name"] for each in answer["tools"]]
        assert names[0] == "send_mail"
        everything = {
            "send_mail", "fail", "whoami", "crash", "slow", "mail__search", "wiki__search",
        }  # fmt: skip
        assert set(names) <= everything
        assert answer["tools"][0] == {
            "name": "send_mail",
            "description": LETTER,
            "input_schema": {"type": "object"},
            "server": "mail",
        }

        metrics = answer["token_metrics"]
        assert metrics["returned_tokens"] == sum(tokens_of(each) for each in answer["tools"])
        listed = [
            {"name": name, "description": text, "input_schema": {"type": "object"}}
            for name, text in [*MAIL[::2], *WIKI[1:], ("mail__search", MAIL[1][1])]
        ]
        listed.append({**listed[-1], "name": "wiki__search", "description": WIKI[0][1]})
        assert metrics["baseline_tokens"] == sum(tokens_of(each) for each in listed)

        called = await call(client, "send_mail", to="you")
        assert called.structured_content == {"tool": "send_mail", "arguments": {"to": "you"}}
        assert (await call(client, "wiki__search", q=1)).structured_content == {
            "tool": "search",
            "arguments": {"q": 1},
        }
        for foreign in ("burn_letters", "letter_opener", "search"):
            refused = await call(client, foreign)
            assert refused.is_error, foreign
        assert "mail__search, wiki__search" in refused.content[0].text
        failed = await call(client, "fail")
        assert (failed.is_error, failed.structured_content["tool"]) == (True, "fail")

        steps: list[float] = []

        async def note(step: float, _total: float | None, _message: str | None) -> None:
            steps.append(step)

        given = {"tool_name": "slow", "parameters": {}}
        await client.call_tool("call_tool", given, progress_callback=note)
        assert steps == [0, 1, 2]


@pytest.mark.slow
async def test_a_change_behind_it_is_found(
    config: Path, index: ServerHere, backend: EmbeddingServer, tmp_path: Path
):
    """A new tool can be found and called, one that has gone can be neither; nothing else is
    computed again.
    """
    flags = ("--server", index.address, "--embedder", "tei", "--embedder-url", backend.url)
    async with command(str(config), *flags) as client:
        await found_by_meaning(client, "anything")
        write_tools(tmp_path / "mail.json", *MAIL[1:], ("paint", "Paint a picture of a letter"))
        await found(client, "paint a picture", lambda got: got["tools"][0]["name"] == "paint")
        await found_by_meaning(client, "anything")
        assert (await call(client, "paint")).structured_content["tool"] == "paint"
        assert (await call(client, "send_mail")).is_error
    tools = {text for text in backend.texts if text.startswith("name: ")}
    assert len(tools) == 8
    assert {backend.texts[text] for text in tools} == {1}


async def test_words_find_where_index_and_embedder_are_away(config: Path):
    """Nothing but the servers is needed, and the answer says what is missing."""
    away = ("--server", "127.0.0.1:9", "--embedder", "tei", "--embedder-url", "http://127.0.0.1:9")
    async with command(str(config), *away) as client:
        answer = await find(client, "search pages of the wiki")
        assert answer["tools"][0]["name"] == "wiki__search"
        assert answer["notes"]
        assert (await call(client, "wiki__search")).structured_content["tool"] == "search"


@pytest.mark.slow
async def test_the_embedder_alone_is_enough(config: Path, backend: EmbeddingServer):
    """Without an index tools are found by meaning too."""
    flags = ("--without-index", "--embedder", "tei", "--embedder-url", backend.url)
    async with command(str(config), *flags) as client:
        answer = await found_by_meaning(client, "write a letter and send it")
        assert answer["tools"][0]["name"] == "send_mail"


@asynccontextmanager
async def listening(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The command over HTTP, and its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmindex_subscriber.mcp_server",
        *arguments,
        "--mcp-listen",
        "127.0.0.1:0",
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        yield process, f"http://{line.removeprefix('listening on ').strip()}/mcp"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.slow
async def test_over_http_clients_of_both_ages_are_served(
    config: Path,
):
    """Two clients at once; a server that fell over is told of; SIGTERM ends it all."""
    flags = (str(config), "--words-only", "--without-index")
    async with (
        listening(*flags) as (process, url),
        Client(url) as new,
        Client(url, mode="legacy") as old,
    ):
        for client in (new, old):
            answer = await find(client, "", "letter")
            assert [each["name"] for each in answer["tools"]] == ["send_mail"]
        assert (await call(new, "crash")).is_error
        assert (await call(old, "send_mail")).structured_content["tool"] == "send_mail"
        lost = await call(old, "whoami")
        assert lost.is_error
        assert "wiki" in lost.content[0].text
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.slow
async def test_sigterm_ends_it_although_stdin_is_open(config: Path):
    """Its servers end with it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmindex_subscriber.mcp_server",
        str(config),
        "--words-only",
        "--without-index",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"'mail': connected" not in await process.stderr.readline():
            pass
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 30) == 0
    await process.communicate()


async def test_it_is_not_open_to_others_by_mistake(config: Path):
    """Beyond loopback it listens only where that is said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmindex_subscriber.mcp_server",
        str(config),
        "--mcp-listen",
        "0.0.0.0:0",
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    _, error = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert b"--mcp-insecure" in error
