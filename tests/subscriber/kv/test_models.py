"""Adapter versions read from an engine's model list, over real HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from support.kv_payloads import KEY, encode, stored
from support.kv_publisher import FakePublisher, RecordingSink, following
from warmindex_subscriber.kv import models
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.models import AdapterVersions


class Engine:
    """Answers GET /v1/models."""

    def __init__(self) -> None:
        self.status = 200
        self.asked = 0
        self.adapters = {"sql-lora": "/adapters/7"}
        self.url = ""

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        if self.status != 200:
            return web.Response(status=self.status, text="no JSON")
        data: list[dict[str, Any]] = [{"id": "base", "root": "acme/m", "parent": None}]
        data += [{"id": n, "root": root, "parent": "base"} for n, root in self.adapters.items()]
        return web.json_response({"object": "list", "data": data})


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    here = Engine()
    app = web.Application()
    app.router.add_get("/v1/models", here.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    here.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield here
    await runner.cleanup()


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_a_version_is_where_the_adapter_was_loaded_from(engine: Engine, suffix: str):
    """Whatever form the engine's URL has."""
    adapters = Adapters(versions_required=True)
    await AdapterVersions(engine.url + suffix, adapters, {}).refresh()
    assert adapters.resolve("sql-lora", None) == "sql-lora@/adapters/7"
    assert adapters.resolve("other", None) is None


@pytest.mark.parametrize("status", [401, 404, 500, 200])
async def test_what_is_known_stays_where_the_list_cannot_be_read(
    engine: Engine, status: int, caplog: pytest.LogCaptureFixture
):
    """It is said once, and never raised."""
    adapters = Adapters(versions_required=True)
    versions = AdapterVersions(engine.url, adapters, {"configured": "1"})
    await versions.refresh()
    engine.status = status
    if status == 200:
        versions._url = "http://127.0.0.1:9/v1/models"
    await versions.refresh()
    await versions.refresh()
    assert adapters.resolve("sql-lora", None) == "sql-lora@/adapters/7"
    assert adapters.resolve("configured", None) == "configured@1"
    assert len(caplog.records) == 1


async def test_an_adapter_that_comes_up_is_looked_for_before_its_blocks_are_filed(engine: Engine):
    """And filed under its version; a reload from elsewhere is another adapter."""
    fake, sink = FakePublisher(), RecordingSink()
    try:
        async with following(sink, fake, models_url=engine.url):
            engine.adapters["chat-lora"] = "/adapters/8"
            await fake.send(encode(stored(lora_name="sql-lora"), rank=None))
            await sink.until(lambda: sink.index.keys("sql-lora@/adapters/7") == {KEY})
    finally:
        await fake.close()


async def test_an_unknown_name_is_not_asked_for_with_every_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    """Once in a while, and again later."""
    adapters = Adapters(versions_required=True)
    versions = AdapterVersions(engine.url, adapters, {})
    from warmindex_subscriber.kv.decode import decode_batch

    events = decode_batch(encode(stored(lora_name="new"), stored(lora_name="sql-lora"))).events
    for _ in range(5):
        await versions.ensure(events)
    assert engine.asked == 1
    monkeypatch.setattr(models, "ASK_AGAIN_S", 0.0)
    engine.adapters["new"] = "/adapters/9"
    await versions.ensure(events)
    assert adapters.resolve("new", None) == "new@/adapters/9"
    await versions.ensure(events)
    assert engine.asked == 2
