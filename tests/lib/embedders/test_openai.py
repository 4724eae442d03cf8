"""The embedder over the OpenAI form: requests, answers, identity, adapters, Azure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from support.embedding_faults import vector
from support.embedding_server import EmbeddingServer, serving
from warmindex.embedders import (
    AdapterRule,
    BadAnswerError,
    EmbedderOptions,
    FailureKind,
    IdentityRefusedError,
    MisconfiguredError,
    OpenAIEmbedder,
)

TEXTS = [f"tool number {i} does thing {i % 7}" for i in range(100)]
AZURE = "https://r.example/openai/deployments/d1?api-version=2024-10-21"


def options(*urls: str, **given: Any) -> EmbedderOptions:
    return EmbedderOptions(**({"kind": "openai", "urls": urls, "model": "lines"} | given))


async def identity(*urls: str, **given: Any) -> str:
    embedder = OpenAIEmbedder(options(*urls, **given))
    return (await embedder.identity()).model_id


@pytest.mark.parametrize(
    ("urls", "given", "model_id"),
    [
        (["https://api.example.com/v1"], {}, "h=api.example.com;m=lines;r=;d=;pool=;dim=0"),
        (["https://api.example.com"], {}, "h=api.example.com;m=lines;r=;d=;pool=;dim=0"),
        (
            ["http://10.0.0.7:8000"],
            {"dimensions": 256},
            "h=10.0.0.7:8000;m=lines;r=;d=;pool=;dim=256",
        ),
        (["http://h/team"], {"revision": "7"}, "h=h/team;m=lines;r=7;d=;pool=;dim=0"),
        (["http://a", "http://b"], {"host": "prod"}, "h=prod;m=lines;r=;d=;pool=;dim=0"),
        (["http://b", "http://a"], {}, "h=a%2Cb;m=lines;r=;d=;pool=;dim=0"),
        ([AZURE], {"model": ""}, "h=r.example/openai/deployments/d1;m=d1;r=;d=;pool=;dim=0"),
    ],
)
async def test_the_identity_is_what_is_configured(
    urls: list[str], given: dict[str, Any], model_id: str
):
    """Host, model, revision and width; without any request, and without the adapter."""
    tail = ";norm=0;trunc=server@0;doc="
    assert await identity(*urls, **given) == f"emb/1;p=openai;{model_id}{tail}"


async def test_prompts_of_documents_are_part_of_it_and_those_of_queries_are_not():
    """Query vectors are never published."""
    plain = await identity("http://h")
    assert await identity("http://h", query_prompt="q: ") == plain
    assert await identity("http://h", document_prompt="p: ") == plain + "p:%20"


async def test_an_identity_that_has_no_string_is_refused():
    """A prompt beyond the limit of a model_id is a matter of configuration."""
    with pytest.raises(IdentityRefusedError):
        await identity("http://h", document_prompt="p" * 3000)


@pytest.mark.parametrize("fault", ["fault_shuffle", "fault_base64", "fault_no_index"])
async def test_vectors_are_each_texts_own(server: EmbeddingServer, open_openai: Any, fault: str):
    """Shuffled, as base64 or without index: every text gets its vector."""
    server.settings.change({fault: True, "max_client_batch_size": 2048})
    embedded = await open_openai().embed_documents(TEXTS)
    assert not embedded.failures
    for row, text in zip(embedded.vectors, TEXTS, strict=True):
        np.testing.assert_allclose(row, vector(server.settings, text, "lines||", 64), rtol=1e-6)


async def test_a_limit_that_nobody_announced_is_found(server: EmbeddingServer, open_openai: Any):
    """The server takes 20 texts at once: the request is split until it fits, and stays so."""
    server.settings.max_client_batch_size = 20
    embedder = open_openai(requests_in_flight=1)
    assert not (await embedder.embed_documents(TEXTS)).failures
    assert server.embed_count - len(server.batches) == 1
    assert server.texts.total() == 100
    assert not (await embedder.embed_documents(TEXTS)).failures
    assert server.embed_count - len(server.batches) == 1


async def test_the_request_says_its_format_and_nothing_unset(
    server: EmbeddingServer, open_openai: Any
):
    """encoding_format is always float; dimensions is there only when configured."""
    await open_openai().embed_documents(["x"])
    await open_openai(dimensions=8).embed_query("x")
    assert server.bodies[0] == {"input": ["x"], "encoding_format": "float", "model": "lines"}
    assert server.bodies[1] == server.bodies[0] | {"dimensions": 8}


async def test_prompts_are_put_before_texts(server: EmbeddingServer, open_openai: Any):
    """Documents and questions have prompts of their own, as text."""
    embedder = open_openai(document_prompt="name: ", query_prompt="q: ")
    await embedder.embed_documents(["x"])
    await embedder.embed_query("x")
    assert list(server.texts) == ["name: x", "q: x"]


async def test_an_adapter_stands_in_the_models_place(server: EmbeddingServer, open_openai: Any):
    """As vLLM has it; the identity stays the base model's."""
    embedder = open_openai()
    before = await embedder.identity()
    base = await embedder.embed_documents(["x"])
    adapted = await embedder.embed_documents(["x"], adapter_id="sql-lora")
    assert [body["model"] for body in server.bodies] == ["lines", "sql-lora"]
    assert not np.allclose(base.vectors, adapted.vectors)
    assert await embedder.identity() == before


