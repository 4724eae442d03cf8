"""Content hashes: golden vectors, and keys that are equal exactly where their inputs are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from warmindex.errors import InvalidError
from warmindex.hashing import (
    CHAIN_BLOCK_SIZE_MAX,
    chain_block_size,
    chain_hashes,
    chain_scheme,
    text_hash,
    tool_text,
)

SHARED = Path(__file__).parents[3] / "shared" / "data" / "hash-vectors.json"

# Pinned bytes: a change of any of them would orphan every entry that exists.
TEXTS = {
    "": "89e69232aa6c4f419ee854ab25272cfea1acdefb79df1f031b2280380785658a",
    "a": "8545c566d85fb36747628be7b2ef5645523d73e584cb08fce76c853cde18774a",
    " a": "778fe7feb89ebaa4874983c5324d5db29cc0ae60cd8095ddf65d6913c3820365",
    "name: list_rooms description: Lists the rooms of a house.": (
        "845c154de24a26d2624d6a6fd5c0cfd843b1bf27cc823bff34a11209055c3a08"
    ),
    "zażółć \u2603 \U0001f6f0": "8e46738a42a7c5e0591095bc0d2e34787d4bab3ea988d2d082f533dc16fa924f",
    "e\u0301": "ce6f1603872f94d473b403f17908274933ae3efa68ed1c90e572e69541033ec4",
    "\u00e9": "3d4b9feca2a26f2acbec64b861c5fc79c8f477c701a31e954c99d448d070d7cc",
    "one\0two": "8a72d168b09796c74a32a6f95d4755f450402cec164b5931bdca7bd6d6dab91d",
}

CHAINS: dict[str, tuple[list[int], int, str | None, list[str]]] = {
    "one block": (list(range(1, 17)), 16, None, ["ea06fc71a5ee6e88"]),
    "tail dropped": (list(range(1, 20)), 16, None, ["ea06fc71a5ee6e88"]),
    "three blocks": (
        list(range(100, 112)),
        4,
        None,
        ["57b89ffc89f07407", "2c31adba03ebb31a", "2d9512d5eaba83ae"],
    ),
    "under a parent": (
        list(range(100, 112)),
        4,
        "00000000000000ff",
        ["0ed8d93e55bc645a", "705ddc18f16e30ab", "1c8abbd84919f180"],
    ),
    "under a parent that is zero": ([3], 1, "0000000000000000", ["ca7af847810f2c52"]),
    "too short": ([7, 8], 4, None, []),
    "ids of 32 bits": (
        [2**32 - 1, 0, 2**31, 5],
        2,
        None,
        ["281d4ec618d46521", "db3d81339030608a"],
    ),
}

VALID_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TOKEN = st.integers(0, 2**32 - 1)


def shared_vectors() -> dict[str, Any]:
    if not SHARED.exists():
        pytest.skip("the golden vectors in ../shared are not here")
    loaded: dict[str, Any] = json.loads(SHARED.read_text(encoding="utf-8"))
    return loaded


def plain_chain(tokens: list[int], size: int, parent: bytes | None) -> list[bytes]:
    """The rule written out block by block, as plainly as it can be said."""
    chain: list[bytes] = []
    for start in range(0, len(tokens) - size + 1, size):
        block = b"".join(token.to_bytes(4, "little") for token in tokens[start : start + size])
        key = xxhash.xxh3_64_intdigest(block, 1337)
        before = chain[-1] if chain else parent
        if before is not None:
            pair = before[::-1] + key.to_bytes(8, "little")
            key = xxhash.xxh3_64_intdigest(pair, 1337)
        chain.append(key.to_bytes(8, "big"))
    return chain


@pytest.mark.parametrize("text", TEXTS)
def test_text_hash_is_pinned(text: str):
    """A text's key is the same bytes on every machine and in every release."""
    assert text_hash(text).hex() == TEXTS[text]


@pytest.mark.parametrize("name", CHAINS)
def test_chain_is_pinned(name: str):
    """A prompt's keys are the same bytes on every machine and in every release."""
    tokens, size, parent, expected = CHAINS[name]
    parent_key = None if parent is None else bytes.fromhex(parent)
    assert [key.hex() for key in chain_hashes(tokens, size, parent_key)] == expected


def test_shared_text_vectors_hold():
    """The contract's golden texts get the contract's bytes."""
    for vector in shared_vectors()["text-sha256"]["vectors"]:
        assert tool_text(vector["name"], vector["description"]) == vector["text"]
        assert text_hash(vector["text"]).hex() == vector["content_hash_hex"]


def test_shared_chain_vectors_hold():
    """The contract's golden prompts get the contract's bytes."""
    for vector in shared_vectors()["xxh3-chain"]["vectors"]:
        parent = bytes.fromhex(vector["parent"]) if vector["parent"] else None
        keys = chain_hashes(vector["token_ids"], vector["block_size"], parent)
        assert [key.hex() for key in keys] == vector["chain_hex"], vector["name"]
        assert chain_scheme(vector["block_size"]) == vector["scheme"]


