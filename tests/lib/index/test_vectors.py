"""The vector store against a dictionary, and at the edges of float32 and of a block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from warmindex.index.blocks import NO_ROW, rows_in_block
from warmindex.index.search import search
from warmindex.index.vectors import VectorStore

Row = NDArray[np.float32]


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def keys(count: int, start: int = 0) -> list[bytes]:
    return [key(number) for number in range(start, start + count)]


def rows(count: int, dimensions: int, seed: int = 0) -> Row:
    return np.random.default_rng(seed).standard_normal((count, dimensions), dtype=np.float32)


def true_cosine(row: Row, query: Row) -> float:
    a, b = row.astype(np.longdouble), query.astype(np.longdouble)
    return float((a * b).sum() / np.sqrt((a * a).sum()) / np.sqrt((b * b).sum()))


class Wide(VectorStore):
    """A store of wide rows, so that few of them fill a block."""

    WIDTH = 8192

    def __init__(self) -> None:
        super().__init__(self.WIDTH)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 128 wide rows, grown by copying up to 64 of them."""
    monkeypatch.setattr("warmindex.index.blocks.BLOCK_BYTES", 128 * 4 * Wide.WIDTH)
    monkeypatch.setattr("warmindex.index.blocks.GROWN_BYTES_MAX", 64 * 4 * Wide.WIDTH)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "discard"]),
            st.lists(st.integers(0, 11), min_size=1, max_size=8, unique=True),
            st.integers(0, 3),
        ),
        max_size=25,
    )
)
def test_it_behaves_like_a_dictionary_of_rows(
    steps: list[tuple[str, list[int], int]],
) -> None:
    """Whatever is put, replaced and discarded, each key has its last row, bit for bit."""
    store = VectorStore(3)
    model: dict[bytes, bytes] = {}
    for action, numbers, seed in steps:
        names = [key(number) for number in numbers]
        if action == "discard":
            store.discard(names)
            for name in names:
                model.pop(name, None)
        else:
            values = rows(12, 3, seed)[numbers]
            expected = [
                position
                for position, name in enumerate(names)
                if model.get(name) != values[position].tobytes()
            ]
            assert list(store.put(names, values)) == expected
            model.update(zip(names, map(np.ndarray.tobytes, values), strict=True))
        asked = [key(number) for number in (5, 0, 11, 3, 4, 2, 1, 10, 7, 6, 9, 8, 99)]
        found, values_bytes = store.gather(asked)
        assert found == [name in model for name in asked]
        assert values_bytes == b"".join(model.get(name, b"") for name in asked)
        assert len(store) == len(model)
        scores = store.similarities(np.ones(3, np.float32))
        live = {store.key_at(slot) for slot in np.flatnonzero(scores != NO_ROW).tolist()}
        assert live == set(model)


def test_rows_keep_their_bits() -> None:
    """Negative zeros and denormals come back as they were put, and count as a change."""
    store = VectorStore(2)
    store.put([key(0)], np.array([[0.0, 1e-42]], np.float32))
    changed = store.put([key(0)], np.array([[-0.0, 1e-42]], np.float32))
    assert changed == [0]
    assert store.gather([key(0)])[1] == np.array([-0.0, 1e-42], np.float32).tobytes()
    assert store.put([key(0)], np.array([[-0.0, 1e-42]], np.float32)) == []


def test_the_caller_may_reuse_its_array() -> None:
    """What is stored is a copy."""
    store = VectorStore(2)
    values = np.ones((1, 2), np.float32)
    store.put([key(0)], values)
    values[:] = 7
    assert store.gather([key(0)])[1] == np.ones(2, np.float32).tobytes()


def test_rows_of_another_shape_are_refused() -> None:
    """A wrong width or a wrong number of rows is an error that names both."""
    store = VectorStore(2)
    with pytest.raises(ValueError, match="1 keys of 2 dimensions"):
        store.put([key(0)], np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="give the width"):
        VectorStore(0)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("order", ["as put", "backwards", "shuffled", "sparse"])
