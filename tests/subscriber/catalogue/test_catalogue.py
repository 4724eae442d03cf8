"""Catalogues: what is listed is held, what has gone is evicted, exactly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.embedding_server import EmbeddingServer
from support.server import ServerHere, running
from warmindex.index import listing
from warmindex.tools import Tool
from warmindex_subscriber.catalogue import Catalogue, Summary, keep
from warmindex_subscriber.catalogue_files import CatalogueError, CatalogueFiles, read_tools

Open = Callable[..., Catalogue]

TOOLS = [
    Tool("create_issue", "Report a bug"),
    Tool("send_mail", "Write a letter"),
    Tool("set_thermostat", "Make a room warmer"),
]


def held(index: ServerHere, adapter_id: str = "") -> dict[str, set[str]]:
    """Who holds which of the tools."""
    found = {}
    for tool in TOOLS:
        for entry in listing.entries(index.store.index, "", tool.content_hash(), None, 9):
            if entry.key.adapter_id == adapter_id:
                found[tool.name] = {name for name, _ in entry.holds}
    return found


async def test_what_is_listed_is_embedded_and_held(
    open_catalogue: Open, index: ServerHere, backend: EmbeddingServer
):
    """The first pass publishes everything, with the texts."""
    summary = await open_catalogue().synchronise(TOOLS)
    assert (summary.counts.embedded, summary.evicted, list(summary.problems)) == (3, 0, [])
    assert held(index) == {tool.name: {"catalogue/a"} for tool in TOOLS}
    (entry,) = listing.entries(index.store.index, "", TOOLS[0].content_hash(), None, 9)
    assert entry.document == TOOLS[0].document
    assert "embedded 3" in str(summary)


async def test_what_has_gone_is_evicted_in_its_own_partition_only(
    open_catalogue: Open, index: ServerHere
):
    """The same texts of another adapter stay."""
    base, legal = open_catalogue(), open_catalogue("catalogue/legal", adapter_id="legal")
    await base.synchronise(TOOLS)
    await legal.synchronise(TOOLS)
    summary = await base.synchronise(TOOLS[1:])
    assert summary.evicted == 1
    assert set(held(index)) == {"send_mail", "set_thermostat"}
    assert set(held(index, "legal")) == {tool.name for tool in TOOLS}


async def test_one_holder_may_fill_several_adapters(
    open_catalogue: Open, index: ServerHere, backend: EmbeddingServer
):
    """A subscriber that starts under a name that is used for another adapter leaves that alone."""
    await open_catalogue().synchronise(TOOLS)
    assert (await open_catalogue(adapter_id="legal").synchronise(TOOLS)).evicted == 0
    assert (await open_catalogue().synchronise(TOOLS[1:])).evicted == 1
    assert set(held(index)) == {"send_mail", "set_thermostat"}
    assert set(held(index, "legal")) == {tool.name for tool in TOOLS}
    assert backend.texts.total() == 6


async def test_nothing_goes_while_something_listed_cannot_be_read(
    open_catalogue: Open, index: ServerHere
):
    """A file that is half written at the start costs nothing; once it is whole, the rest goes."""
    await open_catalogue().synchronise(TOOLS)
    catalogue = open_catalogue()
    assert (await catalogue.synchronise(TOOLS[:1], complete=False)).evicted == 0
    assert (await catalogue.synchronise(TOOLS[:2])).evicted == 1
    assert set(held(index)) == {"create_issue", "send_mail"}


async def test_a_tool_goes_when_the_last_catalogue_has_dropped_it(
    open_catalogue: Open, index: ServerHere, backend: EmbeddingServer
):
    """Two catalogues with one tool embed it once, and hold it each."""
    one, two = open_catalogue("catalogue/a"), open_catalogue("catalogue/b")
    await one.synchronise(TOOLS)
    await two.synchronise(TOOLS[:1])
    assert backend.texts.total() == 3
    assert held(index)["create_issue"] == {"catalogue/a", "catalogue/b"}
    await one.synchronise(TOOLS[1:])
    assert held(index)["create_issue"] == {"catalogue/b"}
    await two.synchronise([])
    assert "create_issue" not in held(index)


async def test_what_left_while_the_subscriber_was_away_goes_at_its_start(
    open_catalogue: Open, index: ServerHere
):
    """A new life of the same holder reports all it lists; the rest of its holds go."""
    await open_catalogue().synchronise(TOOLS)
    summary = await open_catalogue().synchronise(TOOLS[:1])
    assert summary.evicted == 2
    assert set(held(index)) == {"create_issue"}
    (entry,) = listing.entries(index.store.index, "", TOOLS[0].content_hash(), None, 9)
    assert entry.dimensions == 64


async def test_another_model_takes_the_place_of_the_last(
    open_catalogue: Open, index: ServerHere, backend: EmbeddingServer
):
    """After a swap everything is held under the new identity and nothing under the old one."""
    catalogue = open_catalogue()
    await catalogue.synchronise(TOOLS)
    backend.settings.model_id = "acme/other"
    await catalogue.synchronise(TOOLS)
    (info,) = listing.partitions(index.store.index, "", "", None, 9)
    assert "acme/other" in info.key.model_id
    assert info.entries == 3


async def test_a_text_that_fails_keeps_its_neighbours(
    open_catalogue: Open, index: ServerHere, backend: EmbeddingServer
):
    """One text that the backend refuses fails alone, and is tried again later."""
    backend.settings.fault_guilty = ["letter"]
    catalogue = open_catalogue()
    summary = await catalogue.synchronise([*TOOLS, Tool("bad\ud83d", "")])
    assert (summary.counts.embedded, summary.counts.failed) == (2, 1)
    assert any("left out" in problem for problem in summary.problems)
    backend.settings.fault_guilty = []
    assert (await catalogue.synchronise(TOOLS)).counts.embedded == 1


async def test_a_history_that_changed_is_noticed_and_published_to_again(
    open_catalogue: Open, index: ServerHere, backend: EmbeddingServer
):
    """An index that came back empty is filled again, without a new computation by others."""
    catalogue = open_catalogue()
    await catalogue.synchronise(TOOLS)
    assert not await catalogue.history_changed()
    port = index.server.port
    await index.server.stop()
    async with running(listen=f"127.0.0.1:{port}", grace_s=0.2) as again:
        assert await catalogue.history_changed()
        await catalogue.synchronise(TOOLS)
        assert set(held(again)) == {tool.name for tool in TOOLS}
        assert not await catalogue.history_changed()


async def test_keeping_follows_changes(open_catalogue: Open, index: ServerHere):
    """Whenever the source says so, the index is brought to what is listed then."""
    listed, changed = list(TOOLS), asyncio.Event()
    told: asyncio.Queue[Summary] = asyncio.Queue()
    task = asyncio.create_task(
        keep(open_catalogue(), lambda: listed, changed, told=told.put_nowait)
    )
    assert (await told.get()).counts.embedded == 3
    listed.pop()
    changed.set()
    assert (await told.get()).evicted == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# ---- files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        {"tools": [{"name": "a", "description": "b"}]},
        {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "a", "description": "b"}]}},
        [{"name": "a", "description": "b", "inputSchema": {}}],
    ],
)
def test_files_come_in_many_shapes(tmp_path: Path, content: object):
    """The result of tools/list, the whole answer, and a plain list are read alike."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(content))
    (tool,) = read_tools(path)
    assert (tool.name, tool.description) == ("a", "b")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "17",
        f'[{{"name": "x", "n": {"9" * 5000}}}]',
        '{"tools": 3}',
        '[{"title": "x"}]',
        "[[1]]",
    ],
)
def test_a_file_without_tools_is_an_error_that_names_it(tmp_path: Path, content: str):
    """Half-written, empty and other JSON is refused with the file's name."""
    path = tmp_path / "tools.json"
    path.write_text(content)
    with pytest.raises(CatalogueError, match=r"tools\.json"):
        read_tools(path)