@given(VALID_TEXT, VALID_TEXT)
def test_text_keys_are_equal_exactly_where_texts_are(one: str, other: str):
    """Two texts share a key only if they are the same characters."""
    assert (text_hash(one) == text_hash(other)) == (one == other)


@given(VALID_TEXT, st.sampled_from([" ", "\n", "\0", "\u200b", "\u0301"]))
def test_nothing_is_trimmed_from_a_text(text: str, extra: str):
    """White space, NUL and combining marks at the ends make another key."""
    assert text_hash(text) != text_hash(text + extra)
    assert text_hash(text) != text_hash(extra + text)


@pytest.mark.parametrize("text", ["\ud83d", "ok \udc00 ok", "\ude00\ud83d"])
def test_a_lone_surrogate_has_no_key(text: str):
    """A text that is not valid Unicode is refused by field, before anything is sent."""
    with pytest.raises(InvalidError, match="lone surrogate") as caught:
        text_hash(text)
    assert caught.value.field == "text"


@given(
    st.lists(TOKEN, max_size=80), st.integers(1, 20), st.none() | st.binary(min_size=8, max_size=8)
)
def test_chain_is_the_plain_rule(tokens: list[int], size: int, parent: bytes | None):
    """The quick chain and the rule written out give the same keys, from a list or an array."""
    expected = plain_chain(tokens, size, parent)
    assert chain_hashes(tokens, size, parent) == expected
    assert chain_hashes(tuple(tokens), size, parent) == expected
    assert chain_hashes(np.array(tokens, dtype=np.int64), size, parent) == expected
    assert chain_hashes(np.array(tokens, dtype=">u4"), size, parent) == expected


@given(st.lists(TOKEN, max_size=60), st.integers(1, 8), st.data())
def test_chain_continues_from_any_of_its_keys(tokens: list[int], size: int, data: st.DataObject):
    """Hashing a prompt in two runs, the second under the first's last key, changes nothing."""
    whole = chain_hashes(tokens, size)
    cut = data.draw(st.integers(0, len(whole)))
    head = chain_hashes(tokens[: cut * size], size)
    tail = chain_hashes(tokens[cut * size :], size, head[-1] if head else None)
    assert head + tail == whole


@given(st.lists(TOKEN, min_size=1, max_size=24), st.lists(TOKEN, min_size=1, max_size=24))
def test_chain_keys_agree_exactly_on_the_common_prefix(one: list[int], other: list[int]):
    """Two prompts share their first k keys exactly where they share their first k blocks."""
    for position, (left, right) in enumerate(
        zip(chain_hashes(one, 2), chain_hashes(other, 2), strict=False), start=1
    ):
        assert (left == right) == (one[: 2 * position] == other[: 2 * position])


@pytest.mark.parametrize(
    ("tokens", "size", "parent", "field"),
    [
        ([1, 2], 0, None, "block_size"),
        ([1, 2], -1, None, "block_size"),
        ([1, 2], CHAIN_BLOCK_SIZE_MAX + 1, None, "block_size"),
        ([1, 2], 1, b"short", "parent"),
        ([1, 2], 8, b"short", "parent"),
        ([1, -1], 1, None, "token_ids"),
        ([1, 2**32], 1, None, "token_ids"),
        ([1, 2, -3], 2, None, "token_ids"),
        ([1, 2.0], 1, None, "token_ids"),
        ([1, [2, 3]], 1, None, "token_ids"),
        (np.array([1, -1]), 1, None, "token_ids"),
        (np.array([1, 2**40]), 1, None, "token_ids"),
        (np.array([1.0]), 1, None, "token_ids"),
        (np.array([[1, 2]]), 1, None, "token_ids"),
    ],
)
def test_bad_chain_input_names_its_field(tokens: Any, size: int, parent: bytes | None, field: str):
    """Ids that are no uint32, a block size out of range or a cut parent are refused by name."""
    with pytest.raises(InvalidError) as caught:
        chain_hashes(tokens, size, parent)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} ")


@given(st.integers(1, CHAIN_BLOCK_SIZE_MAX))
def test_chain_scheme_reads_back(size: int):
    """A block size survives the trip through its scheme's name."""
    assert chain_block_size(chain_scheme(size)) == size


@pytest.mark.parametrize(
    "scheme",
    [
        "text-sha256", "", "xxh3-chain", "xxh3-chain/", "xxh3-chain/0", "xxh3-chain/016",
        "xxh3-chain/+16", "xxh3-chain/-16", "xxh3-chain/16 ", " xxh3-chain/16", "xxh3-chain/1_6",
        "xxh3-chain/16\n", "xxh3-chain/١٦", "XXH3-chain/16", "xxh3-chain/4294967296",
        "xxh3-chain/99999999999", "vllm-native",
    ],
)  # fmt: skip
def test_only_a_canonical_name_is_a_chain_scheme(scheme: str):
    """A name that could be written in a second way is not read as a block size."""
    assert chain_block_size(scheme) is None


def test_tool_text_is_the_contracts():
    """A tool is embedded and hashed under one fixed form of its name and description."""
    assert tool_text("a", "") == "name: a description: "
