"""Sessions: open at once, find one's own tools, and never fail because something is away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.embedding_server import EmbeddingServer
from support.server import ServerHere
from warmindex.client import IndexClient
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


async def test_a_swapped_model_rebuilds_the_session(open_session: Open, backend: EmbeddingServer):
    """A query never compares vectors of two models: words answer until the new ones are there."""
    session = open_session(TOOLS)
    assert await session.ready()
    first = session.model_id
    backend.settings.model_id = "acme/other"
    session._identity_at_s = float("-inf")  # half a minute has passed
    hits = await session.find("warmer room")
    assert [hit.distance for hit in hits if hit.tool.name == "set_thermostat"] == [None]
    assert await session.ready()
    assert session.model_id != first
    assert (await session.find("warmer room"))[0].distance is not None


@pytest.mark.parametrize("more", [0, 1])
async def test_a_swap_found_by_a_later_list_rebuilds_the_texts_that_stay(
    open_session: Open, backend: EmbeddingServer, more: int
):
    """The build of another list finds another model: every vector is of that one afterwards."""
    session = open_session(TOOLS)
    assert await session.ready()
    first = session.model_id
    backend.settings.model_id = "acme/other"
    session.update([*TOOLS[1:], *[("open_valve", "Let water in")] * more])
    assert await session.ready()
    assert session.model_id != first
    assert session.degraded == ""
    hits = await session.find("warmer room", max_distance=2.0)
    assert len(hits) == len(TOOLS) - 1 + more
    assert all(hit.distance is not None for hit in hits)


async def test_a_text_too_long_for_the_index_is_computed_once(
    open_session: Open, backend: EmbeddingServer
):
    """Over-long names and descriptions are published with what fits of their documents."""
    tools = [*TOOLS, ("n" * 2000, "A long name"), ("long", "dé " * 30_000)]
    assert await open_session(tools).ready()
    second = open_session(tools)
    assert await second.ready()
    assert (second.counts.reused, second.counts.index_errors) == (len(tools), 0)


async def test_a_silent_identity_does_not_hold_a_query(
    open_session: Open, backend: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
):
    """Where /info never answers, the last identity that was read finds, and soon."""
    monkeypatch.setattr("warmindex.session.QUERY_IDENTITY_S_MAX", 0.1)
    session = open_session(TOOLS)
    assert await session.ready()
    session._identity_at_s = float("-inf")  # half a minute has passed
    silent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    assert session._builder is not None
    monkeypatch.setattr(session._builder, "current_model_id", lambda: silent)
    assert (await session.find("warmer room"))[0].distance is not None


async def test_a_swap_while_a_query_is_embedded_leaves_words(
    open_session: Open, backend: EmbeddingServer
):
    """A query's vector of one model is not held against vectors of another one."""
    session = open_session(TOOLS)
    assert await session.ready()
    backend.settings.batch_sleep_ms = 700
    asking = asyncio.create_task(session.find("warmer room"))
    while not backend.in_flight:  # noqa: ASYNC110 - nobody tells of it
        await asyncio.sleep(0.01)
    backend.settings.batch_sleep_ms = 0
    backend.settings.model_id = "acme/other"
    session.update([*TOOLS, ("open_valve", "Let water in")])
    assert await session.ready()
    hits = await asking
    assert hits[0].tool.name == "set_thermostat"
    assert {hit.distance for hit in hits} == {None}


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


# ---- what is away ----------------------------------------------------------------------


async def test_index_away(open_session: Open):
    """Without the index a session embeds by itself."""
    async with IndexClient("127.0.0.1:9", timeout_s=1) as nobody:
        session = open_session(TOOLS, client=nobody)
        assert await session.ready()
        assert (await session.find("warmer room"))[0].distance is not None


async def test_no_index_at_all(open_session: Open):
    """A session may be made without an index."""
    session = open_session(TOOLS, client=None)
    assert await session.ready()
    assert session.counts.embedded == 3


async def test_backend_away(open_session: Open, backend: EmbeddingServer):
    """Without the backend words answer, and the session says why and tries again."""
    backend.settings.fault_replies = [{"path": "", "status": 503, "times": 10_000}]
    session = open_session(TOOLS)
    assert not await session.ready()
    assert session.degraded
    assert names(await session.find("warmer room"))[:1] == ["set_thermostat"]
    backend.settings.fault_replies = []
    assert session._building is not None
    await asyncio.wait_for(asyncio.shield(session._building), 20)
    assert session.degraded == ""
    assert (await session.find("warmer room"))[0].distance is not None


async def test_backend_away_for_queries_only(open_session: Open, backend: EmbeddingServer):
    """Where the query cannot be embedded, words answer."""
    session = open_session(TOOLS)
    assert await session.ready()
    backend.settings.fault_replies = [{"path": "/embed", "status": 503, "times": 10_000}]
    hits = await session.find("warmer room")
    assert (names(hits)[:1], hits[0].distance) == (["set_thermostat"], None)
    assert "words alone" in session.degraded
    backend.settings.fault_replies = []
    assert (await session.find("warmer room"))[0].distance is not None
    assert session.degraded == ""


async def test_an_identity_that_cannot_be_read_beside_a_query_still_finds(
    open_session: Open, backend: EmbeddingServer
):
    """The last identity that was read is good for finding."""
    session = open_session(TOOLS)
    assert await session.ready()
    session._identity_at_s = float("-inf")  # half a minute has passed
    backend.settings.fault_replies = [{"path": "/info", "status": 500, "times": 99}]
    assert (await session.find("warmer room"))[0].tool.name == "set_thermostat"


async def test_both_away(open_session: Open, backend: EmbeddingServer):
    """With neither, words answer."""
    backend.settings.fault_replies = [{"path": "", "status": 503, "times": 10_000}]
    async with IndexClient("127.0.0.1:9", timeout_s=1) as nobody:
        session = open_session(TOOLS, client=nobody)
        assert not await session.ready()
        assert names(await session.find("warmer room"))[:1] == ["set_thermostat"]


async def test_no_embedder_at_all(open_session: Open):
    """A session without an embedder finds by words, and says so."""
    session = open_session(TOOLS, embedder=None)
    assert not await session.ready()
    assert session.degraded
    assert names(await session.find("warmer room"))[:1] == ["set_thermostat"]


async def test_a_silent_backend_holds_nobody(open_session: Open, backend: EmbeddingServer):
    """A backend that takes calls and never answers holds neither opening nor finding."""
    backend.settings.fault_silent_s = 30
    started = time.monotonic()
    session = open_session(TOOLS)
    hits = await session.find("warmer room")
    assert names(hits)[:1] == ["set_thermostat"]
    assert time.monotonic() - started < 10


async def test_closing_in_the_middle_is_quiet(open_session: Open, backend: EmbeddingServer):
    """A session may be closed while it builds."""
    backend.settings.batch_sleep_ms = 5000
    session = open_session(TOOLS)
    await asyncio.sleep(0.1)
    await session.close()


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
