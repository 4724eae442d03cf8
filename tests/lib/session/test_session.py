"""Sessions: open at once, find one's own tools, and never fail because something is away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.embedding_server import EmbeddingServer
from support.server import ServerHere, until
from warmindex.errors import InvalidError
from warmindex.index import listing
from warmindex.mirror import Mirror
from warmindex.session import Session, ToolHit
from warmindex.tools import Tool

Open = Callable[..., Session]

TOOLS = [
    ("create_issue", "Report a bug in the tracker of a repository"),
    ("send_mail", "Write a letter and send it to somebody"),
    ("set_thermostat", "Make a room warmer or cooler"),
]


def names(hits: list[ToolHit]) -> list[str]:
    """The tools' names, best first."""
    return [hit.tool.name for hit in hits]


def embedded(backend: EmbeddingServer) -> int:
    """How many texts of tools, not of queries, the backend has computed."""
    return sum(count for text, count in backend.texts.items() if text.startswith("name: "))


async def test_opening_returns_at_once_and_words_find_until_the_vectors_are_there(
    open_session: Open, backend: EmbeddingServer
):
    """A slow backend does not hold the caller; `degraded` says what is missing until then."""
    backend.settings.batch_sleep_ms = 500
    session = open_session(TOOLS)
    assert "not ready" in session.degraded
    hits = await session.find("warmer room")
    assert names(hits)[:1] == ["set_thermostat"]
    assert hits[0].distance is None
    assert session.progress.done < session.progress.total == 3
    assert await session.ready()
    assert session.degraded == ""
    assert session.progress.done == 3
    hits = await session.find("warmer room")
    assert names(hits)[:1] == ["set_thermostat"]
    assert hits[0].distance is not None


async def test_ready_gives_up_after_its_time(open_session: Open, backend: EmbeddingServer):
    """`ready` with a time that passes says that the session is not."""
    backend.settings.batch_sleep_ms = 2000
    assert not await open_session(TOOLS).ready(timeout_s=0.05)


async def test_ready_waits_for_the_list_that_is_wanted_now(
    open_session: Open, backend: EmbeddingServer
):
    """A list that comes while another is built takes its place, for those who wait already too."""
    backend.settings.batch_sleep_ms = 300
    session = open_session(TOOLS[:1])
    waiting = asyncio.create_task(session.ready())
    await until(lambda: backend.in_flight)
    session.update(TOOLS)
    assert await session.ready()
    assert await waiting
    assert session.progress.done == session.progress.total > 0


async def test_who_waits_for_a_session_that_is_closed_is_let_go(
    open_session: Open, backend: EmbeddingServer
):
    """It is not ready, and never will be."""
    backend.settings.batch_sleep_ms = 5000
    session = open_session(TOOLS)
    waiting = asyncio.create_task(session.ready())
    await until(lambda: backend.in_flight)
    await session.close()
    assert not await waiting


async def test_a_second_session_computes_nothing(open_session: Open, backend: EmbeddingServer):
    """What one session has published, another one on the same tools finds."""
    assert await open_session(TOOLS).ready()
    second = open_session(TOOLS)
    assert await second.ready()
    assert (second.counts.reused, second.counts.embedded) == (3, 0)
    assert backend.texts.total() == 3


async def test_two_tools_of_one_text_are_embedded_once_and_are_two_answers(
    open_session: Open, backend: EmbeddingServer
):
    """Each tool comes back with what its owner gave along."""
    twins = [Tool("search", "Look for pages", "wiki"), Tool("search", "Look for pages", "web")]
    session = open_session(twins)
    assert await session.ready()
    assert backend.texts.total() == 1
    assert [hit.tool.data for hit in await session.find("look for pages")] == ["wiki", "web"]


async def test_a_session_finds_its_own_tools_alone(open_session: Open):
    """Tools of another session in the same partition are never answers."""
    assert await open_session(TOOLS).ready()
    mine = open_session([("water_garden", "Open the sprinklers")])
    assert await mine.ready()
    assert names(await mine.find("report a bug", keywords=["issue"], max_distance=2)) == [
        "water_garden"
    ]


async def test_texts_are_kept_at_home_on_request(open_session: Open, index: ServerHere):
    """With publish_documents=False the index gets vectors and no text."""
    session = open_session(TOOLS, publish_documents=False)
    assert await session.ready()
    for tool in TOOLS:
        content_hash = Tool.of(tool).content_hash()
        (entry,) = listing.entries(index.store.index, "", content_hash, None, 9)
        assert entry.document is None
    assert names(await session.find("report a bug"))[:1] == ["create_issue"]


async def test_a_changed_description_is_the_only_text_embedded_again(
    open_session: Open, backend: EmbeddingServer
):
    """An update embeds what is new; a tool that leaves and comes back is reused."""
    session = open_session(TOOLS)
    assert await session.ready()
    session.update([TOOLS[0], ("send_mail", "Post a parcel")])
    assert await session.ready()
    assert embedded(backend) == 4
    assert "set_thermostat" not in names(await session.find("warmer room", max_distance=2))
    session.update(TOOLS)
    assert await session.ready()
    assert embedded(backend) == 4
    assert names(await session.find("warmer room"))[:1] == ["set_thermostat"]


