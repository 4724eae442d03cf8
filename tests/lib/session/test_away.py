"""Sessions whose index, backend or both are away: slower or plainer, and never failed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from support.embedding_server import EmbeddingServer
from warmindex.client import IndexClient
from warmindex.session import Session, ToolHit

Open = Callable[..., Session]

TOOLS = [
    ("create_issue", "Report a bug in the tracker of a repository"),
    ("send_mail", "Write a letter and send it to somebody"),
    ("set_thermostat", "Make a room warmer or cooler"),
]


def names(hits: list[ToolHit]) -> list[str]:
    """The tools' names, best first."""
    return [hit.tool.name for hit in hits]


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
