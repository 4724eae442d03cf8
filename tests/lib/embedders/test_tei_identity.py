"""Whose vectors they are: TEI's identity, read live, and what makes it unsafe."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
from support.embedding_faults import Settings
from support.embedding_server import EmbeddingServer, serving
from warmindex.embedders import (
    BackendUnavailableError,
    EmbedderOptions,
    IdentityRefusedError,
    IdentityUnavailableError,
    MisconfiguredError,
)
from warmindex.embedders.tei_info import compose, parse_info

INFO: dict[str, Any] = {
    "model_id": "acme/lines-small",
    "model_sha": "9f3c",
    "model_dtype": "Float16",
    "served_model_name": "prod",
    "model_type": {"Embedding": {"pooling": "CLS"}},
    "max_input_length": 512,
    "max_client_batch_size": 32,
    "max_concurrent_requests": 512,
}


def composed(info: dict[str, Any], **options: Any) -> str:
    made = EmbedderOptions(kind="tei", urls=("http://h",), **options)
    return compose(parse_info(json.dumps(info).encode(), "h"), made, "h").model_id


BASE = "emb/1;p=tei;h=;m=acme/lines-small;r=9f3c;d=float16;pool=cls;"


@pytest.mark.parametrize(
    ("info", "options", "model_id"),
    [
        ({}, {}, BASE + "dim=0;norm=1;trunc=right@512;doc="),
        ({"served_model_name": "x"}, {}, BASE + "dim=0;norm=1;trunc=right@512;doc="),
        ({}, {"truncate": "left"}, BASE + "dim=0;norm=1;trunc=left@512;doc="),
        ({}, {"truncate": "none"}, BASE + "dim=0;norm=1;trunc=none@0;doc="),
        ({"auto_truncate": True}, {"truncate": "none"}, BASE + "dim=0;norm=1;trunc=none@0;doc="),
        ({}, {"dimensions": 256}, BASE + "dim=256;norm=1;trunc=right@512;doc="),
        ({}, {"normalize": False}, BASE + "dim=0;norm=0;trunc=right@512;doc="),
        ({}, {"document_prompt": "p: "}, BASE + "dim=0;norm=1;trunc=right@512;doc=p:%20"),
        ({}, {"document_prompt": "name:p"}, BASE + "dim=0;norm=1;trunc=right@512;doc=name:p"),
        ({}, {"query_prompt": "q: "}, BASE + "dim=0;norm=1;trunc=right@512;doc="),
        # The server's own revision counts before a configured one.
        ({}, {"revision": "mine"}, BASE + "dim=0;norm=1;trunc=right@512;doc="),
        (
            {"model_id": "/data", "model_sha": None},
            {"revision": "2031-05"},
            "emb/1;p=tei;h=;m=/data;r=2031-05;d=float16;pool=cls;dim=0;norm=1;trunc=right@512;doc=",
        ),
        (
            {"model_sha": None},
            {},
            BASE.replace("9f3c", "") + "dim=0;norm=1;trunc=right@512;doc=",
        ),
    ],
)
def test_everything_that_determines_a_vector_is_in_the_identity(
    info: dict[str, Any], options: dict[str, Any], model_id: str
):
    """What /info says and what is asked for; never a name that an operator chose."""
    assert composed(INFO | info, **options) == model_id


@pytest.mark.parametrize("path", ["/data", "./model", "../m", "~/m", "C:\\models\\m", "a/b/c"])
def test_a_path_without_a_revision_is_refused(path: str):
    """Under one path any model may lie: the error says what to configure."""
    with pytest.raises(IdentityRefusedError, match="configure a revision") as caught:
        composed(INFO | {"model_id": path, "model_sha": None})
    assert caught.value.field == "revision"


def test_a_cut_at_an_unknown_length_is_refused():
    """Where /info does not say where texts are cut, cutting is not safe to share."""
    with pytest.raises(IdentityRefusedError) as caught:
        composed(INFO | {"max_input_length": None})
    assert caught.value.field == "truncate"
    assert composed(INFO | {"max_input_length": None}, truncate="none")


def test_an_identity_that_is_too_long_is_refused():
    """A prompt that does not fit into a model_id is a matter of configuration."""
    with pytest.raises(IdentityRefusedError, match="2048"):
        composed(INFO, document_prompt="p" * 2048)


@pytest.mark.parametrize(
    "kind", [{"reranker": {}}, {"classifier": {"id2label": {}}}, None, {}, "x"]
)
def test_a_model_that_does_not_embed_is_misconfigured(kind: Any):
    """A reranker or a classifier has no vectors to share."""
    with pytest.raises(MisconfiguredError, match="not an embedding model"):
        composed(INFO | {"model_type": kind})


@pytest.mark.parametrize(
    "body", ["", "<html>", "[]", "{}", '{"model_id": ""}', "null", "[" * 99999]
)
def test_what_is_no_info_leaves_the_identity_unavailable(body: str):
    """A page, an empty body or another service: not now."""
    with pytest.raises(IdentityUnavailableError):
        parse_info(body.encode(), "h")


async def test_the_identity_is_read_live(server: EmbeddingServer, open_tei: Any):
    """Each call reads /info; another model or revision is another identity at once."""
    embedder = open_tei()
    first = await embedder.identity()
    server.settings.model_sha = "4567def"
    second = await embedder.identity()
    server.settings.change({"model_id": "acme/other", "served_model_name": "prod"})
    third = await embedder.identity()
    assert len({first, second, third}) == 3
    assert server.info_count == 3


async def test_a_swap_in_the_middle_shows_in_the_next_reading(
    server: EmbeddingServer, open_tei: Any
):
    """Two batches, and the model changes between them: the readings around them differ."""
    server.settings.fault_swap_after = 1
    embedder = open_tei(requests_in_flight=1)
    before = await embedder.identity()
    await embedder.embed_documents([f"text {i}" for i in range(40)])
    assert await embedder.identity() != before


@pytest.mark.parametrize(
    "reply",
    [
        {"status": 500},
        {"status": 503, "headers": {"Retry-After": "7"}},
        {"status": 200, "text": "<html>starting</html>"},
        {"status": 200, "json": {"status": "ok"}},
    ],
)
async def test_an_info_that_fails_for_now_is_unavailable(
    server: EmbeddingServer, open_tei: Any, reply: dict[str, Any]
):
    """The same call succeeds when the server has come round."""
    server.settings.fault_replies = [{"path": "/info"} | reply]
    embedder = open_tei()
    with pytest.raises(IdentityUnavailableError) as caught:
        await embedder.identity()
    assert caught.value.retry_after_s == (7 if "headers" in reply else None)
    assert (await embedder.identity()).model == "acme/stand-in"


async def test_an_info_that_never_answers_is_unavailable(
    server: EmbeddingServer, open_tei: Any, monkeypatch: pytest.MonkeyPatch
):
    """A silent server is given up after the time-out."""
    monkeypatch.setattr("warmindex.embedders.tei_info.INFO_TIMEOUT_S", 0.1)
    server.settings.fault_silent_s = 5.0
    with pytest.raises(IdentityUnavailableError, match="no answer"):
        await open_tei().identity()


async def replicas(stack: AsyncExitStack, *models: str) -> list[EmbeddingServer]:
    return [await stack.enter_async_context(serving(Settings(model_sha=model))) for model in models]


TEXTS = [f"tool {i} of many" for i in range(64)]


async def test_replicas_must_serve_one_model(open_tei: Any):
    """While a roll-out has reached only some replicas, there is no identity to share under."""
    async with AsyncExitStack() as stack:
        servers = await replicas(stack, "aaa", "bbb")
        embedder = open_tei(*(each.url for each in servers))
        with pytest.raises(IdentityUnavailableError, match="different models") as caught:
            await embedder.identity()
        assert "r=aaa" in str(caught.value)
        assert "r=bbb" in str(caught.value)
        servers[0].settings.model_sha = "bbb"
        assert (await embedder.identity()).revision == "bbb"


async def test_a_replica_that_cannot_be_read_gets_no_texts(open_tei: Any):
    """It might come back with another model: only verified replicas give vectors."""
    async with AsyncExitStack() as stack:
        good, bad = await replicas(stack, "aaa", "aaa")
        bad.settings.fault_replies = [{"path": "/info", "status": 503}]
        embedder = open_tei(good.url, bad.url)
        await embedder.identity()
        bad.settings.model_sha = "bbb"
        embedded = await embedder.embed_documents(TEXTS)
        assert not embedded.failures
        assert (good.texts.total(), bad.texts.total()) == (64, 0)
        bad.settings.model_sha = "aaa"
        await embedder.identity()
        await embedder.embed_documents(TEXTS)
        assert bad.texts.total() > 0


async def test_a_replica_lost_after_it_answered_spoils_one_reading(open_tei: Any):
    """Nobody can say whose its vectors were; after that the others go on without it."""
    async with AsyncExitStack() as stack:
        good, lost = await replicas(stack, "aaa", "aaa")
        embedder = open_tei(good.url, lost.url)
        await embedder.identity()
        await embedder.embed_documents(TEXTS)
        assert lost.texts.total() > 0
        lost.settings.fault_replies = [{"path": "/info", "status": 503, "times": 99}]
        with pytest.raises(IdentityUnavailableError, match="since its model was last read"):
            await embedder.identity()
        assert (await embedder.identity()).revision == "aaa"
        lost.reset()
        embedded = await embedder.embed_documents(TEXTS)
        assert not embedded.failures
        assert lost.texts.total() == 0


async def test_replicas_that_mix_widths_never_mix_vectors(open_tei: Any):
    """Two models behind one list of addresses: no vectors at all rather than some of each."""
    async with AsyncExitStack() as stack:
        servers = await replicas(stack, "aaa", "aaa")
        servers[1].settings.dimensions = 32
        embedder = open_tei(*(each.url for each in servers))
        with pytest.raises(Exception, match="two models") as caught:
            await embedder.embed_documents(TEXTS)
        assert not isinstance(caught.value, BackendUnavailableError)


async def test_the_same_address_twice_is_one_replica(server: EmbeddingServer, open_tei: Any):
    """A repeated URL is asked and counted once."""
    embedder = open_tei(server.url, server.url + "/")
    await embedder.identity()
    assert server.info_count == 1
    assert np.isfinite((await embedder.embed_documents(["x"])).vectors).all()
