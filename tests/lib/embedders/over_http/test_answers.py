"""What embedding servers' answers mean: one table of what real ones send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.embedders.over_http.answers import WORDS_MAX, Judgement, Verdict, judge

TEI_BATCH = {"error": "batch size 33 > maximum allowed batch size 32", "error_type": "Validation"}
TEI_LONG = {
    "error": "Input validation error: `inputs` must have less than 512 tokens. Given: 900",
    "error_type": "Validation",
}


def judged(status: int, body: Any = b"", **options: Any) -> Judgement:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = options.pop("headers", {})
    return judge(status, headers, raw, now_unix_s=0, **options)


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, b"anything", Verdict.DONE),
        # Text Embeddings Inference, both sides of 1.9.
        (413, TEI_BATCH, Verdict.TOO_MANY),
        (422, TEI_BATCH, Verdict.TOO_MANY),
        (413, TEI_LONG, Verdict.TEXT_TOO_LONG),
        (422, TEI_LONG, Verdict.TEXT_TOO_LONG),
        (413, b"length limit exceeded", Verdict.BODY_TOO_BIG),
        (413, b"Failed to buffer the request body: length limit exceeded", Verdict.BODY_TOO_BIG),
        (400, {"error": "`inputs` cannot be empty", "error_type": "Empty"}, Verdict.REFUSED),
        (422, {"error": "tokenizer error", "error_type": "Tokenizer"}, Verdict.REFUSED),
        (424, {"error": "inference failed", "error_type": "Backend"}, Verdict.BROKEN),
        (429, {"error": "Model is overloaded", "error_type": "Overloaded"}, Verdict.BUSY),
        (429, {"message": "Model is overloaded", "code": 429, "type": "Overloaded"}, Verdict.BUSY),
        (503, {"error": "unhealthy", "error_type": "Unhealthy"}, Verdict.BUSY),
        (401, b"", Verdict.UNAUTHORIZED),
        # OpenAI and Azure.
        (
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 8192 tokens, however you "
                    "requested 9001 tokens.",
                    "type": "invalid_request_error",
                    "param": None,
                    "code": None,
                }
            },
            Verdict.TEXT_TOO_LONG,
        ),
        (
            400,
            {
                "error": {
                    "message": "'$.input' is invalid. Expected an array with maximum length 2048, "
                    "but got an array with length 3000 instead: array too long.",
                    "type": "invalid_request_error",
                }
            },
            Verdict.TOO_MANY,
        ),
        (
            400,
            {
                "error": {
                    "message": "Requested 400000 tokens, max 300000 tokens per request",
                    "code": "max_tokens_per_request",
                }
            },
            Verdict.BODY_TOO_BIG,
        ),
        (
            429,
            {
                "error": {
                    "message": "You exceeded your current quota, please check your plan.",
                    "code": "insufficient_quota",
                }
            },
            Verdict.MISCONFIGURED,
        ),
        (404, {"error": {"code": "404", "message": "Resource not found"}}, Verdict.MISCONFIGURED),
        (400, {"error": {"message": "Incorrect API key provided"}}, Verdict.UNAUTHORIZED),
        # vLLM, new and old.
        (
            400,
            {"error": {"message": "Model `x` does not exist.", "type": "NotFound", "code": 400}},
            Verdict.MISCONFIGURED,
        ),
        (
            400,
            {"object": "error", "message": "maximum context length is 512", "code": 400},
            Verdict.TEXT_TOO_LONG,
        ),
        # Ollama.
        (400, {"error": "the input length exceeds the context length"}, Verdict.TEXT_TOO_LONG),
        (404, {"error": 'model "x" not found, try pulling it first'}, Verdict.MISCONFIGURED),
        (
            500,
            {"error": "failed to encode response: json: unsupported value: NaN"},
            Verdict.REFUSED,
        ),
        # Gateways and proxies.
        (
            400,
            {"code": 20042, "message": "input batch size 64 > maximum allowed batch size 32"},
            Verdict.TOO_MANY,
        ),
        (
            400,
            {"error": {"message": "batch size is invalid, it should not be larger than 10."}},
            Verdict.TOO_MANY,
        ),
        (413, b"<html><h1>413 Request Entity Too Large</h1></html>", Verdict.BODY_TOO_BIG),
        (413, {"message": "no known words"}, Verdict.BODY_TOO_BIG),
        (502, b"<html>Bad Gateway</html>", Verdict.BUSY),
        (504, b"", Verdict.BUSY),
        (529, b"", Verdict.BUSY),
        (408, b"", Verdict.BUSY),
        (500, b"Internal Server Error", Verdict.BROKEN),
        (403, b"<html>Forbidden</html>", Verdict.UNAUTHORIZED),
        (404, b"<html>Not Found</html>", Verdict.MISCONFIGURED),
        (405, b"", Verdict.MISCONFIGURED),
        (307, b"", Verdict.MISCONFIGURED),
        (100, b"", Verdict.MISCONFIGURED),
        # FastAPI.
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, Verdict.REFUSED),
    ],
)
def test_answers_are_told_apart(status: int, body: Any, verdict: Verdict):
    """Each kind of server's each kind of refusal gets the verdict that helps."""
    assert judged(status, body).verdict is verdict


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        ("batch size 33 > maximum allowed batch size 32", 32),
        ("batch size is invalid, it should not be larger than 10.: input.contents", 10),
        ("too many inputs: at most 96 are allowed", 96),
        ("Expected an array with maximum length 2048: array too long", 2048),
        ("batch size exceeded", None),
    ],
)
def test_a_limit_that_is_named_is_taken(message: str, limit: int | None):
    """The number of texts that a server allows is read from its words."""
    assert judged(422, {"error": message}).texts_max == limit


