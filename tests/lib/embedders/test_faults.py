"""Every way a server can be too big, too busy, wrong, short, shuffled, late or silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import numpy as np
import pytest
from support.embedding_faults import Settings
from support.embedding_server import EmbeddingServer, serving
from warmindex.embedders import (
    BackendUnavailableError,
    BadAnswerError,
    DeadlinePassedError,
    FailureKind,
    MisconfiguredError,
    TextRefusedError,
    UnauthorizedError,
)

TEXTS = [f"tool number {i} does thing {i % 7}" for i in range(40)]


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never came to that")


def kinds(embedded: Any) -> dict[int, FailureKind]:
    return {index: failure.kind for index, failure in embedded.failures.items()}


# Too big.


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


# Wrong.


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


# Busy, late, silent.


async def test_a_busy_server_gets_the_rest_it_asks_for(server: EmbeddingServer, open_tei: Any):
    """Retry-After is kept: one request is refused for each under way, and no more come early."""
    embedder = open_tei(requests_in_flight=1)
    await embedder.identity()
    server.settings.fault_busy_until = time.time() + 0.9
    embedded = await embedder.embed_documents(TEXTS)
    assert not embedded.failures
    assert server.embed_count - len(server.batches) == 1


@pytest.mark.parametrize("header", ["0", "-1", "soon", "0.05", None])
@pytest.mark.parametrize("status", [429, 503])
async def test_odd_and_absent_waits_are_backed_off(
    server: EmbeddingServer, open_tei: Any, header: str | None, status: int
):
    """Whatever the header says, the request is made again and succeeds."""
    reply = {
        "path": "/embed",
        "status": status,
        "headers": {"Retry-After": header} if header else {},
    }
    server.settings.fault_replies = [reply]
    assert not (await open_tei().embed_documents(["x"])).failures
    assert server.embed_count == 2


async def test_a_wait_beyond_the_deadline_is_not_slept(server: EmbeddingServer, open_tei: Any):
    """Asked to rest for longer than the caller waits, the call fails at once and says so."""
    wait = {"path": "/embed", "status": 429, "headers": {"Retry-After": "20"}}
    server.settings.fault_replies = [wait]
    embedder = open_tei()
    await embedder.identity()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 10
    with pytest.raises(BackendUnavailableError) as caught:
        await embedder.embed_documents(["x"], deadline=deadline)
    assert loop.time() < deadline
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 10
    assert server.embed_count == 1


async def test_an_absurd_wait_is_capped_and_said(
    server: EmbeddingServer, open_tei: Any, caplog: pytest.LogCaptureFixture
):
    """A day of rest is followed for a moment only; the log says what was asked."""
    wait = {"path": "/embed", "status": 429, "headers": {"Retry-After": "86400"}}
    server.settings.fault_replies = [wait]
    embedder = open_tei()
    await embedder.identity()
    deadline = asyncio.get_running_loop().time() + 10
    with pytest.raises(BackendUnavailableError, match="rest for 30"):
        await embedder.embed_documents(["x"], deadline=deadline)
    assert "86400 s of rest" in caplog.text


async def test_a_busy_server_is_no_error_in_the_log(
    server: EmbeddingServer, open_tei: Any, caplog: pytest.LogCaptureFixture
):
    """429 is expected: it is worth a line of information."""
    server.settings.fault_replies = [{"path": "/embed", "status": 429}]
    with caplog.at_level("INFO", "warmindex.embedders"):
        await open_tei().embed_documents(["x"])
    ours = [record for record in caplog.records if record.name == "warmindex.embedders"]
    assert {record.levelname for record in ours} == {"INFO"}


async def test_a_server_short_of_permits_gets_smaller_requests(
    server: EmbeddingServer, open_tei: Any
):
    """A batch needs a permit for each text: refused twice, half of it is tried."""
    embedder = open_tei(requests_in_flight=1)
    await embedder.identity()
    server.settings.max_concurrent_requests = 20
    embedded = await embedder.embed_documents(TEXTS[:32])
    assert not embedded.failures
    assert server.batches == [16, 16]


async def test_a_refused_request_is_not_retried_for_its_header(
    server: EmbeddingServer, open_tei: Any
):
    """400 with Retry-After is still wrong."""
    reply = {"path": "/embed", "status": 400, "headers": {"Retry-After": "2"}}
    server.settings.fault_replies = [reply]
    assert kinds(await open_tei().embed_documents(["x"])) == {0: FailureKind.REJECTED}
    assert server.embed_count == 1


async def test_a_server_that_stays_busy_ends_the_call(
    server: EmbeddingServer, open_tei: Any, monkeypatch: pytest.MonkeyPatch
):
    """Retries have an end, and the error says that the server is busy."""
    monkeypatch.setattr("warmindex.embedders.retry.backoff_s", lambda *_: 0.0)
    server.settings.fault_replies = [{"path": "/embed", "status": 429, "times": 10_000}]
    with pytest.raises(BackendUnavailableError, match="busy"):
        await open_tei().embed_documents(TEXTS * 20)
    assert server.embed_count < 60


async def test_silence_ends_with_the_deadline(server: EmbeddingServer, open_tei: Any):
    """A server that accepts and never answers does not hold a caller past its deadline."""
    embedder = open_tei()
    await embedder.identity()
    server.settings.fault_silent_s = 30.0
    loop = asyncio.get_running_loop()
    for call in (embedder.embed_documents(TEXTS, deadline=loop.time() + 0.2),
                 embedder.embed_query("x", deadline=loop.time() + 0.4)):  # fmt: skip
        with pytest.raises(DeadlinePassedError):
            await call


async def test_silence_ends_with_the_time_out(
    server: EmbeddingServer, open_tei: Any, monkeypatch: pytest.MonkeyPatch
):
    """Without a deadline, the time-out of a request and the number of tries end it."""
    monkeypatch.setattr("warmindex.embedders.retry.backoff_s", lambda *_: 0.0)
    embedder = open_tei(request_timeout_s=0.1)
    await embedder.identity()
    server.settings.fault_silent_s = 30.0
    with pytest.raises(BackendUnavailableError, match="no answer within"):
        await embedder.embed_documents(TEXTS[:8])


async def test_a_deadline_gives_what_is_done(server: EmbeddingServer, open_tei: Any):
    """Vectors that came in time are given out; the rest may be tried again."""
    embedder = open_tei(requests_in_flight=1, batch_texts_max=10)
    await embedder.identity()
    server.settings.batch_sleep_ms = 300
    deadline = asyncio.get_running_loop().time() + 0.5
    embedded = await embedder.embed_documents(TEXTS, deadline=deadline)
    assert embedded.valid.sum() == 10
    assert {failure.kind for failure in embedded.failures.values()} == {FailureKind.UNAVAILABLE}
    assert all(failure.retryable for failure in embedded.failures.values())


async def test_a_deadline_that_has_passed_sends_nothing(server: EmbeddingServer, open_tei: Any):
    """Too late is too late."""
    deadline = asyncio.get_running_loop().time() - 1
    embedder = open_tei()
    with pytest.raises(DeadlinePassedError):
        await embedder.embed_documents(TEXTS, deadline=deadline)
    with pytest.raises(DeadlinePassedError):
        await embedder.embed_query("x", deadline=deadline)
    assert server.embed_count == 0


async def test_a_cut_connection_is_made_again(
    server: EmbeddingServer, open_tei: Any, monkeypatch: pytest.MonkeyPatch
):
    """A connection that ends in the middle of an answer is an outage, not an answer."""
    monkeypatch.setattr("warmindex.embedders.retry.backoff_s", lambda *_: 0.0)
    embedder = open_tei()
    await embedder.identity()
    server.settings.fault_cut = True
    with pytest.raises(BackendUnavailableError, match="not reachable"):
        await embedder.embed_documents(["x"])
    server.settings.fault_cut = False
    assert not (await embedder.embed_documents(["x"])).failures


async def test_a_cancelled_call_leaves_nothing_behind(server: EmbeddingServer, open_tei: Any):
    """After a cancellation the replica is free for the next call."""
    embedder = open_tei(requests_in_flight=2)
    await embedder.identity()
    server.settings.fault_silent_s = 30.0
    task = asyncio.create_task(embedder.embed_documents(TEXTS))
    await until(lambda: server.embed_count >= 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    server.settings.fault_silent_s = 0.0
    assert not (await embedder.embed_documents(TEXTS)).failures


# Several replicas.


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