async def test_an_adapter_may_be_a_field(server: EmbeddingServer, open_openai: Any):
    """With a rule, the model stays and the field says which."""
    embedder = open_openai(adapter_rule=AdapterRule.parse("field:task"))
    await embedder.embed_query("x", adapter_id="match")
    assert server.bodies[0]["model"] == "lines"
    assert server.bodies[0]["task"] == "match"


async def test_answers_of_two_models_are_not_mixed(open_openai: Any):
    """Behind one name, two replicas answer as different models: no vectors at all."""
    async with serving() as one, serving() as two:
        two.settings.served_model_name = "another"
        with pytest.raises(BadAnswerError, match="two models behind one name"):
            await open_openai(one.url, two.url, requests_in_flight=1).embed_documents(TEXTS)


async def test_a_missing_model_is_misconfigured(server: EmbeddingServer, open_openai: Any):
    """Ollama's way to say that there is no such model: once, with its words."""
    reply = {"error": 'model "lines" not found, try pulling it first'}
    server.settings.fault_replies = [{"status": 404, "json": reply}]
    with pytest.raises(MisconfiguredError, match="try pulling it first"):
        await open_openai().embed_documents(["x"])
    assert server.embed_count == 1


def mocked(answer: Callable[[httpx.Request], httpx.Response], *urls: str, **given: Any) -> Any:
    embedder = OpenAIEmbedder(options(*urls, **given))
    client = httpx.AsyncClient(
        transport=httpx.MockTransport(answer), headers=embedder._backend._headers
    )
    embedder._backend.__dict__["client"] = client
    return embedder


@pytest.mark.parametrize(
    ("url", "header"),
    [
        (AZURE, ("api-key", "k1")),
        ("https://r.openai.azure.com/openai/v1", ("api-key", "k1")),
        ("https://api.example.com/v1", ("authorization", "Bearer k1")),
    ],
)
async def test_the_key_goes_where_it_is_looked_for(url: str, header: tuple[str, str]):
    """Azure wants its own header and no bearer, the others the other way round."""
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [1.0]}]})

    embedder = mocked(answer, url, api_key="k1")
    await embedder.embed_query("x")
    await embedder.close()
    names = {"api-key", "authorization"} & set(requests[0].headers)
    assert names == {header[0]}
    assert requests[0].headers[header[0]] == header[1]
    if url == AZURE:
        assert str(requests[0].url) == (
            "https://r.example/openai/deployments/d1/embeddings?api-version=2024-10-21"
        )


async def test_an_adapter_cannot_be_chosen_where_the_address_names_the_deployment():
    """On Azure the model's name is ignored: an adapter by that name would be a lie."""
    embedder = OpenAIEmbedder(options(AZURE))
    for call in (embedder.embed_documents(["x"], adapter_id="a"),
                 embedder.embed_query("x", adapter_id="a")):  # fmt: skip
        with pytest.raises(MisconfiguredError) as caught:
            await call
        assert caught.value.field == "adapter_rule"


async def test_a_quota_that_is_used_up_is_not_retried():
    """429 for want of money is no reason to wait."""
    count = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal count
        count += 1
        error = {"message": "You exceeded your current quota", "code": "insufficient_quota"}
        return httpx.Response(429, json={"error": error})

    embedder = mocked(answer, "https://api.example.com")
    with pytest.raises(MisconfiguredError, match="quota"):
        await embedder.embed_documents(["x"])
    await embedder.close()
    assert count == 1


async def test_a_request_with_too_many_tokens_is_split():
    """Each text is short enough and all together are not: halves pass."""
    sizes: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        if len(texts) > 3:
            error = {"message": "Requested 400000 tokens, max 300000 tokens per request"}
            return httpx.Response(400, json={"error": error})
        sizes.append(len(texts))
        data = [{"index": i, "embedding": [1.0, len(text)]} for i, text in enumerate(texts)]
        return httpx.Response(200, json={"data": data})

    embedder = mocked(answer, "https://api.example.com")
    embedded = await embedder.embed_documents(["x" * n for n in range(1, 11)])
    await embedder.close()
    assert not embedded.failures
    assert embedded.vectors[:, 1].tolist() == list(range(1, 11))
    assert sum(sizes) == 10


async def test_a_text_that_the_model_answers_nan_for_fails_alone():
    """Ollama breaks with 500 on it, and says NaN: no retry, and the others have vectors."""

    def answer(request: httpx.Request) -> httpx.Response:
        texts = json.loads(request.content)["input"]
        if "nan" in texts:
            error = "failed to encode response: json: unsupported value: NaN"
            return httpx.Response(500, json={"error": error})
        data = [{"index": i, "embedding": [1.0, 2.0]} for i in range(len(texts))]
        return httpx.Response(200, json={"data": data})

    embedder = mocked(answer, "http://h:11434")
    embedded = await embedder.embed_documents(["a", "nan", "b", "c"])
    await embedder.close()
    assert {i: failure.kind for i, failure in embedded.failures.items()} == {
        1: FailureKind.REJECTED
    }
