"""The rules of the index, as tables and short histories."""

from __future__ import annotations

import pytest
from support.history import (
    DEVICE,
    HOST,
    KEY,
    MODEL,
    OWN,
    A,
    B,
    C,
    History,
    cleared,
    embedded,
    evicted,
    rows,
)
from support.model import Hold, Place
from support.questions import content
from warmindex.errors import Reason
from warmindex.event import Document, PartitionKey, Tier
from warmindex.index import Outcome

ADAPTERS = ("", "a", "b")
TEXT = "text-sha256"
K = bytes(range(32))


def three_partitions(**fields: object) -> History:
    """One key, held by two replicas under "", "a" and "b"."""
    return History(
        *(
            embedded(K, replica_id=replica, adapter_id=adapter, **fields)
            for adapter in ADAPTERS
            for replica in ("r1", "r2")
        )
    )


# ---- 1: EMBEDDED ---------------------------------------------------------------------------


@pytest.mark.parametrize("adapter", ["sql-lora", "SQL-lora", "sql-lora ", ""])
@pytest.mark.parametrize("scoped", [False, True])
def test_embedded_adds_to_exactly_one_partition(adapter: str, scoped: bool):
    """An adapter's name is opaque, and `adapter_scoped` means nothing on EMBEDDED."""
    history = History(embedded(A, adapter_id=adapter, adapter_scoped=scoped))
    assert set(content(history.index)) == {Place(KEY._replace(adapter_id=adapter), A)}


def test_embedded_without_a_tier_is_on_the_device():
    """An unspecified tier on EMBEDDED is DEVICE."""
    assert History(embedded(A)).holds(A) == {Hold("r1", DEVICE)}


def test_a_vector_or_document_replaces_an_earlier_one_and_none_leaves_it():
    """What an event does not carry stays; an empty document is none."""
    first, second = Document("query", "ask"), Document("mail", "send")
    history = History(
        embedded(A, B, embeddings=rows([1, 2], [3, 4]), documents=[first, first], token_count=7),
        embedded(A, B),
        embedded(A, B, embeddings=rows([5, 6], [3, 4]), documents=[second, Document()]),
    )
    assert history.vector(A) == [5, 6]
    assert history.vector(B) == [3, 4]
    assert (history.found("mail"), history.found("query")) == ([A], [B])
    assert {entry[3] for entry in content(history.index).values()} == {7}


def test_of_the_same_key_twice_the_last_one_counts():
    """With its vector and its document, and in a position of its own."""
    documents = [Document("one"), Document("two"), Document("three")]
    history = History(embedded(A, B, A, embeddings=rows([1], [2], [3]), documents=documents))
    assert (history.vector(A), history.vector(B)) == ([3], [2])
    assert (history.found("one"), history.found("three")) == ([], [A])


def test_an_event_that_changes_nothing_is_unchanged():
    """Refreshing what is there is no change, and nobody is told of it."""
    event = embedded(A, B, embeddings=rows([1, 2], [3, 4]), documents=[Document("x")] * 2)
    history = History(event)
    again = history.apply(event)
    assert (again.outcome, again.holds_added, list(again.changes)) == (Outcome.UNCHANGED, 0, [])
    assert again.revision == history.index.revision == 2


# ---- 2: EVICTED ----------------------------------------------------------------------------

# adapter_id, adapter_scoped, hash_scheme -> the partitions in which the key survives.
REACH = [
    ("", False, TEXT, set()),
    ("", True, TEXT, {"a", "b"}),
    ("a", False, TEXT, {"", "b"}),
    ("a", True, TEXT, {"", "b"}),
    ("zzz", True, TEXT, {"", "a", "b"}),
    ("zzz", False, TEXT, {"", "a", "b"}),
    ("", False, "", set()),
    ("", True, "", {"a", "b"}),
    ("a", False, "", {"", "b"}),
    ("a", True, "", {"", "b"}),
    ("", False, OWN, {"", "a", "b"}),
]


@pytest.mark.parametrize(("adapter", "scoped", "scheme", "survives"), REACH)
def test_evicted_reaches_what_the_removal_table_says(
    adapter: str, scoped: bool, scheme: str, survives: set[str]
):
    """In its own scheme; the holds of others stay, and nothing to remove is no error."""
    history = three_partitions(hash_scheme=TEXT)
    event = evicted(K, adapter_id=adapter, adapter_scoped=scoped, hash_scheme=scheme)
    applied = history.apply(event)
    assert applied.holds_removed == 3 - len(survives)
    assert applied.outcome is (Outcome.APPLIED if applied.holds_removed else Outcome.UNCHANGED)
    key = KEY._replace(hash_scheme=TEXT)
    for name in ADAPTERS:
        expected = {Hold("r2", DEVICE)} | ({Hold("r1", DEVICE)} if name in survives else set())
        assert history.holds(K, key._replace(adapter_id=name)) == expected
    history.apply(evicted(K, **fields_of(event), replica_id="r2"))
    assert history.adapters(K, key) == survives


