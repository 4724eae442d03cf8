"""Whatever a server does: no text is lost, none is mixed up, and there is an end."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from warmindex.embedders import EmbedderError, EmbedderOptions, FailureKind, OpenAIEmbedder

FAULTS = (
    "429", "503", "500", "424", "413", "404", "401", "301", "html", "empty", "short", "long",
    "double", "nan", "zero", "wide", "string", "away", "silent", "cut", "base64", "shuffle",
)  # fmt: skip
REQUESTS_PER_TEXT_MAX = 12


def truth(text: str) -> list[float]:
    """A vector that tells which text it is of."""
    return [1.0 + int(text.split(maxsplit=1)[0]), 0.5, -2.0]


class AnyServer:
    """Takes its faults in order, then answers right; refuses guilty texts all the time."""

    def __init__(self, faults: Sequence[str], texts_max: int, bytes_max: int) -> None:
        self.faults = list(faults)
        self.texts_max = texts_max
        self.bytes_max = bytes_max
        self.requests = 0
        self.chance = random.Random(1)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        fault = self.faults.pop(0) if self.faults else ""
        match fault:
            case "away":
                raise httpx.ConnectError("refused")
            case "silent":
                raise httpx.ReadTimeout("")
            case "cut":
                raise httpx.RemoteProtocolError("cut")
            case "html":
                return httpx.Response(200, text="<html>")
        if fault.isdigit():
            return httpx.Response(int(fault), json={"error": "no"})
        texts: list[str] = json.loads(request.content)["input"]
        if len(texts) > self.texts_max:
            words = f"batch size {len(texts)} > maximum allowed batch size {self.texts_max}"
            return httpx.Response(422, json={"error": words})
        if len(request.content) > self.bytes_max:
            return httpx.Response(413, text="length limit exceeded")
        if any("guilty" in text for text in texts):
            return httpx.Response(422, json={"error": "one of them I do not like"})
        return httpx.Response(200, json={"data": self.data(texts, fault)})

    def data(self, texts: list[str], fault: str) -> list[dict[str, Any]]:
        rows: list[Any] = [truth(text) for text in texts]
        bad = {"nan": [None] * 3, "zero": [0] * 3, "wide": [1.0] * 4, "string": ["1", "2", "3"]}
        rows[-1] = bad.get(fault, rows[-1])
        if fault == "base64":
            rows = [base64.b64encode(np.array(row, dtype="<f4").tobytes()).decode() for row in rows]
        data = [{"index": index, "embedding": row} for index, row in enumerate(rows)]
        match fault:
            case "empty":
                return []
            case "wide" if len(data) == 1:
                return []  # Alone it would be a lie that nobody could find out.
            case "short":
                return data[:-1]
            case "long":
                return [*data, {"index": len(data), "embedding": [1.0] * 3}]
            case "double":
                return [{"index": 0, "embedding": item["embedding"]} for item in data]
            case "shuffle":
                self.chance.shuffle(data)
        return data


async def embed(server: AnyServer, texts: list[str], in_flight: int) -> Any:
    options = EmbedderOptions(
        kind="openai",
        urls=("http://a", "http://b"),
        model="m",
        batch_texts_max=8,
        requests_in_flight=in_flight,
    )
    embedder = OpenAIEmbedder(options)
    client = httpx.AsyncClient(transport=httpx.MockTransport(server))
    embedder._backend.__dict__["client"] = client
    try:
        async with asyncio.timeout(20):
            return await embedder.embed_documents(texts)
    finally:
        await embedder.close()


@given(
    faults=st.lists(st.sampled_from(FAULTS), max_size=60),
    words=st.lists(st.sampled_from(["plain", "guilty", "long " * 20]), min_size=1, max_size=30),
    texts_max=st.integers(1, 10),
    bytes_max=st.integers(150, 2000),
    in_flight=st.integers(1, 3),
)
def test_no_text_is_lost_or_mixed_up(
    faults: list[str], words: list[str], texts_max: int, bytes_max: int, in_flight: int
):
    """Each text has its own vector or a failure, or the call an error; soon enough."""
    texts = [f"{number} {word}" for number, word in enumerate(words)]
    server = AnyServer(faults, texts_max, bytes_max)
    with patch("warmindex.embedders.over_http.retry.backoff_s", lambda *_: 0.0):
        try:
            embedded = asyncio.run(embed(server, texts, in_flight))
        except EmbedderError:
            embedded = None
    assert server.requests <= REQUESTS_PER_TEXT_MAX * len(texts) + len(faults)
    if embedded is None:
        return
    assert set(embedded.failures) <= set(range(len(texts)))
    for index, text in enumerate(texts):
        if index in embedded.failures:
            assert np.isnan(embedded.vectors[index]).all()
        else:
            assert embedded.vectors[index].tolist() == truth(text)
            assert "guilty" not in text


@given(
    words=st.lists(st.sampled_from(["plain", "guilty"]), min_size=1, max_size=40),
    texts_max=st.integers(1, 10),
)
def test_without_faults_exactly_the_guilty_texts_fail(words: list[str], texts_max: int):
    """However guilty texts lie among the others, each of the others has its vector."""
    texts = [f"{number} {word}" for number, word in enumerate(words)]
    guilty = {index for index, word in enumerate(words) if word == "guilty"}
    try:
        embedded = asyncio.run(embed(AnyServer([], texts_max, 10**6), texts, 2))
    except EmbedderError:
        # Refusals alone, again and again: it looked as if the server refused everything.
        assert len(guilty) >= 8
        return
    assert set(embedded.failures) == guilty
    assert {each.kind for each in embedded.failures.values()} <= {FailureKind.REJECTED}
