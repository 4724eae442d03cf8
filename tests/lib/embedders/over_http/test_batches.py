"""How texts are cut into requests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.embedders.over_http.batches import (
    Limits,
    cut,
    fits,
    halves,
    json_bytes,
    with_fewer_bytes,
    with_fewer_texts,
)

SIZES = st.lists(st.integers(1, 500), max_size=120)
LIMITS = st.builds(Limits, texts=st.integers(1, 40), body_bytes=st.integers(1, 2000))


@given(SIZES, LIMITS, st.integers(1, 6))
def test_every_text_is_in_one_batch_and_every_batch_fits(
    sizes: list[int], limits: Limits, replicas: int
):
    """No text is lost or sent twice, and no batch breaks a limit."""
    batches = cut(sizes, limits, replicas)
    assert sorted(place for batch in batches for place in batch) == list(range(len(sizes)))
    assert all(fits(batch, sizes, limits) for batch in batches)


@given(SIZES.filter(lambda sizes: len(sizes) > 1))
def test_halves_are_two_parts_of_the_whole(sizes: list[int]):
    """Both halves have a text, and together they are the batch, in its order."""
    places = tuple(range(len(sizes)))
    left, right = halves(places, sizes)
    assert left
    assert right
    assert left + right == places


@pytest.mark.parametrize(
    ("count", "replicas", "expected"),
    [
        (33, 1, [32, 1]),
        (140, 1, [32, 32, 32, 32, 12]),
        (140, 4, [18] * 7 + [14]),
        (64, 4, [16] * 4),
        (20, 4, [8, 8, 4]),
        (5, 4, [5]),
        (0, 4, []),
    ],
)
def test_texts_are_spread_over_replicas_where_it_is_worth_it(
    count: int, replicas: int, expected: list[int]
):
    """One replica gets full batches; several get about the same, and never a handful each."""
    batches = cut([10] * count, Limits(32, 10**6), replicas)
    assert [len(batch) for batch in batches] == expected


def test_the_largest_texts_come_first():
    """Texts of like size stand together, the largest in front."""
    assert cut([1, 9, 5, 9], Limits(2, 10**6)) == [(1, 3), (2, 0)]


def test_a_text_above_the_byte_limit_is_alone():
    """A text that no request can hold by the limit is sent alone, for the server to judge."""
    assert cut([50, 5, 5], Limits(32, 10)) == [(0,), (1, 2)]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_sizes_are_those_of_the_body(text: str):
    """A text counts as its bytes in the JSON that is sent, quotes and comma included."""
    body = json.dumps({"inputs": [text, ""]}, ensure_ascii=False).encode("utf-8")
    empty = json.dumps({"inputs": ["", ""]}, ensure_ascii=False).encode("utf-8")
    assert json_bytes(text) == len(body) - len(empty) + len('"",')


def test_limits_follow_what_a_server_said():
    """A number that is smaller than what was sent is taken, any other means a half."""
    limits = Limits(64, 1000)
    assert with_fewer_texts(limits, 64, 10).texts == 10
    assert with_fewer_texts(limits, 64, 64).texts == 32
    assert with_fewer_texts(limits, 64, None).texts == 32
    assert with_fewer_texts(limits, 1, None).texts == 1
    assert with_fewer_texts(Limits(8, 1000), 64, 32).texts == 8
    assert with_fewer_bytes(limits, 900) == Limits(64, 450)
    assert with_fewer_bytes(limits, 9000) == limits