def fields_of(event: object) -> dict[str, object]:
    names = ("adapter_id", "adapter_scoped", "hash_scheme")
    return {name: getattr(event, name) for name in names}


@pytest.mark.parametrize(
    ("adapter", "scoped", "left"),
    [
        ("", False, set()),
        ("", True, {(OWN, ""), (OWN, "a"), (TEXT, "a")}),
        ("a", False, {(OWN, ""), (TEXT, "")}),
        ("a", True, {(OWN, ""), (OWN, "a"), (TEXT, "")}),
    ],
)
def test_without_a_scheme_and_the_flag_every_scheme_is_meant(
    adapter: str, scoped: bool, left: set[tuple[str, str]]
):
    """A producer older than schemes reaches into all; with the flag empty is text-sha256."""
    history = History(
        *(
            embedded(K, hash_scheme=scheme, adapter_id=name)
            for scheme in (OWN, TEXT)
            for name in ("", "a")
        ),
        evicted(K, adapter_id=adapter, adapter_scoped=scoped, hash_scheme=""),
    )
    assert {place.key[2:] for place in content(history.index)} == left


@pytest.mark.parametrize(
    ("tier", "left"),
    [
        (Tier.DEVICE, {HOST}),
        (Tier.HOST, {DEVICE}),
        (Tier.REMOTE, {DEVICE, HOST}),
        (Tier.UNSPECIFIED, set()),
    ],
)
def test_evicted_takes_one_tier_or_all(tier: Tier, left: set[Tier]):
    """A removal from the device leaves the copy on the host; without a tier all go."""
    history = History(embedded(A, tier=DEVICE), embedded(A, tier=HOST), evicted(A, tier=tier))
    assert {hold.tier for hold in history.holds(A)} == left


def test_evicting_the_base_block_leaves_the_adapters_alone():
    """Watchers are told of one change, in the base model's partition."""
    history = History(embedded(A), embedded(A, adapter_id="sql-lora"))
    applied = history.apply(evicted(A, adapter_id="", adapter_scoped=True))
    assert history.adapters(A) == {"sql-lora"}
    assert [(change.adapter_id, change.hash_scheme) for change in applied.changes] == [("", OWN)]


# ---- 3: ALL_CLEARED ------------------------------------------------------------------------


def test_a_clear_takes_all_of_one_replica_in_one_model():
    """Every adapter, scheme and tier; other replicas, ranks, models and tenants keep theirs."""
    others = [
        {"replica_id": "r1/dp1"},
        {"replica_id": "r2"},
        {"model_id": "other"},
        {"tenant_id": "blue"},
    ]
    history = History(
        *(
            embedded(K, A, adapter_id=adapter, tier=tier)
            for adapter in ADAPTERS
            for tier in (DEVICE, HOST)
        ),
        embedded(K, hash_scheme=TEXT),
        *(embedded(K, **other) for other in others),
    )
    applied = history.apply(cleared(adapter_id="a", adapter_scoped=True, hash_scheme=TEXT))
    assert applied.holds_removed == 13
    left = [
        (place.key.tenant_id, place.key.model_id, hold.replica_id)
        for place, (holds, *_) in content(history.index).items()
        for hold in holds
    ]
    assert sorted(left) == [
        ("", "m", "r1/dp1"),
        ("", "m", "r2"),
        ("", "other", "r1"),
        ("blue", "m", "r1"),
    ]


def test_the_same_clear_again_changes_nothing():
    """Repeats of an empty holder's clear are no effects, and leave nothing to reclaim."""
    history = History(embedded(A), cleared())
    history.reclaim()
    for _ in range(1000):
        applied = history.apply(cleared())
        assert (applied.outcome, list(applied.changes)) == (Outcome.UNCHANGED, [])
    assert not history.index.reclaimable


# ---- 4: the last hold ----------------------------------------------------------------------


