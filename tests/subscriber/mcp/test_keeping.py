"""Tools of MCP servers in the index: each server's by itself, held as long as it lists them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support import questions
from support.embedding_server import EmbeddingServer
from support.mcp_world import environment, http_server, stdio_config, write_config, write_tools
from support.server import ServerHere, until
from warmindex import limits
from warmindex.embedders import EmbedderOptions, open_embedder
from warmindex.event import Document
from warmindex.session import Session
from warmindex_subscriber.mcp.config import Configured, ServerConfig
from warmindex_subscriber.mcp.keeping import Keeper

MAIL = [("send_mail", "Write a letter"), ("search", "Search the mail box")]
WIKI = [("search", "Search the wiki"), ("edit_page", "Change a page")]
NOBODY = ServerConfig("mail", "/there/is/no/such/program")

Keep = Callable[..., Keeper]


@pytest.fixture
async def keeper(index: ServerHere, backend: EmbeddingServer) -> AsyncIterator[Keep]:
    """Makes keepers over the stand-in embedder and the index."""
    embedder = open_embedder(EmbedderOptions(kind="tei", urls=(backend.url,)))

    def make(*servers: ServerConfig, left_out: tuple[str, ...] = ()) -> Keeper:
        configured = Configured(problems=[f"{name} is no good" for name in left_out])
        configured.names.update(left_out)
        for server in servers:
            configured.add(server)
        return Keeper(configured, embedder, index.client, prefix="mcp/test")

    yield make
    await embedder.close()


def held(index: ServerHere) -> dict[str, set[str]]:
    """What each holder holds, by the tools' names and descriptions."""
    found: dict[str, set[str]] = {}
    for holds, _, document, _ in questions.content(index.store.index).values():
        assert isinstance(document, Document)
        for hold in holds:
            found.setdefault(hold.replica_id, set()).add(document.description)
    return found


async def test_each_server_holds_its_own(tmp_path: Path, index: ServerHere, keeper: Keep):
    """Two servers in one pass: what each lists is held under its name."""
    mail = stdio_config("mail", write_tools(tmp_path / "mail.json", *MAIL))
    wiki = stdio_config("wiki", write_tools(tmp_path / "wiki.json", *WIKI))
    assert await keeper(mail, wiki).once()
    assert held(index) == {
        "mcp/test/mail": {"Write a letter", "Search the mail box"},
        "mcp/test/wiki": {"Search the wiki", "Change a page"},
    }


async def test_a_server_that_does_not_come_up_keeps_what_it_had_listed(
    tmp_path: Path, index: ServerHere, keeper: Keep
):
    """In the next life of the subscriber one is away; the other goes on, and loses what it
    lists no longer.
    """
    mail = stdio_config("mail", write_tools(tmp_path / "mail.json", *MAIL))
    wiki = stdio_config("wiki", write_tools(tmp_path / "wiki.json", *WIKI))
    assert await keeper(mail, wiki).once()
    write_tools(tmp_path / "wiki.json", WIKI[0])
    assert not await keeper(NOBODY, wiki).once()
    assert held(index) == {
        "mcp/test/mail": {"Write a letter", "Search the mail box"},
        "mcp/test/wiki": {"Search the wiki"},
    }


async def test_a_server_that_is_configured_no_longer_is_cleared(
    tmp_path: Path, index: ServerHere, keeper: Keep
):
    """Its holder lets go, unless its entry is there and only cannot be read."""
    mail = stdio_config("mail", write_tools(tmp_path / "mail.json", *MAIL))
    wiki = stdio_config("wiki", write_tools(tmp_path / "wiki.json", *WIKI))
    assert await keeper(mail, wiki).once()
    assert not await keeper(wiki, left_out=("mail",)).once()
    assert "mcp/test/mail" in held(index)
    assert await keeper(wiki).once()
    assert set(held(index)) == {"mcp/test/wiki"}


