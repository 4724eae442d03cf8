"""The published keys, computed a second time with nothing but hashlib, struct and xxhash.

What docs/contract.md and docs/golden-vectors.json show is what other languages are checked
against, so it is held both to the rules, written out below once more, and to the library.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct

import pytest
import xxhash
from support.tree import ROOT
from warmindex import hashing
from warmindex.identity import ModelIdentity

VECTORS = json.loads((ROOT / "docs" / "golden-vectors.json").read_text(encoding="utf-8"))
DOCUMENT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")


def names(vector: dict[str, object]) -> str:
    return str(vector["name"])


def le64(number: int) -> bytes:
    return struct.pack("<Q", number)


def text_key(text: str) -> bytes:
    data = text.encode()
    return hashlib.sha256(le64(6) + b"text/1" + le64(len(data)) + data).digest()


def chain(token_ids: list[int], block_size: int, parent: int | None) -> list[int]:
    keys: list[int] = []
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        block = token_ids[start : start + block_size]
        key = xxhash.xxh3_64_intdigest(struct.pack(f"<{block_size}I", *block), seed=1337)
        if parent is not None:
            key = xxhash.xxh3_64_intdigest(le64(parent) + le64(key), seed=1337)
        keys.append(key)
        parent = key
    return keys


def model_id(fields: dict[str, str]) -> str:
    plain = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/@:-"
    order = ("p", "h", "m", "r", "d", "pool", "dim", "norm", "trunc", "doc")
    assert set(fields) <= set(order)

    def escaped(value: str) -> str:
        return "".join(chr(b) if b in plain else f"%{b:02X}" for b in value.encode())

    return "emb/1;" + ";".join(f"{key}={escaped(fields.get(key, ''))}" for key in order)


@pytest.mark.parametrize("vector", VECTORS["text-sha256"], ids=names)
def test_a_text_has_the_published_key(vector):
    """The rule and the library give the published 32 bytes; hex and base64 are the same."""
    key = bytes.fromhex(vector["content_hash_hex"])
    assert base64.b64decode(vector["content_hash_base64"]) == key
    assert text_key(vector["text"]) == key
    assert hashing.text_hash(vector["text"]) == key


@pytest.mark.parametrize("vector", VECTORS["xxh3-chain"], ids=names)
def test_a_prompt_has_the_published_chain(vector):
    """The rule and the library give the published keys, 8 bytes each, big-endian."""
    block_size = int(vector["hash_scheme"].removeprefix("xxh3-chain/"))
    parent = vector["parent_hex"] and bytes.fromhex(vector["parent_hex"])
    keys = [bytes.fromhex(text) for text in vector["chain_hex"]]
    number = int.from_bytes(parent, "big") if parent else None
    computed = chain(vector["token_ids"], block_size, number)
    assert [key.to_bytes(8, "big") for key in computed] == keys
    assert hashing.chain_hashes(vector["token_ids"], block_size, parent) == keys
    assert hashing.chain_scheme(block_size) == vector["hash_scheme"]


@pytest.mark.parametrize("vector", VECTORS["model-id"], ids=names)
def test_a_model_has_the_published_identity(vector):
    """The rule and the library give the published string."""
    fields = vector["fields"]
    assert model_id(fields) == vector["model_id"]
    identity = ModelIdentity(
        provider=fields["p"],
        host=fields.get("h", ""),
        model=fields["m"],
        revision=fields.get("r", ""),
        dtype=fields.get("d", ""),
        pooling=fields.get("pool", ""),
        dimensions=int(fields["dim"]),
        normalized=fields["norm"] == "1",
        truncation=fields["trunc"],
        document_prompt=fields.get("doc", ""),
    )
    assert identity.model_id == vector["model_id"]


def test_the_published_keys_of_texts_all_differ():
    """A space, a combining mark, a NUL: every difference in a text is one in its key."""
    keys = [vector["content_hash_hex"] for vector in VECTORS["text-sha256"]]
    assert len(set(keys)) == len(keys)


def test_a_chain_goes_on_from_its_parent():
    """A run that begins in the middle of a prompt has the keys that the whole prompt has."""
    whole, rest = (
        next(v for v in VECTORS["xxh3-chain"] if v["name"].startswith(name))
        for name in ("two blocks", "the second block")
    )
    assert rest["parent_hex"] == whole["chain_hex"][0]
    assert rest["chain_hex"] == whole["chain_hex"][1:]


def shown(pattern: str) -> list[tuple[str, ...]]:
    rows = re.findall(pattern, DOCUMENT, re.MULTILINE)
    assert rows, "the document shows some"
    return rows


def test_the_document_shows_true_keys():
    """The tables of docs/contract.md are held to the rules as well."""
    for text, key in shown(r"^\| `([^`]+)` \| `([0-9a-f]{64})` \|$"):
        assert text_key(text).hex() == key
    for block_size, token_ids, keys in shown(r"^\| (\d+) \| `([\d ]+)` \| `([0-9a-f ]+)` \|$"):
        computed = chain([int(token) for token in token_ids.split()], int(block_size), None)
        assert " ".join(f"{key:016x}" for key in computed) == keys
    for identity in shown(r"^\| [^|`]+ \| `(emb/1;[^`]+)` \|$"):
        assert identity in [vector["model_id"] for vector in VECTORS["model-id"]]