def test_a_file_that_cannot_be_read_keeps_what_it_had(tmp_path: Path):
    """Half-written keeps, gone empties, a folder is all of its files."""
    (tmp_path / "a.json").write_text('[{"name": "a"}]')
    (tmp_path / "b.json").write_text('[{"name": "b"}]')
    files = CatalogueFiles([tmp_path])
    assert [tool.name for tool in files.read()] == ["a", "b"]
    (tmp_path / "a.json").write_text("[{")
    assert [tool.name for tool in files.read()] == ["a", "b"]
    assert len(files.problems) == 1
    (tmp_path / "a.json").unlink()
    assert [tool.name for tool in files.read()] == ["b"]
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "settings.json").write_text("{}")
    assert [tool.name for tool in files.read()] == ["b"]
    assert files.complete
    (tmp_path / "c.json").write_text("[{")
    assert [tool.name for tool in files.read()] == ["b"]
    assert not files.complete


def test_a_byte_order_mark_is_read_over(tmp_path: Path):
    """Some editors put one first."""
    (tmp_path / "a.json").write_text('[{"name": "a"}]', encoding="utf-8-sig")
    assert [tool.name for tool in read_tools(tmp_path / "a.json")] == ["a"]


# ---- the command -----------------------------------------------------------------------


@asynccontextmanager
async def subscriber(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process."""
    import sys

    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmindex_subscriber",
        "catalogue",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_command_follows_a_file_until_sigterm(
    tmp_path: Path, index: ServerHere, backend: EmbeddingServer
):
    """It prints a line per pass, follows the file, and ends with exit code 0."""
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": t.name, "description": t.description} for t in TOOLS]))
    flags = ("--server", index.address, "--embedder", "tei", "--embedder-url", backend.url)
    async with subscriber(str(path), *flags) as process:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert b"embedded 3" in line
        assert held(index)["send_mail"] == {"catalogue/tools.json"}
        await asyncio.sleep(0.3)  # the watch of the folder begins with the first pass
        path.write_text("[]")
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert b"evicted 3" in line
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 15) == 0


async def test_once_ends_by_itself(tmp_path: Path, index: ServerHere, backend: EmbeddingServer):
    """With --once the exit code says whether all of it held."""
    path = tmp_path / "tools.json"
    path.write_text('[{"name": "a"}]')
    flags = ("--server", index.address, "--embedder", "tei", "--embedder-url", backend.url)
    async with subscriber(str(path), *flags, "--once") as process:
        assert await asyncio.wait_for(process.wait(), 30) == 0
    async with subscriber(str(tmp_path / "missing.json"), *flags, "--once") as process:
        assert await asyncio.wait_for(process.wait(), 30) == 1
