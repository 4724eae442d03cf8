"""The TEI embedder against a server: requests, limits, prompts, adapters, keys."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from support.embedding_faults import vector
from support.embedding_server import EmbeddingServer, serving
from warmindex.embedders import (
    AdapterRule,
    FailureKind,
    IdentityUnavailableError,
    MisconfiguredError,
    TextRefusedError,
    UnauthorizedError,
)

TEXTS = [f"tool number {i} does thing {i % 7}" for i in range(33)]


def expected(server: EmbeddingServer, text: str, width: int = 0) -> Any:
    return vector(server.settings, text, "||", width or server.settings.dimensions)


async def test_thirty_three_texts_are_two_requests_in_order(server: EmbeddingServer, open_tei: Any):
    """Batches are as large as /info allows, and each text gets its own vector."""
    embedded = await open_tei().embed_documents(TEXTS)
    assert sorted(server.batches) == [1, 32]
    assert not embedded.failures
    assert embedded.vectors.dtype == np.float32
    for row, text in zip(embedded.vectors, TEXTS, strict=True):
        np.testing.assert_allclose(row, expected(server, text), rtol=1e-6)


@pytest.mark.parametrize("change", ["status", "lacking", "zero", "text"])
async def test_without_a_limit_in_info_thirty_two_is_taken(
    server: EmbeddingServer, open_tei: Any, change: str
):
    """/info that fails, lacks the field or says 0 means TEI's default of 32."""
    match change:
        case "status":
            server.settings.fault_replies = [{"path": "/info", "status": 500}]
        case "lacking":
            server.settings.fault_info_without = ["max_client_batch_size"]
        case "zero" | "text":
            value = {"zero": 0, "text": "many"}[change]
            info = {"model_id": "m", "model_type": {"embedding": {}}, "max_input_length": 9}
            reply = {
                "path": "/info",
                "status": 200,
                "json": info | {"max_client_batch_size": value},
            }
            server.settings.fault_replies = [reply]
    embedded = await open_tei().embed_documents(TEXTS)
    assert not embedded.failures
    assert sorted(server.batches) == [1, 32]


async def test_a_batch_never_needs_more_permits_than_there_are(
    server: EmbeddingServer, open_tei: Any
):
    """Each text takes a permit: requests and their texts stay within them."""
    server.settings.max_concurrent_requests = 10
    server.settings.batch_sleep_ms = 5
    embedded = await open_tei().embed_documents(TEXTS)
    assert not embedded.failures
    assert max(server.batches) <= 10
    assert server.in_flight_max == 1


async def test_several_requests_are_under_way_at_once(server: EmbeddingServer, open_tei: Any):
    """A build does not wait for one answer before it sends the next request."""
    server.settings.batch_sleep_ms = 50
    embedder = open_tei(batch_texts_max=4, requests_in_flight=3)
    await embedder.embed_documents(TEXTS)
    assert server.in_flight_max == 3
    assert max(server.batches) == 4


async def test_blank_texts_are_never_sent(server: EmbeddingServer, open_tei: Any):
    """Blanks fail at their own index, and nothing stands in for them."""
    embedded = await open_tei().embed_documents(["alpha", "", "   ", "\n\t", "omega"])
    assert {i: failure.kind for i, failure in embedded.failures.items()} == dict.fromkeys(
        (1, 2, 3), FailureKind.BLANK
    )
    assert embedded.valid.tolist() == [True, False, False, False, True]
    assert set(server.texts) == {"alpha", "omega"}


@pytest.mark.parametrize("texts", [[], [""], ["\ud83d"]])
async def test_nothing_to_send_sends_nothing_for_it(
    server: EmbeddingServer, open_tei: Any, texts: list[str]
):
    """An empty list, a blank and a lone surrogate make no embedding request."""
    embedded = await open_tei().embed_documents(texts)
    assert embedded.vectors.shape == (len(texts), 0)
    assert len(embedded.failures) == len(texts)
    assert server.embed_count == 0


