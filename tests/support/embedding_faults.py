"""What the stand-in embedding server is told to be: its model, its limits and its faults."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass
class Settings:
    """Every switch, by the name that `--flags` and `POST /control` use.

    What begins with `fault_` makes the server misbehave; texts are named by a part of them.
    """

    # The model. Vectors depend on model_id, model_sha, dimensions and the adapter.
    model_id: str = "acme/stand-in"
    model_sha: str = "0123abc"
    model_dtype: str = "float32"
    pooling: str = "mean"
    served_model_name: str = "prod"
    dimensions: int = 64
    model_type: str = "embedding"
    # Limits, as TEI has them. A token is a word here.
    max_client_batch_size: int = 32
    max_concurrent_requests: int = 512
    max_input_length: int = 512
    auto_truncate: bool = True
    payload_limit: int = 2_000_000
    # Status of "too many" and "too long": 422 since TEI 1.9, 413 before.
    validation_status: int = 422
    # Who may ask. Compared as the exact header `Bearer KEY`, or `api-key: KEY`.
    api_key: str = ""
    # How long one batch takes, and whether batches wait for each other.
    batch_sleep_ms: int = 0
    text_sleep_ms: int = 0
    serial: bool = False

    # Replies to give instead, used up in order: {"path": "/embed", "status": 429, "headers": {},
    # "json": … or "text": …, "times": 1}. Without a path any request takes it.
    fault_replies: list[dict[str, Any]] = field(default_factory=list)
    # Until this moment (Unix seconds) every embedding is answered 429 with Retry-After.
    fault_busy_until: float = 0.0
    # /info lacks these fields.
    fault_info_without: list[str] = field(default_factory=list)
    # A batch with such a text is answered with this status, whole.
    fault_guilty: list[str] = field(default_factory=list)
    fault_guilty_status: int = 422
    # Such a text gets this instead of a vector: nan, null, inf, zero, short, text.
    fault_vector_of: list[str] = field(default_factory=list)
    fault_vector: str = "nan"
    # The last N vectors are left out; those of OpenAI's form come in another order; come as
    # base64; are without index.
    fault_short: int = 0
    fault_shuffle: bool = False
    fault_base64: bool = False
    fault_no_index: bool = False
    # The width asked for is ignored, or refused.
    fault_dimensions: str = ""
    # After N batches the model is another one: its id and revision.
    fault_swap_after: int = -1
    fault_swap_to: str = "acme/other"
    # Seconds without an answer; the connection is cut after half of it; HTML with 200.
    fault_silent_s: float = 0.0
    fault_cut: bool = False
    fault_html: bool = False

    def change(self, values: dict[str, Any]) -> None:
        """Set some switches; an unknown name is a mistake of the test's."""
        known = {item.name for item in fields(self)}
        for name, value in values.items():
            if name not in known:
                raise KeyError(f"the stand-in server has no switch {name!r}")
            setattr(self, name, value)


def vector(settings: Settings, text: str, adapter: str, dimensions: int) -> np.ndarray:
    """A unit vector, float32 (dimensions,): texts that share words are near each other."""
    seed = f"{settings.model_id}|{settings.model_sha}|{adapter}"
    words = text.lower().split()[: settings.max_input_length] or [""]
    total = np.sum([_word(seed, word, dimensions) for word in words], axis=0)
    return np.asarray(total / np.linalg.norm(total), dtype=np.float32)


@lru_cache(maxsize=65536)
def _word(seed: str, word: str, dimensions: int) -> np.ndarray:
    digest = hashlib.sha256(f"{seed}|{word.strip('.,:;()')}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little")).standard_normal(dimensions)


def answer_row(settings: Settings, text: str, body: dict[str, Any]) -> Any:
    """What stands in an answer for one text: its vector, or what a fault makes of it."""
    width = settings.dimensions
    if settings.fault_dimensions != "ignore":
        width = body.get("dimensions") or width
    adapter = "|".join(str(body.get(key, "")) for key in ("model", "task", "lora"))
    row = vector(settings, text, adapter, width).tolist()
    if not any(part in text for part in settings.fault_vector_of):
        return row
    faults: dict[str, Any] = {
        "nan": [float("nan")] * width,
        "null": [None] * width,
        "inf": [float("inf"), *row[1:]],
        "zero": [0.0] * width,
        "short": row[:-1],
        "text": [str(value) for value in row],
    }
    return faults[settings.fault_vector]


def refusal(
    settings: Settings, texts: list[str], body: dict[str, Any]
) -> tuple[int, str, str] | None:
    """Status, kind and message where a request breaks a rule, as TEI words them."""
    status, limit = settings.validation_status, settings.max_client_batch_size
    longest = max((len(text.split()) for text in texts), default=0)
    cut = settings.auto_truncate if body.get("truncate") is None else body["truncate"]
    too_long = longest > settings.max_input_length and not cut
    guilty = any(part in text for part in settings.fault_guilty for text in texts)
    no_width = settings.fault_dimensions == "refuse" and "dimensions" in body
    size = f"batch size {len(texts)} > maximum allowed batch size {limit}"
    length = f"`inputs` must have less than {settings.max_input_length} tokens. Given: {longest}"
    width = "this model does not support matryoshka dimensions"
    rules = (
        (not texts or not all(texts), 400, "Empty", "`inputs` cannot be empty"),
        (len(texts) > limit, status, "Validation", size),
        (len(texts) > settings.max_concurrent_requests, 429, "Overloaded", "Model is overloaded"),
        (too_long, status, "Validation", length),
        (guilty, settings.fault_guilty_status, "Tokenizer", "cannot process this input"),
        (guilty, settings.fault_guilty_status, "Tokenizer", "cannot process this input"),
        (no_width, 400, "Validation", width),
    )
    found = (answer for broken, *answer in rules if broken)
    return next(((int(code), str(kind), str(text)) for code, kind, text in found), None)
