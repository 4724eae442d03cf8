"""What an embedding server's answer means. Pure: status, headers and body are arguments.

Servers agree on little. A status alone is not enough: 413 is "too many texts" of an older
TEI, "too many bytes" of a proxy, and "text too long" of either; 422 and 400 are anything. So
the words decide within a status, and only a few words that servers are known to use.

    2xx                      DONE, for the caller to decode
    401 403                  UNAUTHORIZED
    400 413 422              by words: TOO_MANY, BODY_TOO_BIG, TEXT_TOO_LONG, MISCONFIGURED,
                             else REFUSED; 413 without known words is BODY_TOO_BIG
    408 425 429 502-504 529  BUSY, and `retry_after_s` says for how long
    other 5xx, 424           BROKEN; REFUSED where the model itself answered NaN
    anything else            MISCONFIGURED: a wrong path, a redirect, a wrong method
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from warmindex.embedders.over_http.retry import retry_after_s

# Enough for the sentence that says what is wrong, and not for an error page.
WORDS_MAX: Final = 200


class Verdict(Enum):
    """What an answer, or its absence, means for the request."""

    DONE = "done"
    TOO_MANY = "too many texts in one request"
    BODY_TOO_BIG = "too many bytes or tokens in one request"
    TEXT_TOO_LONG = "a text that is too long"
    REFUSED = "a text that is refused"
    BUSY = "busy"
    BROKEN = "failed inside"
    BAD_ANSWER = "an answer that cannot be read"
    AWAY = "not reachable"
    SILENT = "no answer in time"
    UNAUTHORIZED = "unauthorised"
    MISCONFIGURED = "misconfigured"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the server's own words for people, and what it said in numbers."""

    verdict: Verdict
    words: str = ""
    # The most texts that the server takes in one request, where it said so.
    texts_max: int | None = None
    retry_after_s: float | None = None


_BUSY: Final = frozenset({408, 425, 429, 502, 503, 504, 529})
_WAITING: Final = frozenset({Verdict.BUSY, Verdict.BROKEN})
_BY_WORDS: Final = frozenset({400, 413, 422})

# Patterns are matched against lower-case words.
_TOO_MANY: Final = re.compile(
    r"batch[ _]?size|too many (?:inputs|texts|items)|max(?:imum)? number of (?:inputs|texts)"
    r"|array.{0,30}(?:too (?:long|large)|at most|maximum length)"
)
_TEXTS_MAX: Final = re.compile(
    r"(?:allowed batch size|larger than|at most|exceed|maximum|limit)[^0-9]{0,20}([0-9]{1,6})"
)
_REQUEST_TOKENS: Final = re.compile(r"tokens? per request|max_tokens_per_request|total tokens")
_TEXT_TOO_LONG: Final = re.compile(
    r"must have less than|context length|context size|too long|input length|too many tokens"
    r"|longer than|max_model_len|maximum (?:input|sequence|token)|exceeds? the maximum"
)
_NOT_A_NUMBER: Final = re.compile(r"\bnan\b|not finite|unsupported value")
_NO_MODEL: Final = re.compile(
    r"model.{0,80}(?:not found|not exist|unknown|not available)|(?:invalid|unknown) model"
)
_NO_KEY: Final = re.compile(r"\bapi[ _-]?key\b")
_WIDTH: Final = re.compile(r"matryoshka|dimension")
_NO_MONEY: Final = re.compile(r"insufficient_quota|billing|exceeded your current quota")


def judge(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_unix_s: float,
    sent_texts: Sequence[str] = (),
    dimensions_asked: bool = False,
    secrets: Sequence[str] = (),
) -> Judgement:
    """What an answer means. `headers` have lower-case names.

    `sent_texts` are taken out of the words before they are read, as far as the server
    repeats them whole: a text must not decide how its refusal is understood. `secrets` never
    get into the words.
    """
    if 200 <= status < 300:
        return Judgement(Verdict.DONE)
    if status in {401, 403}:
        # No words: servers repeat a wrong key, some of it or all.
        return Judgement(Verdict.UNAUTHORIZED, f"status {status}")
    words = _words(body, sent_texts, secrets)
    said = f"status {status}: {words}" if words else f"status {status}"
    if status in _BY_WORDS:
        return _by_words(status, words.lower(), said, _is_json(body), dimensions_asked)
    verdict = _by_status(status, words.lower())
    if 300 <= status < 400:
        said += " (a redirect; give the address that it leads to)"
    wait = retry_after_s(headers, now_unix_s) if verdict in _WAITING else None
    return Judgement(verdict, said, retry_after_s=wait)


def _by_status(status: int, lower: str) -> Verdict:
    if status in _BUSY:
        return Verdict.MISCONFIGURED if _NO_MONEY.search(lower) else Verdict.BUSY
    if status >= 500 or status == 424:
        return Verdict.REFUSED if _NOT_A_NUMBER.search(lower) else Verdict.BROKEN
    return Verdict.MISCONFIGURED


def _by_words(status: int, lower: str, said: str, is_json: bool, width: bool) -> Judgement:
    if _TOO_MANY.search(lower):
        limit = _TEXTS_MAX.search(lower)
        return Judgement(Verdict.TOO_MANY, said, texts_max=int(limit[1]) if limit else None)
    rules = (
        (_REQUEST_TOKENS.search(lower), Verdict.BODY_TOO_BIG),
        (is_json and _TEXT_TOO_LONG.search(lower), Verdict.TEXT_TOO_LONG),
        (status == 413, Verdict.BODY_TOO_BIG),
        # Only where a width was asked for can it be the reason.
        (width and _WIDTH.search(lower), Verdict.MISCONFIGURED),
        (_NO_MODEL.search(lower), Verdict.MISCONFIGURED),
    )
    if _NO_KEY.search(lower):
        return Judgement(Verdict.UNAUTHORIZED, f"status {status}")
    return Judgement(next((verdict for hit, verdict in rules if hit), Verdict.REFUSED), said)


def _words(body: bytes, sent_texts: Sequence[str], secrets: Sequence[str]) -> str:
    """The server's message, whatever its shape: one line, cut, without texts and secrets."""
    text = body[:65536].decode("utf-8", errors="replace")
    try:
        message = _message(json.loads(text))
    except (ValueError, RecursionError):
        # Plain text, or a proxy's page.
        message = re.sub(r"<(style|script|head)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    for sent in sorted(sent_texts, key=len, reverse=True):
        message = message.replace(sent, "…")
    for secret in secrets:
        message = message.replace(secret, "***")
    printable = "".join(char if char.isprintable() else " " for char in message)
    line = " ".join(printable.split())
    return line if len(line) <= WORDS_MAX else line[: WORDS_MAX - 1] + "…"


def _message(value: Any) -> str:
    """The first text under the names that servers give their messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(_message(item) for item in value[:3])
    if not isinstance(value, dict):
        return ""
    found = (
        _message(value[name]) for name in ("error", "message", "detail", "msg") if name in value
    )
    words = [next((text for text in found if text), "")]
    words += [value[name] for name in ("type", "code") if isinstance(value.get(name), str)]
    return " ".join(word for word in words if word)


def _is_json(body: bytes) -> bool:
    return body.lstrip()[:1] in {b"{", b"["}
