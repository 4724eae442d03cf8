"""Every way a server can be too small for a request, or wrong about a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.embedding_server import EmbeddingServer
from warmindex.embedders import (
    BadAnswerError,
    FailureKind,
    MisconfiguredError,
    TextRefusedError,
)

TEXTS = [f"tool number {i} does thing {i % 7}" for i in range(40)]


def kinds(embedded: Any) -> dict[int, FailureKind]:
    return {index: failure.kind for index, failure in embedded.failures.items()}


@pytest.mark.parametrize("status", [413, 422])
async def test_too_many_texts_are_halved_and_the_limit_is_kept(
    server: EmbeddingServer, open_tei: Any, status: int
):
    """A proxy or an older server takes fewer than /info says: all succeed, and it is learnt."""
    server.settings.change({"max_client_batch_size": 10, "validation_status": status})
    server.settings.fault_info_without = ["max_client_batch_size"]
    embedder = open_tei(requests_in_flight=1)
    embedded = await embedder.embed_documents(TEXTS)
    assert not embedded.failures
    assert server.texts.total() == 40
    refused = server.embed_count - len(server.batches)
    assert refused == 1
    await embedder.identity()
    await embedder.embed_documents(TEXTS)
    assert server.embed_count - len(server.batches) == refused


async def test_too_many_bytes_are_split_by_bytes(server: EmbeddingServer, open_tei: Any):
    """413 with plain text although the count is fine: ten texts of 300 kB in smaller bodies."""
    server.settings.payload_limit = 700_000
    texts = [f"{i} " + "x" * 300_000 for i in range(10)]
    embedded = await open_tei(requests_in_flight=1).embed_documents(texts)
    assert not embedded.failures
    assert server.texts.total() == 10
    assert set(server.batches) <= {1, 2}


async def test_bodies_are_kept_below_the_default_limit(server: EmbeddingServer, open_tei: Any):
    """With TEI's own limit of 2 MB no request is ever refused for its bytes."""
    texts = [f"{i} " + "x" * 300_000 for i in range(10)]
    embedded = await open_tei().embed_documents(texts)
    assert not embedded.failures
    assert server.embed_count == len(server.batches)


async def test_one_text_above_every_limit_fails_alone(server: EmbeddingServer, open_tei: Any):
    """A text that no body can hold is too long; its neighbours have vectors."""
    texts = ["small", "y" * 2_500_000, "other"]
    embedded = await open_tei().embed_documents(texts)
    assert kinds(embedded) == {1: FailureKind.TOO_LONG}


async def test_too_long_texts_fail_at_the_callers_index(server: EmbeddingServer, open_tei: Any):
    """Among many, each fails by itself, and no batch is halved for ever."""
    texts = list(TEXTS)
    for index in (3, 4, 29):
        texts[index] = "word " * 900
    embedded = await open_tei(truncate="none").embed_documents(texts)
    assert kinds(embedded) == dict.fromkeys((3, 4, 29), FailureKind.TOO_LONG)
    assert server.embed_count < 40


@pytest.mark.parametrize("status", [400, 422, 424, 500])
async def test_a_guilty_text_fails_alone(server: EmbeddingServer, open_tei: Any, status: int):
    """A batch fails whole and does not say for which text: it is found out."""
    server.settings.change({"fault_guilty": ["evil"], "fault_guilty_status": status})
    texts = [*TEXTS[:20], "an evil text", *TEXTS[20:]]
    embedded = await open_tei().embed_documents(texts)
    assert kinds(embedded) == {20: FailureKind.REJECTED}
    assert embedded.valid.sum() == 40
    assert server.texts.total() == 40


async def test_a_guilty_question_is_refused(server: EmbeddingServer, open_tei: Any):
    """The one text of a question gets the server's reason."""
    server.settings.fault_guilty = ["evil"]
    with pytest.raises(TextRefusedError, match="cannot process"):
        await open_tei().embed_query("evil")


@pytest.mark.parametrize("fault", ["nan", "null", "inf", "zero", "short", "text"])
async def test_a_bad_vector_fails_alone(server: EmbeddingServer, open_tei: Any, fault: str):
    """NaN, null, infinity, zeros, another width or texts in one row: only that text fails."""
    server.settings.change({"fault_vector_of": ["number 7 "], "fault_vector": fault})
    embedded = await open_tei().embed_documents(TEXTS)
    assert list(embedded.failures) == [7]
    assert embedded.failures[7].kind in {FailureKind.BAD_VECTOR, FailureKind.REJECTED}
    assert np.isfinite(embedded.vectors[embedded.valid]).all()


async def test_a_bad_vector_is_asked_for_once_more(server: EmbeddingServer, open_tei: Any):
    """A server that answers zeros under load is right the second time."""
    server.settings.fault_replies = [{"path": "/embed", "status": 200, "json": [[0.0] * 64] * 4}]
    embedded = await open_tei().embed_documents(TEXTS[:4])
    assert not embedded.failures


async def test_a_server_that_refuses_everything_is_found_out(
    server: EmbeddingServer, open_tei: Any
):
    """It is not the texts: a few requests and one clear error, not two for each text."""
    server.settings.fault_guilty = [""]
    with pytest.raises(MisconfiguredError, match="refuses every text"):
        await open_tei().embed_documents([f"{i} text" for i in range(200)])
    assert server.embed_count < 60


@pytest.mark.parametrize("fault", [{"fault_html": True}, {"fault_short": 1}])
async def test_a_server_that_never_answers_right_is_found_out(
    server: EmbeddingServer, open_tei: Any, fault: dict[str, Any]
):
    """A page with status 200, or one vector fewer than texts, is no answer."""
    server.settings.change(fault)
    with pytest.raises(BadAnswerError):
        await open_tei().embed_documents(TEXTS)
    assert server.embed_count < 60


async def test_one_wrong_answer_is_asked_for_again(server: EmbeddingServer, open_tei: Any):
    """A short answer, once, costs one more request and nothing else."""
    server.settings.fault_replies = [{"path": "/embed", "status": 200, "json": [[1.0] * 64]}]
    embedded = await open_tei().embed_documents(TEXTS[:4])
    assert not embedded.failures
    assert server.embed_count == 2


async def test_a_refused_width_is_a_clear_error_without_retry(
    server: EmbeddingServer, open_tei: Any
):
    """A model without that width says so: configuration, at once."""
    server.settings.fault_dimensions = "refuse"
    with pytest.raises(MisconfiguredError, match="matryoshka"):
        await open_tei(dimensions=32).embed_documents(["x"])
    assert server.embed_count == 1


async def test_an_ignored_width_is_never_trimmed(server: EmbeddingServer, open_tei: Any):
    """Asked for 32 and given 64: no vectors, and the reason."""
    server.settings.fault_dimensions = "ignore"
    with pytest.raises(MisconfiguredError, match="asked for 32 dimensions and answers 64"):
        await open_tei(dimensions=32).embed_documents(TEXTS)


async def test_a_width_that_is_served_is_given(server: EmbeddingServer, open_tei: Any):
    """Asked for 32 and given 32."""
    assert (await open_tei(dimensions=32).embed_documents(TEXTS)).vectors.shape == (40, 32)
