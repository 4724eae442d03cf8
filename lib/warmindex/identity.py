"""What determines a vector, as one readable string: the `model_id` of an embedding scope.

    emb/1;p=P;h=H;m=M;r=R;d=D;pool=Q;dim=N;norm=0|1;trunc=T;doc=S

All ten fields, in this order, each value percent-encoded where a byte could be mistaken for
the frame. Two models share a string only if every field is equal, so a vector is never
found under a model that did not make it: swapping a model changes the key, and what was
stored under the old one is simply not found.

What does not determine a document's vector is left out on purpose: names that an operator
gives to a deployment, a server's version and address, adapters (they are partitions) and
the query prompt (query vectors are never published).

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self
from urllib.parse import quote, unquote_to_bytes

from warmindex.errors import InvalidError, Reason
from warmindex.limits import DIMENSIONS_MAX, MODEL_ID_BYTES_MAX

# How a document prompt that the server knows by name is told from a prompt's text.
PROMPT_NAME_PREFIX: Final = "name:"

TRUNCATION_NONE: Final = "none@0"
TRUNCATION_SERVER: Final = "server@0"

_VERSION: Final = "emb/1"
# Key in the string, attribute here; in the string's order.
_FIELDS: Final = (
    ("p", "provider"),
    ("h", "host"),
    ("m", "model"),
    ("r", "revision"),
    ("d", "dtype"),
    ("pool", "pooling"),
    ("dim", "dimensions"),
    ("norm", "normalized"),
    ("trunc", "truncation"),
    ("doc", "document_prompt"),
)
_KEYS: Final = tuple(key for key, _ in _FIELDS)
# Besides letters, digits and "_.-~", which quote() never touches.
_SAFE: Final = "/@:"
_PROVIDER: Final = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_TRUNCATION: Final = re.compile(r"(?:left|right)@[1-9][0-9]{0,8}|none@0|server@0", re.ASCII)
_DIMENSIONS: Final = re.compile(r"0|[1-9][0-9]{0,4}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """Everything that determines the vector of a document.

    Raises InvalidError, naming the field, where a value has no place in a model_id.
    """

    # Who computes: "tei", "openai" or "local".
    provider: str
    # Where the model's name means something; empty where it means the same everywhere.
    host: str = ""
    model: str
    # What tells two states of one model apart: a commit, a checksum, a name of the user's.
    revision: str = ""
    dtype: str = ""
    pooling: str = ""
    # The width asked for; 0 is the model's own.
    dimensions: int = 0
    # Whether normalisation is asked for; False means as served.
    normalized: bool
    # "right@L" or "left@L" (cut at L tokens), "none@0" (long texts are refused) or
    # "server@0" (not known here).
    truncation: str
    # Text put before documents, or "name:…" for a prompt that the server knows by name.
    document_prompt: str = ""

    def __post_init__(self) -> None:
        _check(self)
        length = len(self.model_id)
        if length > MODEL_ID_BYTES_MAX:
            longest = max(("model", "document_prompt", "host", "revision"), key=self._length)
            raise _invalid(
                longest,
                f"makes a model_id of {length} bytes, and {MODEL_ID_BYTES_MAX} is the most; "
                "shorten it (a byte outside A-Z a-z 0-9 . _ / @ : - takes three)",
                Reason.FIELD_TOO_LONG,
            )

    def _length(self, name: str) -> int:
        return len(_quote(name, getattr(self, name)))

    @cached_property
    def model_id(self) -> str:
        """The identity as one string, ASCII, at most 2048 bytes."""
        values = ((key, name, getattr(self, name)) for key, name in _FIELDS)
        # int() writes the flag as 0 or 1.
        fields = (
            f"{key}={_quote(name, value if isinstance(value, str) else str(int(value)))}"
            for key, name, value in values
        )
        return ";".join((_VERSION, *fields))

    def __str__(self) -> str:
        return self.model_id

    @classmethod
    def parse(cls, model_id: str) -> Self:
        """Read a model_id back. Only the canonical form is read: `parse(s).model_id == s`.

        Raises InvalidError.
        """
        values = _split(model_id)
        if values["norm"] not in {"0", "1"}:
            raise _invalid("norm", f"is {values['norm']!r}, not 0 or 1")
        if not _DIMENSIONS.fullmatch(values["dim"]):
            raise _invalid("dim", f"is {values['dim']!r}, not a canonical decimal number")
        identity = cls(
            provider=values["p"],
            host=values["h"],
            model=values["m"],
            revision=values["r"],
            dtype=values["d"],
            pooling=values["pool"],
            dimensions=int(values["dim"]),
            normalized=values["norm"] == "1",
            truncation=values["trunc"],
            document_prompt=values["doc"],
        )
        if identity.model_id != model_id:
            raise _invalid(
                "model_id", f"is not in canonical form; that would be {identity.model_id!r:.300}"
            )
        return identity


def truncation_at(side: str, length_tokens: int) -> str:
    """Texts are cut on one side at a length: ("right", 512) -> "right@512"."""
    return f"{side}@{length_tokens}"


def _invalid(field: str, problem: str, reason: Reason = Reason.UNSPECIFIED) -> InvalidError:
    return InvalidError(f"{field} {problem}", field=field, reason=reason)


def _check(identity: ModelIdentity) -> None:
    if not _PROVIDER.fullmatch(identity.provider):
        raise _invalid(
            "provider", f"is {identity.provider!r:.80}; give tei, openai, local or a word like them"
        )
    if not identity.model:
        raise _invalid("model", "is empty; give the name of the model that computes")
    for field in ("dtype", "pooling"):
        value: str = getattr(identity, field)
        if value != value.lower():
            raise _invalid(field, f"is {value!r:.80}; write it in lower case")
    if not 0 <= identity.dimensions <= DIMENSIONS_MAX:
        raise _invalid(
            "dimensions",
            f"is {identity.dimensions}; allowed is 0..{DIMENSIONS_MAX}, 0 the model's own width",
            Reason.OUT_OF_RANGE,
        )
    if not _TRUNCATION.fullmatch(identity.truncation):
        raise _invalid(
            "truncation",
            f"is {identity.truncation!r:.80}; give right@L, left@L, none@0 or server@0",
        )


def _quote(field: str, value: str) -> str:
    try:
        # quote() leaves "~" alone, which the contract does not.
        return quote(value, safe=_SAFE).replace("~", "%7E")
    except UnicodeEncodeError:
        raise _invalid(field, "has a lone surrogate, so it is not valid Unicode") from None


def _split(model_id: str) -> dict[str, str]:
    if len(model_id) > MODEL_ID_BYTES_MAX:
        raise _invalid(
            "model_id",
            f"has {len(model_id)} characters, and {MODEL_ID_BYTES_MAX} is the most",
            Reason.FIELD_TOO_LONG,
        )
    version, *fields = model_id.split(";")
    if version != _VERSION:
        raise _invalid(
            "model_id", f"begins with {version!r:.80}, not {_VERSION!r}: not an identity known here"
        )
    pairs = [field.partition("=") for field in fields]
    keys = tuple(key for key, _, _ in pairs)
    if keys != _KEYS:
        raise _invalid(
            "model_id", f"has the fields {','.join(keys)!r:.120}, not {','.join(_KEYS)!r} in order"
        )
    try:
        return {key: unquote_to_bytes(value).decode("utf-8") for key, _, value in pairs}
    except UnicodeDecodeError as error:
        raise _invalid("model_id", f"has a value that is not UTF-8 ({error.reason})") from None
