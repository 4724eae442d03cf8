"""From answers to vectors: what came decides, and what is short or odd is no answer."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.embedders import BadAnswerError, FailureKind
from warmindex.embedders.over_http.decode import openai_rows, tei_rows
from warmindex.embedders.vectors import bad_rows

FOUR = "AACAPwAAAEAAAEBAAACAQA=="
NAN64 = base64.b64encode(np.array([np.nan, 1], dtype="<f4").tobytes()).decode()


def openai(*values: Any, **extra: Any) -> bytes:
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(values)]
    return json.dumps({"object": "list", "data": data, "model": "m", **extra}).encode()


@pytest.mark.parametrize("value", [FOUR, [1.0, 2.0, 3.0, 4.0], [1, 2, 3, 4]])
def test_the_value_decides_between_base64_and_floats(value: Any):
    """A text is base64 of little-endian float32, a list is numbers, whatever was asked."""
    rows = openai_rows(openai(value), 1)
    assert rows.matrix.tolist() == [[1, 2, 3, 4]]
    assert rows.matrix.dtype == np.float32
    assert rows.model == "m"


@given(st.permutations(range(5)))
def test_vectors_are_matched_by_index(order: list[int]):
    """In whatever order they come, each text gets its own."""
    data = [{"index": index, "embedding": [index + 1.0, 0.5]} for index in order]
    rows = openai_rows(json.dumps({"data": data}).encode(), 5)
    assert rows.matrix[:, 0].tolist() == [1, 2, 3, 4, 5]


def test_without_any_index_the_order_counts():
    """Servers that number nothing answer in the order of the request."""
    body = json.dumps({"data": [{"embedding": [1]}, {"embedding": [2]}]}).encode()
    assert openai_rows(body, 2).matrix.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (openai(base64.b64encode(b"x" * 15).decode()), 1),
        (openai("not base64!"), 1),
        (openai(""), 1),
        (openai([]), 1),
        (openai(None), 1),
        (openai({"a": 1}), 1),
        (openai(["1.0", "2.0"]), 1),
        (openai([True, False]), 1),
        (openai([[1.0], [2.0]]), 1),
        (openai([1.0, [2.0]]), 1),
        (openai([1.0] * 8193), 1),
        (openai([1.0, 2.0], [1.0]), 2),
        (openai([1.0]), 2),
        (openai([1.0], [1.0]), 1),
        (openai(), 1),
        (b'{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}', 2),
        (b'{"data":[{"index":1,"embedding":[1]}]}', 1),
        (b'{"data":[{"index":-1,"embedding":[1]}]}', 1),
        (b'{"data":[{"index":"0","embedding":[1]}]}', 1),
        (b'{"data":[{"index":0}]}', 1),
        (b'{"data":[1]}', 1),
        (b'{"data":{}}', 1),
        (b'{"embedding":[1.0]}', 1),
        (b"[[1.0]]", 1),
        (b"null", 1),
        (b"", 1),
        (b"<html>Welcome</html>", 1),
        (b'{"data":[{"index":0,"embedding":[0.1,', 1),
        (b"[" * 100_000, 1),
        (b"\xff\xfe", 1),
    ],
)
def test_what_is_not_one_vector_a_text_is_no_answer(body: bytes, count: int):
    """Short, long, doubled, ragged, misnumbered or unreadable: the whole answer is refused."""
    with pytest.raises(BadAnswerError):
        openai_rows(body, count)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"[[1.0, 2.0]]", 2),
        (b"[[1.0], [1.0, 2.0]]", 2),
        (b"[1.0, 2.0]", 2),
        (b'{"error": "x"}', 1),
        (b"[]", 1),
        (b"[[]]", 1),
        (b"<html>", 1),
    ],
)
def test_teis_bare_list_is_held_to_the_same(body: bytes, count: int):
    """A list of lists with one vector a text is TEI's answer, and nothing else is."""
    with pytest.raises(BadAnswerError):
        tei_rows(body, count)


@pytest.mark.parametrize(
    "row",
    ["[null, null]", "[0.0, 0.0]", "[NaN, 1.0]", "[1.0, Infinity]", "[1e39, 1.0]", "[1e-60, 0]"],
)
def test_a_vector_of_bad_values_is_found_out_alone(row: str):
    """Null, NaN, infinity, what overflows, and nothing but zeros fail their own text only."""
    rows = tei_rows(f"[[3.0, 4.0], {row}]".encode(), 2)
    bad = bad_rows(rows.matrix)
    assert list(bad) == [1]
    assert bad[1].kind is FailureKind.BAD_VECTOR


def test_a_nan_in_base64_is_found_out():
    """Base64 carries NaN as well as JSON does."""
    assert list(bad_rows(openai_rows(openai(NAN64), 1).matrix)) == [0]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=8
    )
)
def test_no_json_makes_reading_fail_otherwise(value: Any):
    """Whatever JSON comes, the result is rows or BadAnswerError."""
    for body in (json.dumps(value), json.dumps({"data": [{"embedding": value}]})):
        for read in (tei_rows, openai_rows):
            try:
                matrix = read(body.encode(), 1).matrix
            except BadAnswerError:
                continue
            assert matrix.shape[0] == 1
            assert matrix.dtype == np.float32
