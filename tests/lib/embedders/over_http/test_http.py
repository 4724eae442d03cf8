"""httpx's exceptions, all of them, and one request's ways to end."""

from __future__ import annotations

import inspect
import ssl

import httpx
import pytest
from warmindex.embedders.over_http import http
from warmindex.embedders.over_http.answers import Verdict
from warmindex.embedders.over_http.http import MEANINGS, UnansweredError, exchange, meaning

URL = httpx.URL("http://127.0.0.1:9/embed")

# Never raised by what is done here, each for a reason.
OTHERS = {
    httpx.HTTPStatusError: "statuses are judged, raise_for_status is not called",
    httpx.CookieConflict: "no cookies are read",
    httpx.StreamError: "bodies are read once, inside the stream",
    httpx.StreamConsumed: "the same",
    httpx.StreamClosed: "the same",
    httpx.ResponseNotRead: "the same",
    httpx.RequestNotRead: "the same",
}


def test_every_exception_of_httpx_has_a_meaning():
    """When httpx grows an exception, somebody has to decide what it means."""
    raised = {
        value
        for value in vars(httpx).values()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert raised == set(MEANINGS) | set(OTHERS)


def test_a_certificate_that_is_not_trusted_is_no_outage():
    """Waiting does not make a certificate right."""
    error = httpx.ConnectError(str(ssl.SSLError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] failed")))
    assert meaning(error) is Verdict.MISCONFIGURED
    assert meaning(httpx.ConnectError("refused")) is Verdict.AWAY


def client_raising(error: Exception) -> httpx.AsyncClient:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return httpx.AsyncClient(transport=httpx.MockTransport(answer))


@pytest.mark.parametrize("kind", sorted(MEANINGS, key=lambda kind: kind.__name__))
async def test_no_exception_of_httpx_gets_out(kind: type[Exception]):
    """Each becomes an UnansweredError with its verdict, that does not carry the request."""
    async with client_raising(kind("it went wrong")) as client:
        with pytest.raises(UnansweredError) as caught:
            await exchange(client, "POST", URL, content=b"{}", timeout_s=5)
    assert caught.value.verdict is MEANINGS[kind]
    assert kind.__name__ in caught.value.words
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch):
    """An answer longer than any that was asked for is not read into memory."""
    monkeypatch.setattr(http, "ANSWER_BYTES_MAX", 100)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"x" * 101)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(UnansweredError, match="longer than 100") as caught:
            await exchange(client, "GET", URL, timeout_s=5)
    assert caught.value.verdict is Verdict.BAD_ANSWER
