"""Model identities: golden strings, a round trip, and no two models in one string."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.errors import InvalidError
from warmindex.identity import (
    ModelIdentity,
    truncation_at,
)
from warmindex.limits import MODEL_ID_BYTES_MAX

SHARED = Path(__file__).parents[3] / "shared" / "data" / "identity-vectors.json"

TEI: dict[str, Any] = {
    "provider": "tei",
    "model": "acme/lines-small",
    "revision": "9f3c",
    "dtype": "float16",
    "pooling": "cls",
    "normalized": True,
    "truncation": "right@512",
}
OPENAI: dict[str, Any] = {
    "provider": "openai",
    "host": "embed.example:8080",
    "model": "lines",
    "normalized": False,
    "truncation": "server@0",
}

# Pinned strings: a change of any of them would orphan every entry that exists.
GOLDEN: list[tuple[dict[str, Any], str]] = [
    (
        TEI,
        (
            "emb/1;p=tei;h=;m=acme/lines-small;r=9f3c;d=float16;pool=cls;dim=0;norm=1;"
            "trunc=right@512;doc="
        ),
    ),
    (
        TEI | {"model": "/data", "revision": "2031-05", "truncation": "none@0", "dimensions": 128},
        "emb/1;p=tei;h=;m=/data;r=2031-05;d=float16;pool=cls;dim=128;norm=1;trunc=none@0;doc=",
    ),
    (
        TEI | {"normalized": False, "truncation": "left@64", "document_prompt": "name:doc"},
        (
            "emb/1;p=tei;h=;m=acme/lines-small;r=9f3c;d=float16;pool=cls;dim=0;norm=0;"
            "trunc=left@64;doc=name:doc"
        ),
    ),
    (
        OPENAI,
        "emb/1;p=openai;h=embed.example:8080;m=lines;r=;d=;pool=;dim=0;norm=0;trunc=server@0;doc=",
    ),
    (
        OPENAI | {"host": "our fleet/a", "model": "ż\u2603~x", "document_prompt": "text: "},
        (
            "emb/1;p=openai;h=our%20fleet/a;m=%C5%BC%E2%98%83%7Ex;r=;d=;pool=;dim=0;norm=0;"
            "trunc=server@0;doc=text:%20"
        ),
    ),
    (
        OPENAI | {"model": "b;r=c%\n\0=", "dimensions": 256},
        (
            "emb/1;p=openai;h=embed.example:8080;m=b%3Br%3Dc%25%0A%00%3D;r=;d=;pool=;dim=256;norm=0;"
            "trunc=server@0;doc="
        ),
    ),
    (
        {
            "provider": "local",
            "model": "all-MiniLM-L6-v2",
            "revision": "0011223344556677",
            "dtype": "float32",
            "pooling": "mean",
            "normalized": True,
            "truncation": "right@256",
        },
        (
            "emb/1;p=local;h=;m=all-MiniLM-L6-v2;r=0011223344556677;d=float32;pool=mean;dim=0;norm=1;"
            "trunc=right@256;doc="
        ),
    ),
]

WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
IDENTITY = st.builds(
    ModelIdentity,
    provider=st.sampled_from(["tei", "openai", "local"]),
    host=WORD,
    model=WORD.filter(bool),
    revision=WORD,
    dtype=WORD.map(str.lower).filter(lambda value: value == value.lower()),
    pooling=WORD.map(str.lower).filter(lambda value: value == value.lower()),
    dimensions=st.integers(0, 8192),
    normalized=st.booleans(),
    truncation=st.sampled_from(["none@0", "server@0", "right@512", "left@1"]),
    document_prompt=WORD,
)


@pytest.mark.parametrize(("values", "model_id"), GOLDEN)
def test_identity_is_pinned(values: dict[str, Any], model_id: str):
    """An identity is the same string on every machine and in every release, and reads back."""
    identity = ModelIdentity(**values)
    assert identity.model_id == str(identity) == model_id
    assert ModelIdentity.parse(model_id) == identity


def test_shared_vectors_hold():
    """The contract's golden identities get the contract's strings."""
    if not SHARED.exists():
        pytest.skip("the golden vectors in ../shared are not here")
    for vector in json.loads(SHARED.read_text(encoding="utf-8")):
        values = vector["fields"]
        identity = ModelIdentity(
            provider=values["p"],
            host=values.get("h", ""),
            model=values["m"],
            revision=values.get("r", ""),
            dtype=values.get("d", ""),
            pooling=values.get("pool", ""),
            dimensions=int(values["dim"]),
            normalized=values["norm"] == "1",
            truncation=values["trunc"],
            document_prompt=values.get("doc", ""),
        )
        assert identity.model_id == vector["model_id"], vector["name"]
        assert ModelIdentity.parse(vector["model_id"]) == identity


@given(IDENTITY)
def test_identity_reads_back(identity: ModelIdentity):
    """Whatever the values hold, the string is ASCII and reads back to the same values."""
    assert identity.model_id.isascii()
    assert ModelIdentity.parse(identity.model_id) == identity


@given(IDENTITY, IDENTITY)
def test_strings_are_equal_exactly_where_fields_are(one: ModelIdentity, other: ModelIdentity):
    """No two models share a string, however their fields are cut."""
    assert (one.model_id == other.model_id) == (astuple(one) == astuple(other))


@given(IDENTITY, st.data())
def test_a_damaged_string_is_another_identity_or_none(identity: ModelIdentity, data: st.DataObject):
    """Any other string that is read at all is its own canonical form."""
    text = identity.model_id
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:position] + data.draw(st.sampled_from("%;=aF0@~é ")) + text[position + 1 :]
    try:
        read = ModelIdentity.parse(damaged)
    except InvalidError:
        return
    assert read.model_id == damaged


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"provider": ""}, "provider"),
        ({"provider": "TEI"}, "provider"),
        ({"provider": "tei;h=x"}, "provider"),
        ({"model": ""}, "model"),
        ({"model": "\ud83d"}, "model"),
        ({"host": "\udc00"}, "host"),
        ({"dtype": "Float32"}, "dtype"),
        ({"pooling": "CLS"}, "pooling"),
        ({"dimensions": -1}, "dimensions"),
        ({"dimensions": 8193}, "dimensions"),
        ({"truncation": ""}, "truncation"),
        ({"truncation": "right@0"}, "truncation"),
        ({"truncation": "right@0512"}, "truncation"),
        ({"truncation": "right@-1"}, "truncation"),
        ({"truncation": "none"}, "truncation"),
        ({"document_prompt": "p" * 2000}, "document_prompt"),
        ({"model": "m" * MODEL_ID_BYTES_MAX}, "model"),
        ({"host": "\u2603" * 300}, "host"),
    ],
)
def test_a_value_without_a_place_names_its_field(change: dict[str, Any], field: str):
    """What cannot be part of an identity is refused with the field at fault."""
    with pytest.raises(InvalidError) as caught:
        ModelIdentity(**(TEI | change))
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} ")


def test_an_identity_may_be_exactly_as_long_as_its_limit():
    """2048 bytes are accepted and one more is not."""
    room = MODEL_ID_BYTES_MAX - len(ModelIdentity(**(TEI | {"model": "m"})).model_id) + 1
    identity = ModelIdentity(**(TEI | {"model": "m" * room}))
    assert len(identity.model_id) == MODEL_ID_BYTES_MAX
    assert ModelIdentity.parse(identity.model_id) == identity
    with pytest.raises(InvalidError, match="2049 bytes"):
        ModelIdentity(**(TEI | {"model": "m" * (room + 1)}))


GOOD = GOLDEN[0][1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "emb/1",
        "emb/2" + GOOD[5:],
        GOOD + ";",
        GOOD + ";x=1",
        GOOD.replace("h=;", ""),
        GOOD.replace("p=tei;h=", "h=;p=tei"),
        GOOD.replace("acme", "%61cme"),
        GOOD.replace("acme", "ac%c5%bc"),
        GOOD.replace("acme", "ac me"),
        GOOD.replace("acme", "ac%"),
        GOOD.replace("acme", "ac%FF"),
        GOOD.replace("acme", "acmé"),
        GOOD.replace("acme", "ac=me"),
        GOOD.replace("dim=0", "dim=00"),
        GOOD.replace("dim=0", "dim="),
        GOOD.replace("dim=0", "dim=+1"),
        GOOD.replace("dim=0", "dim=٣"),
        GOOD.replace("norm=1", "norm=true"),
        GOOD.replace("r=9f3c", "r=" + "9" * 3000),
        " " + GOOD,
        GOOD + "\n",
    ],
)
def test_only_the_canonical_form_is_read(text: str):
    """A string that no client composes is no identity."""
    with pytest.raises(InvalidError):
        ModelIdentity.parse(text)


def test_truncation_at_names_side_and_length():
    """A truncation says on which side and at how many tokens."""
    assert truncation_at("right", 512) == "right@512"