@pytest.mark.parametrize("removal", [evicted(A), cleared()])
def test_an_entry_lives_until_its_last_hold_is_gone(removal: object):
    """Then its vector and document go too, and a later hold does not bring them back."""
    full = {"embeddings": rows([1, 2]), "documents": [Document("query")], "token_count": 7}
    history = History(embedded(A, **full), embedded(A, replica_id="r2"), removal)
    assert history.vector(A) == [1, 2]
    history.apply(evicted(A, replica_id="r2"))
    assert content(history.index) == {}
    assert (history.vector(A), history.found("query")) == (None, [])
    history.apply(embedded(A, replica_id="r3"))
    assert (history.vector(A), history.found("query")) == (None, [])
    assert content(history.index) == {
        Place(KEY, A): (frozenset({Hold("r3", DEVICE)}), None, None, 0)
    }


@pytest.mark.parametrize("reclaimed", [False, True])
def test_what_is_retired_is_never_seen(reclaimed: bool):
    """A key embedded again after a clear has none of what it had, reclaimed or not."""
    full = {"embeddings": rows([1, 2]), "documents": [Document("query")], "token_count": 7}
    history = History(
        embedded(A, **full),
        embedded(B, token_count=9),
        embedded(C, replica_id="r2", token_count=5),
        cleared(),
    )
    if reclaimed:
        history.reclaim()
    applied = history.apply(embedded(A, B))
    assert applied.holds_added == 2
    assert (history.vector(A), history.found("query")) == (None, [])
    counts = {place.content_hash: entry[3] for place, entry in content(history.index).items()}
    assert counts == {A: 0, B: 0, C: 5}


# ---- 5: partitions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [{"tenant_id": "blue"}, {"model_id": "other"}, {"hash_scheme": "own2"}, {"adapter_id": "a"}],
)
def test_nothing_crosses_a_partition(other: dict[str, str]):
    """A key has its own vector, document and holds in each partition, or none."""
    elsewhere = KEY._replace(**other)
    history = History(embedded(A, embeddings=rows([1, 2]), documents=[Document("query")]))
    assert (history.vector(A, elsewhere), history.found("query", elsewhere)) == (None, [])
    history.apply(embedded(A, embeddings=rows([3, 4, 5]), documents=[Document("mail")], **other))
    assert (history.vector(A), history.vector(A, elsewhere)) == ([1, 2], [3, 4, 5])
    assert (history.found("mail"), history.found("mail", elsewhere)) == ([], [A])
    history.apply(evicted(A))
    assert (history.vector(A), history.vector(A, elsewhere)) == (None, [3, 4, 5])


# ---- the width of vectors ------------------------------------------------------------------


def test_a_partition_has_vectors_of_one_width():
    """An event of another width changes nothing at all, and says which width there is."""
    history = History(embedded(A, embeddings=rows([1, 2])))
    before = content(history.index)
    refused = history.apply(
        embedded(A, B, embeddings=rows([1, 2, 3], [4, 5, 6]), documents=[Document("x")] * 2)
    )
    assert (refused.outcome, refused.reason) == (Outcome.REFUSED, Reason.DIMENSIONS_MISMATCH)
    assert "is 3" in refused.error
    assert "have 2" in refused.error
    assert list(refused.changes) == []
    assert content(history.index) == before
    assert history.apply(embedded(A, B)).outcome is Outcome.APPLIED


@pytest.mark.parametrize(
    "removal", [evicted(A, B), evicted(A), cleared()], ids=["all gone", "its vectors gone", "clear"]
)
def test_another_width_is_taken_once_no_vector_is_left(removal: object):
    """At once, before anything is reclaimed; that is no replacement of vectors."""
    history = History(
        embedded(A, embeddings=rows([1, 2])), embedded(B), embedded(C, replica_id="r2"), removal
    )
    applied = history.apply(embedded(A, embeddings=rows([1, 2, 3])))
    assert (applied.outcome, applied.vectors_replaced) == (Outcome.APPLIED, 0)
    assert history.vector(A) == [1, 2, 3]
    history.reclaim()
    assert history.vector(A) == [1, 2, 3]
    assert history.holds(C) == {Hold("r2", DEVICE)}


# ---- token counts --------------------------------------------------------------------------


def test_a_token_count_of_zero_says_nothing():
    """It leaves what an entry has, and is a new entry's where nothing is known of it."""
    history = History(embedded(A, token_count=16), embedded(A, B), embedded(A, C, token_count=16))
    counts = {place.content_hash: entry[3] for place, entry in content(history.index).items()}
    assert counts == {A: 16, B: 0, C: 16}


def test_applying_never_raises_on_what_is_not_there():
    """Removals in a world where nobody ever held anything change nothing, and leave nothing."""
    history = History()
    for event in (evicted(A), evicted(A, adapter_scoped=False, hash_scheme=""), cleared()):
        assert history.apply(event).outcome is Outcome.UNCHANGED
    assert not history.index.models
    assert history.index.partition(PartitionKey("", MODEL, OWN, "")) is None