async def test_no_session_pays_for_what_is_kept(
    tmp_path: Path, index: ServerHere, backend: EmbeddingServer, keeper: Keep
):
    """A gateway's session on the servers' tools, new ones too, has nothing computed."""
    path = write_tools(tmp_path / "mail.json", *MAIL)
    keeping = asyncio.create_task(keeper(stdio_config("mail", path)).keep())
    await until(lambda: len(held(index).get("mcp/test/mail", ())) == 2)
    write_tools(path, *MAIL, ("read_mail", "Open a letter"))
    await until(lambda: len(held(index)["mcp/test/mail"]) == 3)
    embedder = open_embedder(EmbedderOptions(kind="tei", urls=(backend.url,)))
    tools = [*MAIL, ("read_mail", "Open a letter")]
    async with Session(tools, embedder=embedder, client=index.client) as session:
        assert await session.ready()
        assert (session.counts.reused, session.counts.embedded) == (3, 0)
    await embedder.close()
    assert backend.texts.total() == 3
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_a_description_past_the_limit_takes_nobody_down(
    tmp_path: Path, index: ServerHere, keeper: Keep
):
    """It is cut at what a document may have, in the middle of no character."""
    long = "ü" * limits.DOCUMENT_DESCRIPTION_BYTES_MAX
    path = write_tools(tmp_path / "mail.json", *MAIL, ("long", long))
    assert await keeper(stdio_config("mail", path)).once()
    descriptions = held(index)["mcp/test/mail"]
    assert descriptions == {
        "Write a letter",
        "Search the mail box",
        long[: limits.DOCUMENT_DESCRIPTION_BYTES_MAX // 2],
    }


# ---- the command -----------------------------------------------------------------------


@asynccontextmanager
async def subscriber(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmindex_subscriber",
        "mcp",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line_of(process: asyncio.subprocess.Process) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    return (await asyncio.wait_for(process.stdout.readline(), 60)).decode()


async def test_the_command_follows_servers_until_sigterm(
    tmp_path: Path, index: ServerHere, backend: EmbeddingServer
):
    """A process and a URL from a client's JSON, beside a server that is away: a line a pass,
    changes followed, exit code 0 at the end.
    """
    wiki = write_tools(tmp_path / "wiki.json", *WIKI)
    mail = stdio_config("mail", write_tools(tmp_path / "mail.json", *MAIL), "--legacy")
    with http_server(wiki) as url:
        servers = {"mail": mail, "wiki": ServerConfig("wiki", url=url), "away": NOBODY}
        config = write_config(tmp_path / "desktop.json", servers)
        flags = ("--server", index.address, "--embedder", "tei", "--embedder-url", backend.url)
        async with subscriber(str(config), *flags) as process:
            lines = sorted([await line_of(process), await line_of(process)])
            assert [line.split(":")[0] for line in lines] == ["mail", "wiki"]
            assert all("embedded 2" in line for line in lines)
            assert set(held(index)) == {"mcp/desktop.json/mail", "mcp/desktop.json/wiki"}
            write_tools(wiki, WIKI[0])
            line = await line_of(process)
            assert line.startswith("wiki: 1 texts")
            assert "evicted 1" in line
            process.terminate()
            assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.slow
async def test_once_ends_by_itself(tmp_path: Path, index: ServerHere, backend: EmbeddingServer):
    """A command after two dashes; the exit code says whether all of it held."""
    path = write_tools(tmp_path / "mail.json", *MAIL)
    server = stdio_config("mail", path)
    flags = ("--server", index.address, "--embedder", "tei", "--embedder-url", backend.url)
    async with subscriber(*flags, "--once", "--", server.command, *server.args) as process:
        assert await asyncio.wait_for(process.wait(), 60) == 0
    (holder,) = held(index)
    assert holder.startswith("mcp/python")
    async with subscriber("--url", "http://127.0.0.1:9/mcp", *flags, "--once") as process:
        assert await asyncio.wait_for(process.wait(), 60) == 1
