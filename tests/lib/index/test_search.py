"""Search in one partition: the arms, their fusion, and everything that may be typed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from warmindex.event import Document
from warmindex.index.search import Hit, SearchOptions, search
from warmindex.index.vectors import VectorStore
from warmindex.index.words import WordIndex

Row = NDArray[np.float32]


def key(name: str) -> bytes:
    return name.encode().ljust(32, b".")


def unit(angle: float) -> Row:
    """A vector in the plane, `angle` degrees from (1, 0)."""
    return np.array([math.cos(math.radians(angle)), math.sin(math.radians(angle))], np.float32)


QUERY = unit(0)


class Shelf:
    """A partition's two stores, filled entry by entry."""

    def __init__(self) -> None:
        self.vectors = VectorStore(2)
        self.words = WordIndex()

    def add(self, name: str, text: str | None = None, angle: float | None = None) -> Shelf:
        if text is not None:
            self.words.put(key(name), Document(name, text))
        if angle is not None:
            self.vectors.put([key(name)], unit(angle)[None, :])
        return self

    def hits(self, text: str = "", *, query: Row | None = QUERY, **more: object) -> list[Hit]:
        arguments: dict[str, object] = {"limit": 8, **more}
        return search(self.vectors, self.words, query=query, query_text=text, **arguments)  # type: ignore[arg-type]

    def names(self, text: str = "", *, query: Row | None = QUERY, **more: object) -> list[str]:
        return [
            hit.content_hash.decode().rstrip(".") for hit in self.hits(text, query=query, **more)
        ]


def test_meaning_alone_ranks_by_cosine() -> None:
    """Nearest first, with the cosine distance and without a score of words."""
    shelf = Shelf().add("far", angle=80).add("near", angle=10).add("middle", angle=45)
    hits = shelf.hits()
    assert [hit.content_hash for hit in hits] == [key("near"), key("middle"), key("far")]
    assert hits[0].distance == pytest.approx(1 - math.cos(math.radians(10)), abs=1e-6)
    assert hits[0].score == pytest.approx(math.cos(math.radians(10)), abs=1e-6)
    assert hits[0].lexical_score is None


def test_words_alone_rank_by_words() -> None:
    """Without a query vector the words arm alone answers, best first, the best with score 1."""
    shelf = Shelf().add("pull", "merge a request").add("push", "send a request upstream now")
    hits = shelf.hits("merge request", query=None)
    assert [hit.content_hash for hit in hits] == [key("pull"), key("push")]
    assert hits[0].score == 1.0
    assert hits[0].distance is None
    assert hits[0].lexical_score > hits[1].lexical_score > 0


def test_both_arms_count() -> None:
    """Of two entries as near, the one with the words comes first, and with more words higher."""
    shelf = Shelf().add("a", "cats", 30).add("b", "dogs bark", 30).add("c", "dogs", 30)
    assert shelf.names("dogs bark")[:2] == ["b", "c"]
    assert shelf.names("cats")[0] == "a"


def test_a_near_entry_beats_one_that_only_has_the_words() -> None:
    """Meaning weighs more, as the labelled queries say it should."""
    shelf = Shelf().add("near", "felines", 10).add("far", "cats", 89)
    assert shelf.names("cats") == ["near", "far"]


def test_the_weight_of_the_words_is_an_option() -> None:
    """With the whole weight on words the same query ranks the other way round."""
    shelf = Shelf().add("near", "felines", 10).add("far", "cats", 89)
    assert shelf.names("cats", options=SearchOptions(words_weight=1.0)) == ["far", "near"]


def test_a_misspelt_query_leans_on_words() -> None:
    """The same two entries: a typo moves weight from meaning, which cannot read it, to words."""
    shelf = Shelf().add("near", "felines", 10).add("far", "kittens", 80).add("other", "x", 85)
    right = {hit.content_hash: hit.score for hit in shelf.hits("kittens")}
    wrong = {hit.content_hash: hit.score for hit in shelf.hits("kittenz")}
    assert wrong[key("far")] > right[key("far")]
    assert wrong[key("near")] < right[key("near")]


@pytest.mark.parametrize("weight", [-0.1, 1.1, math.nan])
def test_a_weight_that_is_no_share_is_refused(weight: float) -> None:
    """Options are checked when they are made."""
    with pytest.raises(ValueError, match="words_weight"):
        SearchOptions(words_weight=weight)


