"""The words arm: what is found by which query, and what a query may be made of."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warmindex.event import Document
from warmindex.index.words import WordIndex


def index(*documents: str | tuple[str, str]) -> WordIndex:
    """An index of documents whose key is their name."""
    words = WordIndex()
    for document in documents:
        name, description = (document, "") if isinstance(document, str) else document
        words.put(name.encode(), Document(name, description))
    return words


def found(words: WordIndex, text: str, *keywords: str, limit: int = 100) -> list[str]:
    """The names that a query finds, best first."""
    hits = words.search(text, keywords, limit)
    assert all(math.isfinite(score) and score > 0 for _, score in hits)
    return [name.decode() for name, _ in hits]


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("fetch-url", "fetch-url"),
        ("fetch-url", "fetch url"),
        ("fetch-url", "fetchurl"),
        ("fetch-url", "FETCH_URL"),
        ("fetch-url", "fetchUrl"),
        ("create_pull_request", "pull"),
        ("create_pull_request", "createPullRequest"),
        ("createPullRequest", "create pull request"),
        ("createPullRequest", "pull-request"),
        ("XMLHttpRequest", "http"),
        ("azmcp.kusto/query", "kusto"),
        ("38.101", "38.101"),
        ("38.101", "101"),
        ("grammar::fa", "grammar::fa"),
        ("C++", "C++"),
        ("C#", "c#"),
        ("don't", "don't"),
        ("don't", "dont"),
        ("Größe", "grosse"),
        ("café", "CAFE"),
        ("naïve", "nai\u0308ve"),
        ("\uff21\uff30\uff29", "api"),
        ("issues", "issue"),
        ("listing", "list"),
        ("x", "X"),
        ("读取文件", "文件"),
        ("读取文件", "文"),
        ("读取文件内容", "读取文件"),
        ("ファイルを読む", "ファイル"),
        ("파일을", "파일"),
        ("อ่านไฟล์", "ไฟล์"),
        ("हिन्दी", "हिन्दी"),
        ("שלום", "שָׁלוֹם"),
        ("قراءة", "قِراءة"),
        ("API文件", "文件"),
        ("API文件", "api"),
        ("🚀 launch", "🚀"),
        ("who", "who"),
        ("AND gate", "AND"),
        ("MongoDB", "mongodb"),
        ("MongoDB", "mongo"),
    ],
)
def test_a_name_is_found_by(name: str, query: str) -> None:
    """Names are found by their parts, as one word, and however they are spelt."""
    assert found(index(name, "zebra", "quagga"), query) == [name]


@pytest.mark.parametrize(
    ("description", "query"),
    [
        ("Works with MongoDB", "mongodb"),
        ("Works with mongodb", "MongoDB"),
        ("a mongo db of sorts", "MongoDB"),
        ("pass the accountId", "account"),
        ("pass the account id", "accountId"),
        ("reads 文件 from disk", "文件"),
    ],
)
def test_a_description_is_found_by(description: str, query: str) -> None:
    """Descriptions too, wherever the query or they write a word in one or in two."""
    assert found(index(("a", description), ("b", "something else")), query) == ["a"]


def test_a_whole_name_comes_first() -> None:
    """Whoever types a name in full gets it before those that share its parts."""
    words = index("search_code", "search_issues", "code_search_all_the_things", "run_code")
    assert found(words, "search_code")[0] == "search_code"
    assert found(words, "searchCode")[0] == "search_code"


def test_rare_words_weigh_more_than_common_ones() -> None:
    """BM25: a word that few documents have says more."""
    words = index(*[(f"t{number}", "list all things") for number in range(9)], ("z", "list cats"))
    assert found(words, "list cats")[0] == "z"


def test_more_of_the_query_is_better() -> None:
    """A document with two of the words comes before one with either."""
    words = index(("a", "cats"), ("b", "dogs"), ("c", "cats dogs"))
    assert found(words, "cats dogs")[0] == "c"


def test_a_word_that_half_of_the_documents_have_still_finds_them() -> None:
    """No document that has the word scores 0, none that has not is found."""
    words = index(("a", "cats"), ("b", "cats"), ("c", "dogs"), ("d", "fish"))
    assert sorted(found(words, "cats")) == ["a", "b"]
    assert found(index(("a", "cats")), "cats") == ["a"]


def test_different_words_of_one_document_all_count() -> None:
    """Words are told apart even where they are found in the same document as often."""
    words = index(("a", "slow traces"), ("b", "slow"), ("c", "fish"))
    scores = dict(words.search("slow traces", (), 9))
    alone = dict(words.search("slow", (), 9))
    assert scores[b"a"] - scores[b"b"] > alone[b"a"] - alone[b"b"]


def test_forms_of_a_word_count_once() -> None:
    """Saying it three times in three forms is saying it once."""
    words = index(("a", "an issue"), ("b", "a pull request"), ("c", "dogs"), ("d", "cats"))
    [(_, once)] = words.search("issue", (), 9)
    [(_, thrice)] = words.search("issue issues issued", (), 9)
    assert thrice == pytest.approx(once)


@pytest.mark.parametrize(
    "typed", ["repositry", "reposiotry", "repositorry", "repozitory", "epository", "repositorx"]
)
def test_a_misspelt_word_finds_what_was_meant(typed: str) -> None:
    """One letter too many, too few, replaced or swapped; correctly spelt it weighs more."""
    words = index("fork_repository", "list_files", "send_mail")
    assert found(words, typed) == ["fork_repository"]
    [(_, guessed)] = words.search(typed, (), 9)
    [(_, known)] = words.search("repository", (), 9)
    assert guessed < known


def test_a_word_that_is_there_is_never_corrected() -> None:
    """A known word finds its own documents, however near another one is."""
    words = index(("a", "the reader"), ("b", "the header"), ("c", "the leader"))
    assert found(words, "header") == ["b"]


def test_a_removed_word_is_not_what_was_meant() -> None:
    """Corrections come from what is there now."""
    words = index(("a", "the header"), ("b", "the leader leader"))
    assert found(words, "heager") == ["a"]
    words.discard(b"a")
    assert found(words, "heager") == []


@pytest.mark.parametrize("typed", ["kube", "repo", "conf"])
def test_the_beginning_of_a_word_finds_it_where_nothing_else_is_found(typed: str) -> None:
    """Half a word is enough, as long as the query finds nothing without guessing."""
    words = index("kubectl_apply", "fork_repository", "view_configuration")
    assert len(found(words, typed)) == 1
    assert found(words, f"fork {typed}") == ["fork_repository"]


def test_keywords_and_text_both_count() -> None:
    """Each finds what the other does not, and what both ask for comes first."""
    words = index(("a", "cats"), ("b", "dogs"), ("c", "fish"))
    assert sorted(found(words, "cats", "dogs")) == ["a", "b"]
    assert found(words, "cats fish", "fish")[0] == "c"
    assert found(words, "", "dogs") == ["b"]


@pytest.mark.parametrize(
    "query",
    [
        "https: body",
        '"unbalanced',
        "*",
        "AND",
        "pull AND",
        "NOT pull",
        "(pull",
        "pull)",
        "pull^2",
        "name:pull",
        "{name}: pull",
        "-pull",
        "pull*",
        "NEAR(pull request, 2)",
        "pull + request",
        "' OR 1=1 --",
        "\\",
        "\x00",
        "\ud83d",
        "👩\u200d💻",
        "a" * 65536,
        "a " * 32768,
        "?",
        "%_",
        "\u202epull",
    ],
)
def test_no_query_is_syntax(query: str) -> None:
    """Whatever is typed, words are words: nothing raises, and what has a word is found."""
    words = index(("pull", "a request"), ("other", "and near or not"))
    assert ("pull" in found(words, query)) == ("pull" in query)


def test_nul_does_not_cut_the_query() -> None:
    """What stands behind a NUL counts."""
    assert found(index("pull", "request"), "pull\0request") == ["pull", "request"]


def test_a_column_cannot_be_named() -> None:
    """`description:pull` asks for two words, in every column."""
    words = index(("pull", ""), ("other", "description"), ("third", "nothing"))
    assert sorted(found(words, "description:pull")) == ["other", "pull"]


@pytest.mark.parametrize("query", ["", "   ", "the of a", "\n\t", "!?", "-- .. //"])
def test_a_query_without_content_finds_nothing_in_prose(query: str) -> None:
    """Stop words alone are looked for in names only."""
    assert found(index(("tool", "the best of a kind")), query) == []


def test_empty_documents_are_never_found() -> None:
    """A document without a word is in the index and matches nothing."""
    words = index(("", ""))
    assert len(words) == 1
    assert found(words, "anything") == []


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40), st.lists(st.text(max_size=10), max_size=3), st.text(max_size=40))
def test_any_text_is_a_query_and_a_document(
    text: str, keywords: list[str], description: str
) -> None:
    """Any Unicode text may be put and asked for; a tool is found by its own word."""
    words = index("zebra", ("other", description))
    assert all(score > 0 for _, score in words.search(text, keywords, 10))
    assert "zebra" in found(words, f"zebra {text}")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "discard", "search", "rest", "absorb"]),
            st.integers(0, 5),
            st.sampled_from(["cats", "dogs and cats", "fish", ""]),
        ),
        max_size=30,
    )
)
def test_changes_leave_nothing_behind(steps: list[tuple[str, int, str]]) -> None:
    """After any changes the index answers as one that was made of the same documents."""
    words = WordIndex()
    model: dict[bytes, Document] = {}
    for action, number, text in steps:
        name = b"%d" % number
        if action == "put":
            model[name] = Document("tool", text)
            words.put(name, model[name])
        elif action == "discard":
            model.pop(name, None)
            words.discard(name)
        elif action == "rest":
            words.rest()
        elif action == "absorb":
            words.absorb(1)
        else:
            words.search("cats dogs", (), 3)
        assert len(words) == len(model)
    fresh = WordIndex()
    for name, document in model.items():
        fresh.put(name, document)
    for query in ("cats", "dogs fish", "tool and"):
        assert words.search(query, (), 10) == fresh.search(query, (), 10)


def test_the_limit_and_the_order_hold() -> None:
    """At most `limit`, best first, ties by key."""
    words = index(*[(f"t{number}", "cats") for number in (5, 3, 9, 1)], ("z", "cats cats"))
    assert found(words, "cats", limit=3) == ["z", "t1", "t3"]


def test_an_allow_list_limits() -> None:
    """Only what is allowed is found; strangers in the list are ignored."""
    words = index(("a", "cats"), ("b", "cats"))
    assert words.search("cats", (), 9, [b"b", b"stranger"])[0][0] == b"b"
    assert words.search("cats", (), 9, []) == []


def test_a_partition_that_is_not_searched_has_no_engine() -> None:
    """Documents wait until somebody searches, and cost next to nothing until then."""
    words = index(*[f"tool_{number}" for number in range(100)])
    waiting = words.memory_bytes
    assert waiting < 10_000
    assert found(words, "tool_7") != []
    assert words.memory_bytes > waiting
    words.rest()
    assert words.memory_bytes <= 2 * waiting
    assert found(words, "tool_7")[0] == "tool_7"


def test_waiting_documents_can_be_taken_in_in_steps() -> None:
    """`absorb` says whether there is more to do."""
    words = index(*[f"tool_{number}" for number in range(10)])
    steps = 1
    while words.absorb(3):
        steps += 1
    assert steps == 4
    assert len(words) == 10


def test_a_very_long_query_is_bounded() -> None:
    """Of ten thousand distinct words a few dozen are looked for, and keywords always are."""
    words = index(("cat", "cats"), ("dog", "dogs"))
    text = " ".join(f"w{number}" for number in range(10_000))
    assert found(words, text, "cats") == ["cat"]
    assert found(words, "dogs dogs " + text) == ["dog"]


def test_common_words_of_a_large_partition_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What too many documents have is not scored, unless the query has nothing else."""
    monkeypatch.setattr("warmindex.index.tally.ROWS_MAX", 10)
    words = index(*[(f"t{number}", "list things") for number in range(20)], ("z", "list cats"))
    assert found(words, "list cats") == ["z"]
    assert len(found(words, "list")) == 21
