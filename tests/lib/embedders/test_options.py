"""An embedder's options: checked when made, and silent about the key."""

from __future__ import annotations

from typing import Any

import pytest
from warmindex.embedders import (
    AdapterRule,
    EmbedderOptions,
    LocalEmbedder,
    MisconfiguredError,
    OpenAIEmbedder,
    TeiEmbedder,
    open_embedder,
)

TEI: dict[str, Any] = {"kind": "tei", "urls": ("http://h",)}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "bert"}, "kind"),
        ({"urls": ()}, "urls"),
        ({"truncate": "middle"}, "truncate"),
        ({"dimensions": -1}, "dimensions"),
        ({"dimensions": 8193}, "dimensions"),
        ({"batch_texts_max": -1}, "batch_texts_max"),
        ({"requests_in_flight": 0}, "requests_in_flight"),
        ({"request_timeout_s": 0}, "request_timeout_s"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"threads": 0}, "threads"),
        ({"api_key": "k1\nk2"}, "api_key"),
        ({"document_prompt": "\ud83d"}, "document_prompt"),
        ({"model": "\ud83d"}, "model"),
        ({"api_key": "k\u201d"}, "api_key"),
    ],
)
def test_an_option_that_cannot_be_names_its_field(change: dict[str, Any], field: str):
    """A wrong option is found when the options are made, not at the first request."""
    with pytest.raises(MisconfiguredError) as caught:
        EmbedderOptions(**(TEI | change))
    assert caught.value.field == field
    assert "k1" not in str(caught.value)


def test_the_key_is_trimmed_and_never_shown():
    """White space around a key from a file is dropped, and no representation has the key."""
    options = EmbedderOptions(**TEI, api_key=" k1-secret\n")
    assert options.api_key == "k1-secret"
    assert "k1-secret" not in repr(options)
    assert "k1-secret" not in repr(vars(open_embedder(options)))


@pytest.mark.parametrize(
    ("kind", "embedder"),
    [("tei", TeiEmbedder), ("openai", OpenAIEmbedder), ("local", LocalEmbedder)],
)
def test_the_kind_chooses_the_embedder(kind: Any, embedder: type):
    """Opening connects to nothing and loads nothing."""
    options = EmbedderOptions(kind=kind, urls=("http://127.0.0.1:9",), model="m")
    assert isinstance(open_embedder(options), embedder)


def test_urls_may_be_one_text():
    """Several addresses with commas between are several, not one and not characters."""
    options = EmbedderOptions(kind="tei", urls="http://a, http://b")  # type: ignore[arg-type]
    assert options.urls == ("http://a", "http://b")


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "openai"},
        {"urls": ("nonsense",)},
        {"urls": ("http://u:1@a", "http://u:2@b")},
    ],
)
def test_what_cannot_be_opened_is_refused(change: dict[str, Any]):
    """An OpenAI embedder without a model, a bad URL, and replicas of different credentials."""
    with pytest.raises(MisconfiguredError):
        open_embedder(EmbedderOptions(**(TEI | change)))


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("model", {"model": "sql@7"}),
        ("field:lora", {"model": "base", "lora": "sql@7"}),
        ("none", {"model": "base"}),
    ],
)
def test_an_adapter_is_told_by_its_rule(rule: str, body: dict[str, object]):
    """In the place of the model's name, in a field of its own, or not at all."""
    made: dict[str, object] = {"model": "base"}
    AdapterRule.parse(rule).apply(made, "sql@7")
    assert made == body


def test_the_base_model_is_no_adapter():
    """An empty adapter leaves the request as it is, whatever the rule."""
    body: dict[str, object] = {"model": "base"}
    AdapterRule.parse("model").apply(body, "")
    AdapterRule.parse("field:task").apply(body, "")
    assert body == {"model": "base"}


def test_an_adapter_may_have_another_name_at_the_backend():
    """The version in an adapter's name need not be known to the backend."""
    body: dict[str, object] = {}
    AdapterRule(by="model", names={"sql@7": "sql"}).apply(body, "sql@7")
    assert body == {"model": "sql"}


@pytest.mark.parametrize("text", ["", "field", "field:", "header:x", "model:x", "Model"])
def test_an_adapter_rule_that_is_none_is_refused(text: str):
    """Only model, none and field:NAME are rules."""
    with pytest.raises(MisconfiguredError) as caught:
        AdapterRule.parse(text)
    assert caught.value.field == "adapter_rule"
