"""Several replicas of one backend, and questions beside builds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
from support.embedding_faults import Settings
from support.embedding_server import EmbeddingServer, serving
from warmindex.embedders import UnauthorizedError

TEXTS = [f"tool number {i} does thing {i % 7}" for i in range(40)]


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never came to that")


async def test_texts_are_spread_over_replicas(open_tei: Any):
    """Each of four replicas computes its share, and every text once."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(serving(Settings(batch_sleep_ms=20))) for _ in range(4)
        ]
        embedder = open_tei(*(each.url for each in servers))
        embedded = await embedder.embed_documents([f"text {i}" for i in range(140)])
    assert not embedded.failures
    assert sum(each.texts.total() for each in servers) == 140
    assert min(each.texts.total() for each in servers) > 0


@pytest.mark.parametrize(
    "fault",
    [
        {"fault_cut": True},
        {"fault_html": True},
        {"fault_replies": [{"path": "/embed", "status": 401, "times": 10_000}]},
        {"fault_replies": [{"path": "/embed", "status": 404, "times": 10_000}]},
        {"fault_replies": [{"path": "/embed", "status": 503, "times": 10_000}]},
    ],
)
async def test_one_bad_replica_costs_no_text(open_tei: Any, fault: dict[str, Any]):
    """Its batches go to the others, for builds and for questions alike."""
    async with serving() as good, serving() as bad:
        embedder = open_tei(bad.url, good.url)
        await embedder.identity()
        bad.settings.change(fault)
        embedded = await embedder.embed_documents(TEXTS)
        question = await embedder.embed_query("x")
    assert not embedded.failures
    assert np.isfinite(question).all()
    assert good.texts.total() == 41


async def test_replicas_that_all_want_another_key_are_unauthorised(open_tei: Any):
    """Where no replica is left, the call ends with the reason."""
    async with serving(Settings(api_key="k")) as one, serving(Settings(api_key="k")) as two:
        with pytest.raises(UnauthorizedError):
            await open_tei(one.url, two.url).embed_documents(TEXTS)


async def test_a_question_does_not_wait_for_a_build(server: EmbeddingServer, open_tei: Any):
    """While a build fills its requests, a question is answered before it ends."""
    embedder = open_tei(requests_in_flight=1, batch_texts_max=10)
    await embedder.identity()
    server.settings.batch_sleep_ms = 100
    build = asyncio.create_task(embedder.embed_documents(TEXTS))
    await until(lambda: server.in_flight > 0)
    await embedder.embed_query("x")
    assert not build.done()
    assert not (await build).failures
