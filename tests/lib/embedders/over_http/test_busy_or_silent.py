"""Every way a server can be busy, late, away or silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from support.embedding_server import EmbeddingServer
from warmindex.embedders import BackendUnavailableError, DeadlinePassedError, FailureKind

TEXTS = [f"tool number {i} does thing {i % 7}" for i in range(40)]


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it never came to that")


def kinds(embedded: Any) -> dict[int, FailureKind]:
    return {index: failure.kind for index, failure in embedded.failures.items()}


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
    with pytest.raises(BackendUnavailableError, match="rests for 30"):
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
    monkeypatch.setattr("warmindex.embedders.over_http.retry.backoff_s", lambda *_: 0.0)
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
    monkeypatch.setattr("warmindex.embedders.over_http.retry.backoff_s", lambda *_: 0.0)
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
    monkeypatch.setattr("warmindex.embedders.over_http.retry.backoff_s", lambda *_: 0.0)
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


async def test_a_question_does_not_wait_long_for_rest(server: EmbeddingServer, open_tei: Any):
    """Without a deadline too: a backend that rests for long is unavailable to a question."""
    wait = {"path": "/embed", "status": 429, "headers": {"Retry-After": "20"}}
    server.settings.fault_replies = [wait]
    embedder = open_tei()
    for _ in range(2):
        with pytest.raises(BackendUnavailableError, match="rests for"):
            await embedder.embed_query("x")
    assert server.embed_count == 1


async def test_a_question_without_a_deadline_gets_one(
    server: EmbeddingServer, open_tei: Any, monkeypatch: pytest.MonkeyPatch
):
    """A silent server does not hold a question for as long as it would hold a build."""
    monkeypatch.setattr("warmindex.embedders.over_http.embed.QUESTION_S_MAX", 0.2)
    server.settings.fault_silent_s = 30.0
    with pytest.raises(DeadlinePassedError):
        await open_tei().embed_query("x")