async def test_one_text_twice_is_sent_once(server: EmbeddingServer, open_tei: Any):
    """Equal texts in one call are computed once and answered at each place."""
    embedded = await open_tei().embed_documents(["same", "other", "same"])
    assert server.texts == {"same": 1, "other": 1}
    assert (embedded.vectors[0] == embedded.vectors[2]).all()
    assert embedded.sent_count == 2


@pytest.mark.parametrize(
    ("truncate", "sent"),
    [
        ("right", {"truncate": True, "truncation_direction": "right"}),
        ("left", {"truncate": True, "truncation_direction": "left"}),
        ("none", {"truncate": False}),
    ],
)
async def test_truncation_is_always_said(
    server: EmbeddingServer, open_tei: Any, truncate: str, sent: dict[str, Any]
):
    """The server's default, which differs between releases, never decides."""
    await open_tei(truncate=truncate).embed_documents(["x"])
    body = {key: value for key, value in server.bodies[0].items() if key.startswith("trunc")}
    assert body == sent


@pytest.mark.parametrize("auto_truncate", [True, False])
async def test_a_long_text_is_cut_or_fails_by_choice(
    server: EmbeddingServer, open_tei: Any, auto_truncate: bool
):
    """Cut where cutting is chosen, alone in failing where it is not, whatever the server's way."""
    server.settings.auto_truncate = auto_truncate
    texts = ["word " * 700, "short one", "short two"]
    cut = await open_tei().embed_documents(texts)
    assert not cut.failures
    whole = await open_tei(truncate="none").embed_documents(texts)
    assert {i: failure.kind for i, failure in whole.failures.items()} == {0: FailureKind.TOO_LONG}
    assert whole.valid.tolist() == [False, True, True]


async def test_prompts_are_put_before_texts(server: EmbeddingServer, open_tei: Any):
    """Documents and questions have prompts of their own."""
    embedder = open_tei(document_prompt="passage: ", query_prompt="query: ")
    await embedder.embed_documents(["x"])
    await embedder.embed_query("x")
    assert list(server.texts) == ["passage: x", "query: x"]


async def test_prompts_that_the_server_knows_are_named(server: EmbeddingServer, open_tei: Any):
    """ "name:…" goes as prompt_name, and the text stays as it is."""
    embedder = open_tei(document_prompt="name:passage", query_prompt="name:query")
    await embedder.embed_documents(["x"])
    await embedder.embed_query("x")
    assert [body["prompt_name"] for body in server.bodies] == ["passage", "query"]
    assert server.texts == {"x": 2}


async def test_options_that_are_unset_are_not_sent(server: EmbeddingServer, open_tei: Any):
    """No dimensions and no prompt_name unless they are configured."""
    await open_tei().embed_documents(["x"])
    await open_tei(dimensions=8, normalize=False).embed_documents(["x"])
    assert set(server.bodies[0]) == {"inputs", "truncate", "truncation_direction", "normalize"}
    assert server.bodies[1]["dimensions"] == 8
    assert server.bodies[1]["normalize"] is False


async def test_an_adapter_is_a_field_of_the_body(server: EmbeddingServer, open_tei: Any):
    """With a rule, one backend fills several partitions with different vectors."""
    embedder = open_tei(adapter_rule=AdapterRule.parse("field:task"))
    base = await embedder.embed_documents(["x"])
    adapted = await embedder.embed_documents(["x"], adapter_id="match")
    await embedder.embed_query("x", adapter_id="match")
    assert [body.get("task") for body in server.bodies] == [None, "match", "match"]
    assert not np.allclose(base.vectors, adapted.vectors)


async def test_without_a_rule_an_adapter_only_names_a_partition(
    server: EmbeddingServer, open_tei: Any
):
    """TEI has no adapters of its own: the request is the base model's."""
    await open_tei().embed_documents(["x"], adapter_id="team-a")
    assert "team-a" not in str(server.bodies)