def test_an_entry_that_only_meaning_ranks_has_no_share_of_words() -> None:
    """Its score is that of its cosine alone: twice as many words elsewhere do not change it."""
    shelf = Shelf().add("one", "dogs", 60).add("two", "dogs dogs", 60).add("bare", angle=60)
    hits = {hit.content_hash: hit for hit in shelf.hits("dogs")}
    bare, one, two = (hits[key(name)] for name in ("bare", "one", "two"))
    assert bare.lexical_score is None
    assert bare.score < one.score < two.score == 1.0
    assert bare.score == shelf.hits("nothing that is there", limit=8)[0].score


def test_a_document_without_a_vector_is_found() -> None:
    """While vectors are being computed, the best match by words can still come first."""
    shelf = Shelf().add("near", "felines", 10).add("new", "cats and dogs")
    hits = shelf.hits("cats and dogs")
    assert hits[0].content_hash == key("new")
    assert hits[0].distance is None
    assert 0 <= hits[0].score <= 1


def test_max_distance_is_the_meaning_arms() -> None:
    """Beyond it an entry is no hit of meaning, but may be one of words."""
    shelf = Shelf().add("near", "felines", 10).add("far", "cats", 70).add("other", "fish", 70)
    hits = shelf.hits("cats", max_distance=0.5)
    assert [(hit.content_hash, hit.distance is None) for hit in hits] == [
        (key("near"), False),
        (key("far"), True),
    ]


def test_opposite_entries_are_dropped_unless_asked_for() -> None:
    """The default distance of 1 ends at the right angle; 2 ranks everything, within 0..1."""
    shelf = Shelf().add("near", angle=10).add("opposite", angle=170).add("across", angle=100)
    assert shelf.names() == ["near"]
    hits = shelf.hits(max_distance=2.0)
    assert [hit.content_hash for hit in hits] == [key("near"), key("across"), key("opposite")]
    assert all(0 <= hit.score <= 1 for hit in hits)
    assert hits[-1].distance == pytest.approx(1 + math.cos(math.radians(10)), abs=1e-6)


def test_only_what_is_allowed_is_found() -> None:
    """An allow-list limits both arms; an empty one allows nothing; strangers are ignored."""
    shelf = Shelf().add("a", "cats", 10).add("b", "cats", 20).add("c", "cats", 30)
    allowed = [key("c"), key("stranger"), key("c")]
    assert shelf.names("cats", allowed=allowed) == ["c"]
    assert shelf.names("cats", query=None, allowed=allowed) == ["c"]
    assert shelf.names(allowed=allowed) == ["c"]
    assert shelf.names("cats", allowed=[]) == []


def test_what_is_not_allowed_changes_no_score() -> None:
    """The best of the allowed sets the scale, whatever better there is outside."""
    shelf = Shelf().add("a", "cats cats", 10).add("b", "a cat among dogs", 20)
    [hit] = shelf.hits("cats", query=None, allowed=[key("b")])
    assert hit.score == 1.0


def test_the_dead_are_never_seen() -> None:
    """Retired entries neither appear, nor take a place, nor set the scale."""
    shelf = Shelf().add("live", "a cat among dogs", 40)
    for number in range(50):
        shelf.add(f"dead{number}", "cats", number / 2)
    shelf.add("deadwords", "cats cats")

    def alive(content_hash: bytes) -> bool:
        return not content_hash.startswith(b"dead")

    alone = Shelf().add("live", "a cat among dogs", 40)
    for text, query in (("cats", QUERY), ("cats", None), ("", QUERY)):
        [hit] = shelf.hits(text, query=query, limit=1, alive=alive)
        [expected] = alone.hits(text, query=query, limit=1)
        assert hit.content_hash == key("live")
        assert hit.score == expected.score
    assert shelf.hits("cats", alive=lambda _key: False) == []


def test_ties_go_by_content_hash() -> None:
    """Equal vectors and equal words tie exactly, wherever they lie, and sort by key."""
    rng = np.random.default_rng(3)
    store, words = VectorStore(384), WordIndex()
    row = rng.standard_normal((1, 384), dtype=np.float32)
    names = [f"k{number:03}" for number in rng.permutation(60)]
    for name in names:
        store.put([key(name)], row)
        store.put([key("x" + name)], rng.standard_normal((1, 384), dtype=np.float32))
        words.put(key(name), Document("twin", "the same text"))
    hits = search(store, words, query=row[0], query_text="same", limit=60)
    assert [hit.content_hash for hit in hits] == sorted(map(key, names))
    assert len({hit.score for hit in hits}) == 1


