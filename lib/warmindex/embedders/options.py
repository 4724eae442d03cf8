"""Everything that can be set about an embedder, checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from warmindex.embedders.errors import MisconfiguredError
from warmindex.embedders.over_http.urls import split_urls
from warmindex.limits import DIMENSIONS_MAX

EmbedderKind: TypeAlias = Literal["local", "tei", "openai"]
Truncation: TypeAlias = Literal["right", "left", "none"]

# Enough to hide the network and the server's tokeniser behind its model.
REQUESTS_IN_FLIGHT: Final = 4
# A slow CPU server with a full queue takes tens of seconds for a batch.
REQUEST_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRule:
    """How an adapter is chosen in a request.

    `by` is "model" (its name stands in the place of the model's: vLLM's LoRA), "field"
    (its name stands in the body's field `field_name`: "task", "lora"), or "none" (the
    backend has no adapters: adapter_id only names the partition). `names` gives the backend's
    name for an adapter_id where they differ, as for one with a version: {"sql@7": "sql"}.
    """

    by: Literal["model", "field", "none"]
    field_name: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.by == "field") != bool(self.field_name):
            raise MisconfiguredError(
                "an adapter rule names a field exactly where it chooses by field; "
                "give model, none, or field:NAME",
                field="adapter_rule",
            )

    @classmethod
    def parse(cls, text: str) -> AdapterRule:
        """Read "model", "none" or "field:NAME"."""
        by, _, name = text.partition(":")
        if by not in {"model", "field", "none"}:
            raise MisconfiguredError(
                f"is {text!r:.80}; give model, none, or field:NAME", field="adapter_rule"
            )
        return cls(by=by, field_name=name)  # type: ignore[arg-type]

    def apply(self, body: dict[str, object], adapter_id: str) -> None:
        """Make the request one for this adapter. The base model's stays as it is."""
        if adapter_id and self.by != "none":
            key = "model" if self.by == "model" else self.field_name
            body[key] = self.names.get(adapter_id, adapter_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderOptions:
    """What `open_embedder` needs. Raises MisconfiguredError, naming the field."""

    kind: EmbedderKind = "local"
    # Base URLs of the replicas of one backend; tei and openai. A text with commas is split.
    urls: tuple[str, ...] = ()
    # The model to ask for. openai: required, but for Azure. local: a name or a folder.
    model: str = ""
    # White space around it is dropped. Never shown anywhere.
    api_key: str = field(default="", repr=False)
    # What tells two states of a model apart where the backend cannot say it.
    revision: str = ""
    # openai: a name for the place where the model's name means something, in place of the
    # host; give one where several addresses serve the same.
    host: str = ""
    # The width to ask for; 0 is the model's own, and then nothing is asked.
    dimensions: int = 0
    # Put before each text. tei: "name:passage" is a prompt that the server knows by name.
    document_prompt: str = ""
    query_prompt: str = ""
    # tei: where texts longer than the model's length are cut; "none" refuses them.
    truncate: Truncation = "right"
    # tei: whether to ask for vectors of unit length.
    normalize: bool = True
    # How adapter_id is told to the backend; None is "model" for openai, "none" else.
    adapter_rule: AdapterRule | None = None
    # The most texts in one request; 0 is what the server says, or a default.
    batch_texts_max: int = 0
    # Requests of builds to one replica at once.
    requests_in_flight: int = REQUESTS_IN_FLIGHT
    request_timeout_s: float = REQUEST_TIMEOUT_S
    # local: where texts are cut, and how many threads compute; None is by itself.
    max_tokens: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "api_key", _clean_key(self.api_key))
        object.__setattr__(self, "urls", split_urls(self.urls))
        rules = (
            ("kind", self.kind in get_args(EmbedderKind), "give local, tei or openai"),
            ("truncate", self.truncate in get_args(Truncation), "give right, left or none"),
            ("urls", self.kind == "local" or bool(self.urls), "give the embedder's base URL"),
            ("dimensions", 0 <= self.dimensions <= DIMENSIONS_MAX, f"give 0..{DIMENSIONS_MAX}"),
            ("batch_texts_max", self.batch_texts_max >= 0, "give 0 or more"),
            ("requests_in_flight", self.requests_in_flight >= 1, "give 1 or more"),
            ("request_timeout_s", self.request_timeout_s > 0, "give more than 0"),
            ("max_tokens", self.max_tokens is None or self.max_tokens > 2, "give more than 2"),
            ("threads", self.threads is None or self.threads > 0, "give more than 0"),
        )
        for name, holds, advice in rules:
            if not holds:
                raise MisconfiguredError(f"{name} is {getattr(self, name)!r}; {advice}", field=name)
        for name in ("model", "revision", "host", "document_prompt", "query_prompt"):
            check_unicode(name, getattr(self, name))

    @property
    def adapters(self) -> AdapterRule:
        """The rule in force."""
        if self.adapter_rule is not None:
            return self.adapter_rule
        return AdapterRule(by="model" if self.kind == "openai" else "none")


def check_unicode(name: str, value: str) -> None:
    """Raise MisconfiguredError where a value has no UTF-8 form, so that it cannot be sent."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise MisconfiguredError(
            f"{name} has a lone surrogate, so it is not valid Unicode", field=name
        ) from None


def _clean_key(key: str) -> str:
    """The key without white space around it, as a header can carry it."""
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise MisconfiguredError(
            "api_key has a character that no HTTP header can carry; look for a line break "
            "or a typographic quote inside it",
            field="api_key",
        )
    return key