async def test_an_adapter_that_cannot_be_sent_is_refused(server: EmbeddingServer, open_tei: Any):
    """An adapter's name without a UTF-8 form is found before any request."""
    with pytest.raises(MisconfiguredError) as caught:
        await open_tei().embed_query("x", adapter_id="\ud83d")
    assert caught.value.field == "adapter_id"
    assert server.embed_count == 0


async def test_healthy_but_unauthorised_is_said_once_and_clearly(
    server: EmbeddingServer, open_tei: Any
):
    """401 with an empty body: one error with the host, and no storm of requests."""
    server.settings.api_key = "k1-secret"
    embedder = open_tei(api_key="wrong-secret")
    host = server.url.removeprefix("http://")
    with pytest.raises(UnauthorizedError, match=f"{host}: unauthorised") as caught:
        await embedder.identity()
    assert "secret" not in str(caught.value)
    with pytest.raises(UnauthorizedError):
        await embedder.embed_documents(TEXTS * 10)
    # One for each of the requests that were under way at once.
    assert server.embed_count <= 4
    with pytest.raises(UnauthorizedError):
        await embedder.embed_query("x")
    assert server.embed_count <= 5


async def test_a_key_is_trimmed_and_appears_nowhere(
    server: EmbeddingServer, open_tei: Any, caplog: pytest.LogCaptureFixture
):
    """A key read from a file with its line break works, and no log has it."""
    server.settings.api_key = "k1-secret"
    server.settings.fault_replies = [
        {"path": "/embed", "status": 500, "json": {"error": "do not know k1-secret"}},
        {"path": "/embed", "status": 400, "json": {"error": "do not know k1-secret"}},
    ]
    with caplog.at_level(logging.DEBUG):
        embedder = open_tei(api_key=" k1-secret\n")
        await embedder.identity()
        embedded = await embedder.embed_documents(["x"])
    assert embedded.failures[0].kind is FailureKind.REJECTED or not embedded.failures
    assert "k1-secret" not in caplog.text + repr(embedded.failures)
    assert caplog.text


@pytest.mark.parametrize("status", [403, 404])
async def test_html_refusals_are_clear_errors(server: EmbeddingServer, open_tei: Any, status: int):
    """A gateway's page with 403 or 404 is a matter of key or address, and not retried."""
    page = {"status": status, "text": "<html><body>Nothing here</body></html>", "times": 99}
    server.settings.fault_replies = [page]
    embedder = open_tei()
    error = UnauthorizedError if status == 403 else MisconfiguredError
    with pytest.raises(error):
        await embedder.identity()
    with pytest.raises(error):
        await embedder.embed_documents(["x"])
    assert server.embed_count == 1


async def test_credentials_in_the_url_work_and_stay_hidden(
    open_tei: Any, server: EmbeddingServer, caplog: pytest.LogCaptureFixture
):
    """User and password go as a header, and the log of requests shows the plain URL."""
    embedder = open_tei(server.url.replace("//", "//user:s3cret@"))
    with caplog.at_level(logging.DEBUG):
        await embedder.embed_documents(["x"])
    assert "s3cret" not in caplog.text


async def test_a_prefix_is_kept(server: EmbeddingServer, open_tei: Any):
    """Behind a gateway's path, /info and /embed are under that path."""
    await open_tei(server.url + "/tei/").embed_documents(["x"])
    assert server.paths == ["/tei/info", "/tei/embed"]


async def test_a_query_is_one_vector(server: EmbeddingServer, open_tei: Any):
    """A question's vector is float32 (d,), and a blank one is refused without a request."""
    embedder = open_tei()
    made = await embedder.embed_query("where am I")
    np.testing.assert_allclose(made, expected(server, "where am I"), rtol=1e-6)
    for text in ("", " ", "\ud83d"):
        with pytest.raises(TextRefusedError):
            await embedder.embed_query(text)
    assert server.embed_count == 1


async def test_a_server_that_is_not_there_is_unavailable(open_tei: Any):
    """Nothing on the port: the identity cannot be read just now."""
    async with serving() as gone:
        url = gone.url
    with pytest.raises(IdentityUnavailableError) as caught:
        await open_tei(url).identity()
    assert caught.value.retryable
