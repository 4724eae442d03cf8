"""Packed hashes against sets of them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from warmindex_server.reports.bag import HashBag

# Few bytes, so that hashes meet; zeros at the end, which strings would lose.
hashes = st.one_of(
    st.lists(st.sampled_from((0, 1, 255)), min_size=size, max_size=size).map(bytes)
    for size in (1, 2, 8, 32)
)
lists = st.lists(st.lists(hashes, max_size=8), max_size=4)


def bag_of(parts: list[list[bytes]]) -> HashBag:
    bag = HashBag()
    for part in parts:
        bag.add(part)
    return bag


@given(lists, lists)
@example([[b"a\0", b"a"]], [[b"a\0"]])
def test_a_bag_is_a_set_once_it_is_packed(some: list[list[bytes]], others: list[list[bytes]]):
    """Its count, its members, and what another does not have."""
    mine, theirs = bag_of(some), bag_of(others)
    expected = {each for part in some for each in part}
    not_theirs = expected - {each for part in others for each in part}
    assert len(mine) == sum(map(len, some))
    assert mine.pack() == len(mine) == len(expected)
    theirs.pack()
    left = mine.minus(theirs)
    assert len(left) == len(set(left))
    assert set(left) == not_theirs


def test_more_can_be_put_in_after_packing():
    """Packing is only a way to save room."""
    bag = bag_of([[b"b" * 8, b"a" * 8]])
    assert bag.pack() == 2
    bag.add([b"b" * 8, b"c" * 8])
    assert bag.pack() == 3
    assert bag.minus(HashBag()) == [b"a" * 8, b"b" * 8, b"c" * 8]
