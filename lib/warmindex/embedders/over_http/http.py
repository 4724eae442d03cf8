"""One request over httpx, and the only place that knows httpx's exceptions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from warmindex.embedders.over_http.answers import Verdict

# 64 texts of the widest vectors as JSON; more is not an answer to what was asked.
ANSWER_BYTES_MAX: Final = 64 * 2**20
# A replica that is there answers a connection at once; one that is not may never.
CONNECT_TIMEOUT_S: Final = 5.0
# Longer than a build pauses, shorter than servers and proxies keep idle connections.
_KEEPALIVE_S: Final = 15.0

# What each of httpx's exceptions means for a request. Those of a group that grows are
# found through their base; a test says when httpx has one that is not listed here.
MEANINGS: Final[Mapping[type[Exception], Verdict]] = {
    httpx.TimeoutException: Verdict.SILENT,
    httpx.ConnectTimeout: Verdict.AWAY,
    httpx.ReadTimeout: Verdict.SILENT,
    httpx.WriteTimeout: Verdict.SILENT,
    httpx.PoolTimeout: Verdict.SILENT,
    httpx.NetworkError: Verdict.AWAY,
    httpx.ConnectError: Verdict.AWAY,
    httpx.ReadError: Verdict.AWAY,
    httpx.WriteError: Verdict.AWAY,
    httpx.CloseError: Verdict.AWAY,
    httpx.ProxyError: Verdict.AWAY,
    httpx.ProtocolError: Verdict.AWAY,
    httpx.RemoteProtocolError: Verdict.AWAY,
    httpx.LocalProtocolError: Verdict.MISCONFIGURED,
    httpx.UnsupportedProtocol: Verdict.MISCONFIGURED,
    httpx.InvalidURL: Verdict.MISCONFIGURED,
    httpx.TooManyRedirects: Verdict.MISCONFIGURED,
    httpx.DecodingError: Verdict.BAD_ANSWER,
    httpx.TransportError: Verdict.AWAY,
    httpx.RequestError: Verdict.AWAY,
    httpx.HTTPError: Verdict.AWAY,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, whatever its status. `headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    received_unix_s: float


class UnansweredError(Exception):
    """There is no answer to judge. `verdict` says what that means, `words` why."""

    def __init__(self, verdict: Verdict, words: str) -> None:
        super().__init__(words)
        self.verdict = verdict
        self.words = words


def open_client(headers: Mapping[str, str]) -> httpx.AsyncClient:
    """A client for all replicas of one backend. Its callers limit time and concurrency."""
    return httpx.AsyncClient(
        headers={"accept": "application/json", **headers},
        timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
        limits=httpx.Limits(max_connections=None, keepalive_expiry=_KEEPALIVE_S),
    )


async def exchange(
    client: httpx.AsyncClient,
    method: str,
    url: httpx.URL,
    *,
    timeout_s: float,
    content: bytes | None = None,
) -> Reply:
    """Send one request and read its answer whole. Raises UnansweredError, nothing of httpx's."""
    headers = {"content-type": "application/json"} if content is not None else None
    try:
        async with (
            asyncio.timeout(timeout_s),
            client.stream(method, url, content=content, headers=headers) as response,
        ):
            body = await _read(response)
            return Reply(response.status_code, response.headers, body, time.time())
    except TimeoutError:
        raise UnansweredError(Verdict.SILENT, f"no answer within {timeout_s:.1f} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # Not chained: the request inside would carry the key into tracebacks.
        raise UnansweredError(meaning(error), describe(error)) from None


async def _read(response: httpx.Response) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > ANSWER_BYTES_MAX:
            raise UnansweredError(
                Verdict.BAD_ANSWER, f"the answer is longer than {ANSWER_BYTES_MAX} bytes"
            )
        chunks.append(chunk)
    return b"".join(chunks)


def meaning(error: Exception) -> Verdict:
    """What an exception of httpx's means for the request."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Verdict.MISCONFIGURED
    known = (MEANINGS[base] for base in type(error).__mro__ if base in MEANINGS)
    return next(known, Verdict.AWAY)


def describe(error: Exception) -> str:
    """An exception in words: its kind, and what it says."""
    said = str(error)
    kind = type(error).__name__
    return f"{kind}: {said}" if said else kind
