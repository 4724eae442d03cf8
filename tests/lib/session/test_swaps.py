"""Sessions whose model is swapped: vectors of two models never meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.embedding_server import EmbeddingServer
from warmindex.session import Session

Open = Callable[..., Session]

TOOLS = [
    ("create_issue", "Report a bug in the tracker of a repository"),
    ("send_mail", "Write a letter and send it to somebody"),
    ("set_thermostat", "Make a room warmer or cooler"),
]


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
