"""One MCP server, a real process: listed, followed, lost, found again, called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError
from support.mcp_world import http_server, stdio_config, write_tools
from support.server import until
from warmindex_subscriber.mcp import connection as module
from warmindex_subscriber.mcp.config import ServerConfig
from warmindex_subscriber.mcp.connection import ServerAwayError

Follow = Callable[[ServerConfig], Any]
ERAS = pytest.mark.parametrize("flags", [(), ("--legacy",)], ids=["2026-07-28", "earlier"])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that a test can wait for."""
    monkeypatch.setattr(module, "RETRY_S_FIRST", 0.05)


@ERAS
async def test_a_process_is_listed_by_pages_and_followed(
    tmp_path: Path, follow: Follow, flags: tuple[str, ...]
):
    """All pages come together in order; what changes is told, in either age of the protocol."""
    path = write_tools(tmp_path / "a.json", "one", "two", "three", "four", "five")
    async with follow(stdio_config("a", path, "--page", "2", *flags)) as here:
        assert here.names == ["one", "two", "three", "four", "five"]
        assert here.connection.problem == ""
        write_tools(path, "six", "one")
        await here.until("six", "one")


@ERAS
async def test_http_is_listed_by_pages_and_followed(
    tmp_path: Path, follow: Follow, flags: tuple[str, ...]
):
    """The same over streamable HTTP, with the headers that the configuration gives."""
    path = write_tools(tmp_path / "a.json", "one", "two", "three")
    with http_server(path, "--page", "1", "--key", "k", *flags) as url:
        config = ServerConfig("a", url=url, headers={"Authorization": "Bearer k"})
        async with follow(config) as here:
            assert here.names == ["one", "two", "three"]
            write_tools(path, "one")
            await here.until("one")


@ERAS
async def test_a_process_that_falls_over_keeps_its_tools_and_is_started_again(
    tmp_path: Path, follow: Follow, flags: tuple[str, ...]
):
    """A call that was lost is not made again; the next one finds a new process."""
    path = write_tools(tmp_path / "a.json", "crash", "whoami")
    async with follow(stdio_config("a", path, *flags, WHO="me")) as here:
        first = await here.asked("whoami")
        assert first["who"] == "me"
        with pytest.raises(MCPError, match="closed"):
            await here.asked("crash")
        assert here.names == ["crash", "whoami"]
        assert (await here.asked("whoami"))["pid"] != first["pid"]


async def test_an_http_server_that_comes_back_is_found_again(tmp_path: Path, follow: Follow):
    """Away, it keeps its tools and says why calls fail; back, it is listed anew."""
    path = write_tools(tmp_path / "a.json", "one", "crash")
    with http_server(path) as url:
        port = int(url.split(":")[2].split("/")[0])
        async with follow(ServerConfig("a", url=url)) as here:
            with pytest.raises(MCPError):
                await here.asked("crash")
            await until(lambda: here.connection.problem)
            assert here.names == ["one", "crash"]
            write_tools(path, "two")
            with http_server(path, port=port):
                await here.until("two")
                assert await here.asked("two", n=1) == {"tool": "two", "arguments": {"n": 1}}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (ServerConfig("a", "/there/is/no/such/program"), "No such file"),
        (ServerConfig("a", "true"), "closed|ended"),
        (ServerConfig("a", url="http://127.0.0.1:9/mcp"), "ConnectError"),
    ],
    ids=["no program", "ends at once", "nobody listens"],
)
async def test_a_server_that_cannot_be_reached_says_why(
    follow: Follow, monkeypatch: pytest.MonkeyPatch, config: ServerConfig, why: str
):
    """It has no tools, and a call says that it certainly was not made."""
    import re

    monkeypatch.setattr(module, "COMING_S_MAX", 0.2)
    async with follow(config) as here:
        assert here.names == []
        assert re.search(why, here.connection.problem), here.connection.problem
        with pytest.raises(ServerAwayError, match="'a' is away"):
            await here.asked("anything")


async def test_a_server_that_wants_another_key_says_so(tmp_path: Path, follow: Follow):
    """The status tells a wrong key from a server that is down."""
    with http_server(write_tools(tmp_path / "a.json", "one"), "--key", "k") as url:
        wrong = {"Authorization": "Bearer w"}
        async with follow(ServerConfig("a", url=url, headers=wrong)) as here:
            assert here.connection.problem.endswith("(HTTP 401)")


async def test_a_refusal_of_the_server_is_the_callers(tmp_path: Path, follow: Follow):
    """An unknown tool is an error of that call; the connection stays."""
    path = write_tools(tmp_path / "a.json", "one", "whoami")
    async with follow(stdio_config("a", path)) as here:
        pid = (await here.asked("whoami"))["pid"]
        with pytest.raises(MCPError, match="Unknown tool"):
            await here.asked("two")
        assert (await here.asked("whoami"))["pid"] == pid


async def test_a_server_that_tells_nothing_is_listed_again(
    tmp_path: Path, follow: Follow, monkeypatch: pytest.MonkeyPatch
):
    """Without notifications a change is found when the list is read again."""
    monkeypatch.setattr(module, "RELIST_S", 0.1)
    path = write_tools(tmp_path / "a.json", "one")
    async with follow(stdio_config("a", path, "--mute")) as here:
        write_tools(path, "two")
        await here.until("two")


async def test_pages_that_lead_in_a_circle_are_a_problem(tmp_path: Path, follow: Follow):
    """A server whose cursor never ends is no server; it is not listed for ever."""
    path = write_tools(tmp_path / "a.json", "one", "two")
    async with follow(stdio_config("a", path, "--page", "1", "--circle")) as here:
        assert here.names == []
        assert "leads back to itself" in here.connection.problem


async def test_names_that_are_none_and_second_ones_are_left_out(tmp_path: Path, follow: Follow):
    """An empty name, one of a kilobyte and more, and a repeated one take nobody down."""
    path = write_tools(tmp_path / "a.json", ("one", "first"), "", "x" * 1025, ("one", "second"))
    async with follow(stdio_config("a", path)) as here:
        assert [(tool.name, tool.description) for tool in here.connection.tools] == [
            ("one", "first")
        ]