def test_gather_keeps_the_order_of_the_request_across_blocks(order: str) -> None:
    """However the rows lie, they come back in the order of the request."""
    store = Wide()
    count = 3 * rows_in_block(Wide.WIDTH) - 5
    values = rows(count, Wide.WIDTH)
    store.put(keys(count), values)
    numbers = np.arange(count)
    if order == "backwards":
        numbers = numbers[::-1]
    elif order == "shuffled":
        numbers = np.random.default_rng(1).permutation(count)
    elif order == "sparse":
        numbers = numbers[::7]
    found, values_bytes = store.gather([key(number) for number in numbers.tolist()])
    assert all(found)
    assert values_bytes == values[numbers].tobytes()


def test_gather_stops_at_the_rows_asked_for() -> None:
    """With rows_max every key is answered, and only the first rows are copied."""
    store = VectorStore(2)
    values = rows(4, 2)
    store.put(keys(4), values)
    found, values_bytes = store.gather([key(9), key(1), key(3), key(0)], rows_max=2)
    assert found == [False, True, True, True]
    assert values_bytes == values[[1, 3]].tobytes()


def test_a_key_asked_twice_is_answered_twice() -> None:
    """Repeated keys give repeated rows."""
    store = VectorStore(2)
    values = rows(2, 2)
    store.put(keys(2), values)
    assert store.gather([key(1), key(1)]) == ([True, True], values[[1, 1]].tobytes())


@pytest.mark.parametrize("scale", [1e38, 1e-38, 1e-45, 1e20, 1e-20, 1.0])
def test_extreme_rows_have_their_true_cosine(scale: float) -> None:
    """No finite row overflows, vanishes or turns into NaN, in either way of asking."""
    values = (rows(5, 16) * scale).astype(np.float32)
    values[:, 0] += np.float32(scale)  # so that no row is rounded to zero
    values[2] = rows(1, 16, 3)[0]
    query = rows(1, 16, 9)[0]
    store = VectorStore(16)
    store.put(keys(5), values)
    expected = [true_cosine(row, query) for row in values]
    every = store.similarities(query)
    one = store.similarities(query, [key(3)])
    exact = store.cosines(query, np.arange(5))
    np.testing.assert_allclose(every, expected, atol=1e-5)
    np.testing.assert_allclose(one, expected[3:4], atol=1e-5)
    np.testing.assert_allclose(exact, expected, atol=1e-12)


@pytest.mark.parametrize("dimensions", [1, 4, 16, 384])
def test_rows_that_overflow_warn_nobody(dimensions: int) -> None:
    """Neither a row of extreme length nor what one has left behind makes numpy complain."""
    store = VectorStore(dimensions)
    huge = np.full((2, dimensions), 3e38, np.float32)
    query = np.full(dimensions, dimensions**-0.5, np.float32)
    store.put(keys(2), huge)
    hits = search(store, None, query=query, limit=8)
    assert [round(1 - hit.distance, 3) for hit in hits if hit.distance is not None] == [1, 1]
    store.discard([key(0)])
    store.put([key(1)], huge[:1] / np.float32(3e38))
    assert len(search(store, None, query=query, limit=8)) == 1


@pytest.mark.parametrize("scale", [3e38, 1e-45])
def test_an_extreme_query_has_its_true_cosine(scale: float) -> None:
    """The query's length does not matter either."""
    values = rows(5, 4)
    query = np.array([scale, 0, 0, 0], np.float32)
    store = VectorStore(4)
    store.put(keys(5), values)
    expected = [true_cosine(row, query) for row in values]
    np.testing.assert_allclose(store.similarities(query), expected, atol=1e-5)