MATRYOSHKA = {
    "error": {
        "message": "Model 'x' does not support matryoshka representation, changing output "
        "dimensions will lead to poor results.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
}


def test_a_refused_width_is_a_matter_of_configuration_where_one_was_asked_for():
    """The same words about dimensions condemn the options only if the options caused them."""
    assert judged(400, MATRYOSHKA, dimensions_asked=True).verdict is Verdict.MISCONFIGURED
    assert judged(400, MATRYOSHKA).verdict is Verdict.REFUSED


def test_a_text_does_not_decide_how_its_refusal_is_read():
    """Words that a server repeats from a text are taken out before they are understood."""
    text = "batch size, context length, model not found, api key, matryoshka"
    body = {"detail": [{"msg": f"bad input: {text}"}]}
    seen = judged(422, body, sent_texts=[text], dimensions_asked=True)
    assert seen.verdict is Verdict.REFUSED
    assert "matryoshka" not in seen.words


@pytest.mark.parametrize(
    "body",
    [
        b"bad key k1-secret",
        {"error": {"message": "key k1-secret is not known"}},
        {"error": "k1-secret"},
    ],
)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
def test_a_key_is_never_repeated(status: int, body: Any):
    """A server that echoes the key does not get it into our words."""
    assert "k1-secret" not in judged(status, body, secrets=["k1-secret"]).words


def test_words_are_one_readable_line():
    """A page of HTML becomes its text, control characters go, and the end is cut."""
    page = b"<html><head><title>x</title></head><style>p{}</style><p>No\x1b[31m\r\nroute</p></html>"
    assert judged(404, page).words == "status 404: No [31m route"
    assert len(judged(404, b"x" * 5000).words) <= WORDS_MAX + len("status 404: ")


def test_waiting_is_asked_only_where_waiting_helps():
    """Retry-After counts on 429 and 503, and not on a request that is wrong."""
    headers = {"retry-after": "2"}
    assert judged(429, headers=headers).retry_after_s == 2
    assert judged(503, headers=headers).retry_after_s == 2
    assert judged(500, headers=headers).retry_after_s == 2
    assert judged(400, headers=headers).retry_after_s is None


@given(st.integers(100, 599), st.binary(max_size=200) | st.just(b"[" * 5000))
def test_no_answer_makes_judging_fail(status: int, body: bytes):
    """Any status with any bytes has a verdict, and its words are printable."""
    seen = judged(status, body)
    assert seen.words.isprintable()