@pytest.mark.parametrize(
    "value",
    [
        {"name": "a", "description": None},
        {"name": "a"},
        ("a", ""),
        Tool("a"),
        type("McpTool", (), {"name": "a", "description": None})(),
    ],
)
async def test_tools_come_in_many_forms(open_session: Open, value: object):
    """Mappings, pairs and objects with a name and a description are tools."""
    session = open_session([value])
    assert await session.ready()
    assert names(await session.find("a")) == ["a"]


async def test_what_is_no_tool_is_refused(open_session: Open):
    """A tool without a name is an error that says what a tool needs."""
    with pytest.raises(InvalidError, match="name and a description"):
        open_session([{"title": "a"}])


async def test_a_text_that_is_not_unicode_is_found_by_words(open_session: Open):
    """A lone surrogate has no hash and no vector; the tool stays findable."""
    session = open_session([*TOOLS, ("broken_\ud83d", "Frobnicate the widget")])
    assert await session.ready()
    assert names(await session.find("frobnicate widget"))[:1] == ["broken_\ud83d"]


@pytest.mark.parametrize(
    "text",
    ["", "   ", "\0", '"unbalanced', "AND", "*", "name:pull", "\ud83d", "🧑‍🚀", "a " * 50_000],
)
async def test_nothing_that_can_be_typed_raises(open_session: Open, text: str):
    """Any query has an answer, if an empty one; a long one is cut."""
    session = open_session(TOOLS)
    assert await session.ready()
    assert isinstance(await session.find(text, keywords=[text]), list)


async def test_keywords_alone_find(open_session: Open):
    """Keywords without a description are a query."""
    session = open_session(TOOLS)
    assert await session.ready()
    assert names(await session.find(keywords=["warmer", "room"]))[:1] == ["set_thermostat"]


async def test_a_text_too_long_for_the_index_is_computed_once(
    open_session: Open, backend: EmbeddingServer
):
    """Over-long names and descriptions are published with what fits of their documents."""
    tools = [*TOOLS, ("n" * 2000, "A long name"), ("long", "dé " * 30_000)]
    assert await open_session(tools).ready()
    second = open_session(tools)
    assert await second.ready()
    assert (second.counts.reused, second.counts.index_errors) == (len(tools), 0)


async def test_the_first_question_about_many_tools_leaves_others_their_turn(open_session: Open):
    """Words are indexed in steps: another task runs between them."""
    session = open_session([(f"tool_{i}", f"Does thing {i}") for i in range(400)], embedder=None)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(other())
    assert (await session.find("thing 7"))[0].tool.name == "tool_7"
    running.cancel()
    assert turns > 5


# ---- real catalogues -------------------------------------------------------------------

DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.mark.skipif(not DATA.exists(), reason="the shared catalogues are not beside the project")
async def test_a_catalogue_some_months_later_embeds_what_changed_and_nothing_else(
    open_session: Open, backend: EmbeddingServer
):
    """Between two real lists of tools exactly the new and the changed texts are computed."""
    old, new = (
        json.loads((DATA / name).read_text())
        for name in ("catalogue-140.json", "catalogue-140-v2.json")
    )
    texts_old = {Tool.of(tool).text for tool in old}
    texts_new = {Tool.of(tool).text for tool in new}
    session = open_session(old)
    assert await session.ready()
    assert backend.texts.total() == len(texts_old) == 140
    session.update(new)
    assert await session.ready()
    assert backend.texts.total() == 140 + len(texts_new - texts_old)
    session.update(old)
    assert await session.ready()
    assert backend.texts.total() == 140 + len(texts_new - texts_old)


# ---- mirrors ---------------------------------------------------------------------------


async def test_a_mirror_answers_while_the_server_is_away(
    open_session: Open, backend: EmbeddingServer, index: ServerHere
):
    """What a copy in the process has is reused although no server can be reached."""
    assert await open_session(TOOLS).ready()
    async with Mirror(index.client, documents=False) as mirror:
        await mirror.ready(timeout_s=10)
        await index.server.stop()
        session = open_session(TOOLS, mirror=mirror)
        assert await session.ready()
        assert (session.counts.reused, session.counts.index_errors) == (3, 0)
    assert backend.texts.total() == 3


async def test_a_session_may_have_a_mirror_of_its_own(
    open_session: Open, backend: EmbeddingServer, index: ServerHere
):
    """With mirror=True a later list is served from the session's own copy."""
    assert await open_session(TOOLS).ready()
    session = open_session(TOOLS[:1], mirror=True)
    assert await session.ready()
    assert session._own_mirror is not None
    await session._own_mirror.ready(timeout_s=10)
    await index.server.stop()
    session.update(TOOLS)
    assert await session.ready()
    assert session.counts.reused == 3
    assert backend.texts.total() == 3