def test_a_row_that_stops_being_extreme_is_ordinary_again() -> None:
    """Replacing or reusing a place leaves nothing of what was there."""
    store = VectorStore(2)
    huge = np.array([[3e38, 3e38]], np.float32)
    plain = np.array([[1, 0]], np.float32)
    query = np.array([1, 0], np.float32)
    store.put([key(0)], huge)
    store.put([key(0)], plain)
    np.testing.assert_allclose(store.similarities(query), [1.0])
    store.put([key(1)], huge)
    store.discard([key(1)])
    store.put([key(2)], plain)
    np.testing.assert_allclose(store.similarities(query), [1.0, 1.0])


def test_equal_rows_have_equal_cosines_wherever_they_lie() -> None:
    """The same bits give the same bits, alone or among others, in every slot."""
    store = VectorStore(384)
    row, query = rows(1, 384, 5), rows(1, 384, 6)[0]
    filler = rows(40, 384, 7)
    for number in range(40):
        store.put([key(2 * number), key(2 * number + 1)], np.vstack([row, filler[number]]))
    slots = store.slots([key(2 * number) for number in range(40)])
    together = store.cosines(query, slots)
    alone = store.cosines(query, slots[7:8])
    assert len({float(value) for value in [*together, *alone]}) == 1


@pytest.mark.usefixtures("small_blocks")
def test_similarities_of_some_keys_follow_their_order() -> None:
    """One number a key, NO_ROW for a key without a row, by a gather or by the product."""
    store = Wide()
    count = 300
    values = rows(count, Wide.WIDTH)
    store.put(keys(count), values)
    query = rows(1, Wide.WIDTH, 2)[0]
    for numbers in ([299, 0, 150], list(range(299, -1, -1))):
        asked = [key(1000), *map(key, numbers)]
        result = store.similarities(query, asked)
        assert result[0] == NO_ROW
        expected = [true_cosine(values[number], query) for number in numbers]
        np.testing.assert_allclose(result[1:], expected, atol=1e-5)
    assert store.similarities(query, []).shape == (0,)


def test_a_small_store_is_small() -> None:
    """Five rows take the memory of a few rows, not of a block."""
    store = VectorStore(384)
    for number in range(5):
        store.put([key(number)], rows(1, 384, number))
    assert store.memory_bytes < 3 * 5 * 4 * 384


@pytest.mark.parametrize("count", [1, 1000, 3000, 20_000])
@pytest.mark.parametrize("step", [1, 64, 20_000])
def test_memory_stays_near_the_rows_themselves(count: int, step: int) -> None:
    """At most 1.1 times the raw bytes and 200 bytes an entry, at any size and pace."""
    store = VectorStore(96)
    values = rows(count, 96)
    for start in range(0, count, step):
        some = values[start : start + step]
        store.put(keys(len(some), start), some)
    assert store.memory_bytes <= 1.1 * values.nbytes + 200 * count + 2048


@pytest.mark.usefixtures("small_blocks")
def test_memory_is_given_back() -> None:
    """A block without a live row gives up its memory, in the middle and at the end."""
    store = Wide()
    per_block = rows_in_block(Wide.WIDTH)
    store.put(keys(3 * per_block), rows(3 * per_block, Wide.WIDTH))
    full = store.memory_bytes
    store.discard(keys(per_block, per_block))
    assert store.memory_bytes < 0.7 * full
    query = rows(1, Wide.WIDTH, 4)[0]
    assert int((store.similarities(query) != NO_ROW).sum()) == 2 * per_block
    store.put([key(999)], rows(1, Wide.WIDTH, 8))
    assert store.gather([key(999)])[1] == rows(1, Wide.WIDTH, 8).tobytes()
    store.discard(keys(3 * per_block))
    store.discard([key(999)])
    assert len(store) == 0
    assert store.memory_bytes < 10_000


def test_freed_places_are_used_again() -> None:
    """Churn does not make the store grow: it never has more than 150 rows here."""
    store = VectorStore(64)
    for turn in range(1, 30):
        store.put(keys(100, 100 * turn), rows(100, 64, turn))
        store.discard(keys(100, 100 * turn - 50))
    assert len(store) == 50
    assert store.memory_bytes < 2 * 150 * (4 * 64 + 200)