def test_repeats_give_the_same_answer() -> None:
    """Bit for bit, also on a store whose rows lie otherwise."""
    rng = np.random.default_rng(5)
    values = rng.standard_normal((300, 64), dtype=np.float32)
    query = rng.standard_normal(64, dtype=np.float32)
    answers = []
    for order in (np.arange(300), rng.permutation(300)):
        store, words = VectorStore(64), WordIndex()
        for number in order.tolist():
            store.put([key(str(number))], values[number : number + 1])
            words.put(key(str(number)), Document(f"tool_{number % 7}", f"does {number % 5}"))
        answers += [
            search(store, words, query=query, query_text="tool 3", limit=50, max_distance=2)
            for _ in range(2)
        ]
    assert all(answer == answers[0] for answer in answers)


@pytest.mark.parametrize("limit", [0, 1, 3, 1000])
def test_the_limit_holds(limit: int) -> None:
    """Never more hits than asked for."""
    shelf = Shelf()
    for number in range(10):
        shelf.add(f"t{number}", "cats", number)
    shelf.add("bare", "cats")
    for text, query in (("cats", QUERY), ("cats", None), ("", QUERY)):
        assert len(shelf.hits(text, query=query, limit=limit)) <= limit


def test_nothing_to_rank() -> None:
    """Empty stores, no stores, no query: an empty answer, never an error."""
    assert Shelf().hits("cats") == []
    assert search(None, None, query=QUERY, query_text="cats", limit=8) == []
    assert search(None, None, query=None, limit=8) == []
    shelf = Shelf().add("empty", "")
    assert shelf.hits("   ") == []
    assert shelf.hits("cats", query=None) == []
    assert Shelf().add("a", "cats", 10).names("   ", query=None) == []


def test_one_document_and_equal_scores_stay_in_range() -> None:
    """Nothing is divided by a spread that is zero."""
    one = Shelf().add("a", "cats", 10).hits("cats")
    assert len(one) == 1
    assert 0 < one[0].score <= 1
    same = Shelf().add("a", "cats").add("b", "cats").hits("cats", query=None)
    assert [hit.score for hit in same] == [1.0, 1.0]


def test_extreme_vectors_have_finite_scores() -> None:
    """The largest and the smallest floats rank like any others."""
    store = VectorStore(2)
    store.put([key("huge")], np.array([[3e38, 3e38]], np.float32))
    store.put([key("tiny")], np.array([[1e-45, 0]], np.float32))
    hits = search(store, None, query=np.array([1e38, 0], np.float32), limit=8)
    assert [hit.content_hash for hit in hits] == [key("tiny"), key("huge")]
    assert hits[0].distance == 0.0
    assert hits[1].distance == pytest.approx(1 - math.sqrt(0.5), abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 359), st.text("abc ", max_size=6), st.booleans()),
        max_size=12,
    ),
    st.text("abc ", max_size=8),
    st.floats(0, 2),
    st.floats(0, 1),
)
def test_scores_are_in_range_and_in_order(
    entries: list[tuple[int, str, bool]], text: str, max_distance: float, weight: float
) -> None:
    """Whatever is in the partition: 0..1, finite, best first, each entry once."""
    shelf = Shelf()
    for number, (angle, words, has_vector) in enumerate(entries):
        shelf.add(f"t{number}", words, angle if has_vector else None)
    options = SearchOptions(words_weight=weight)
    hits = shelf.hits(text, limit=50, max_distance=max_distance, options=options)
    assert all(0 <= hit.score <= 1 for hit in hits)
    assert hits == sorted(hits, key=lambda hit: (-hit.score, hit.content_hash))
    assert len({hit.content_hash for hit in hits}) == len(hits)
    for hit in hits:
        assert hit.distance is not None or hit.lexical_score is not None
        assert hit.distance is None or hit.distance <= max_distance + 1e-9
    top = shelf.hits(text, limit=3, max_distance=max_distance, options=options)
    assert top == hits[:3]
