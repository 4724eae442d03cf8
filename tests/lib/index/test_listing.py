"""What operators ask: lists in order, page by page, and what they say of each thing."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.history import (
    DEVICE,
    HOST,
    KEY,
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
from warmindex.event import Document, PartitionKey
from warmindex.index import listing
from warmindex.index.listing import EntryInfo, ReplicaInfo

ALL = 1000


def a_small_world() -> History:
    """Partitions whose names sort differently from how they came."""
    return History(
        embedded(A, B, adapter_id="b", embeddings=rows([1, 2], [3, 4])),
        embedded(A, adapter_id="b", replica_id="r2", tier=HOST, documents=[Document("query")]),
        embedded(A, C, hash_scheme="a-scheme"),
        embedded(A, model_id="a-model", replica_id="r0", epoch=7, sequence=3),
        embedded(A, adapter_id="B"),
        embedded(A, adapter_id=""),
        embedded(A, adapter_id="ä"),
        embedded(A, tenant_id="blue", replica_id="r9"),
    )


KEYS = [
    PartitionKey("", "a-model", OWN, ""),
    PartitionKey("", "m", "a-scheme", ""),
    PartitionKey("", "m", OWN, ""),
    PartitionKey("", "m", OWN, "B"),
    PartitionKey("", "m", OWN, "b"),
    PartitionKey("", "m", OWN, "ä"),
]


def test_partitions_are_in_key_order():
    """Of one tenant, by model, scheme and adapter."""
    index = a_small_world().index
    assert [info.key for info in listing.partitions(index, "", "", None, ALL)] == KEYS
    assert [info.key for info in listing.partitions(index, "", "a-model", None, ALL)] == KEYS[:1]
    assert [info.key for info in listing.partitions(index, "", "m", None, ALL)] == KEYS[1:]
    assert listing.partitions(index, "", "nothing", None, ALL) == []
    (blue,) = listing.partitions(index, "blue", "", None, ALL)
    assert blue.key == PartitionKey("blue", "m", OWN, "")


@pytest.mark.parametrize("size", range(1, 8))
def test_pages_together_are_the_list(size: int):
    """Each begins behind the last place of the one before, whatever the size."""
    index = a_small_world().index
    found, after = [], None
    while page := listing.partitions(index, "", "", after, size):
        assert len(page) <= size
        found += [info.key for info in page]
        after = found[-1]
    assert found == KEYS

    found, place = [], None
    while page := listing.replicas(index, "", place, size):
        found += [(info.replica_id, info.model_id) for info in page]
        place = found[-1]
    assert found == [("r0", "a-model"), ("r1", "m"), ("r2", "m")]

    found, after = [], None
    while page := listing.entries(index, "", A, after, size):
        found += [info.key for info in page]
        after = found[-1]
    assert found == KEYS


@pytest.mark.parametrize("gone", KEYS)
def test_a_page_goes_on_where_its_last_place_has_gone(gone: PartitionKey):
    """A token is a place, and nothing need be there any more."""
    history = a_small_world()
    for replica in ("r0", "r1", "r2"):
        fields = {"model_id": gone.model_id, "hash_scheme": gone.hash_scheme}
        history.apply(evicted(A, B, C, replica_id=replica, adapter_id=gone.adapter_id, **fields))
    rest = [info.key for info in listing.partitions(history.index, "", "", gone, ALL)]
    assert rest == KEYS[KEYS.index(gone) + 1 :]


def test_a_partition_says_what_it_has():
    """Entries, vectors and their width, distinct replicas, and what it occupies."""
    index = a_small_world().index
    found = {info.key.adapter_id: info for info in listing.partitions(index, "", "m", None, ALL)}
    assert found["b"][1:5] == (2, 2, 2, 2)
    assert found["B"][1:5] == (1, 0, 0, 1)
    assert found["b"].memory_bytes > 0


def test_a_replica_in_several_tiers_is_one():
    """Replicas are counted, not holds."""
    history = History(embedded(A), embedded(A, tier=HOST), embedded(B, tier=HOST))
    (info,) = listing.partitions(history.index, "", "", None, ALL)
    assert (info.entries, info.replicas) == (2, 1)
    assert listing.replicas(history.index, "", None, ALL) == [
        ReplicaInfo("r1", "m", 3, 0, 0, False)
    ]


def test_memory_grows_with_what_is_in_it():
    """Entries, vectors, documents and longer hashes all count, and are gone when they go."""

    def bytes_of(*events: object) -> int:
        return sum(
            i.memory_bytes for i in listing.partitions(History(*events).index, "", "", None, ALL)
        )

    keys = [number.to_bytes(8, "big") for number in range(500)]
    sizes = [
        bytes_of(embedded(*keys[:10])),
        bytes_of(embedded(*keys)),
        bytes_of(embedded(*(key * 8 for key in keys))),
        bytes_of(embedded(*(key * 8 for key in keys), embeddings=rows(*[[1.0] * 100] * 500))),
        bytes_of(
            embedded(
                *(key * 8 for key in keys),
                embeddings=rows(*[[1.0] * 100] * 500),
                documents=[Document("x" * 1000)] * 500,
            )
        ),
    ]
    assert all(more > less for less, more in pairwise(sizes))
    assert bytes_of(embedded(*keys), evicted(*keys)) == 0


def test_a_replica_says_its_numbers():
    """The last ones heard, and whether a gap is open; per model."""
    history = a_small_world()
    assert listing.replicas(history.index, "", None, 1) == [
        ReplicaInfo("r0", "a-model", 1, 7, 3, True)
    ]
    history.apply(cleared(replica_id="r0", model_id="a-model", epoch=7, sequence=4))
    assert [info.replica_id for info in listing.replicas(history.index, "", None, ALL)] == [
        "r1",
        "r2",
    ]


def test_an_entry_says_who_holds_it_and_what_it_has():
    """Holds by name and tier, its document, and its own vector's width."""
    history = a_small_world()
    history.apply(embedded(A, adapter_id="b", tier=HOST))
    (found,) = [i for i in listing.entries(history.index, "", A, None, ALL) if i.key == KEYS[4]]
    holds = [("r1", DEVICE), ("r1", HOST), ("r2", HOST)]
    assert found == EntryInfo(KEYS[4], holds, Document("query"), 2)
    (found,) = listing.entries(history.index, "", C, None, ALL)
    assert found == EntryInfo(KEYS[1], [("r1", DEVICE)], None, 0)
    assert listing.entries(history.index, "", b"nothing", None, ALL) == []


def test_an_entry_without_a_vector_has_no_width():
    """Also where its neighbours in the partition have vectors."""
    history = History(embedded(A, embeddings=rows([1, 2])), embedded(B))
    (found,) = listing.entries(history.index, "", B, None, ALL)
    assert found.dimensions == 0


@pytest.mark.parametrize("steps", [0, 1, 2, 1000])
def test_what_is_retired_is_in_no_list(steps: int):
    """At once after a clear, and at every step of reclaiming it."""
    history = a_small_world()
    history.apply(cleared())
    for _ in range(steps):
        history.index.reclaim_step()
    index = history.index
    infos = listing.partitions(index, "", "", None, ALL)
    assert [(info.key, *info[1:5]) for info in infos] == [
        (KEYS[0], 1, 0, 0, 1),
        (KEYS[4], 1, 1, 2, 1),
    ]
    assert [info.replica_id for info in listing.replicas(index, "", None, ALL)] == ["r0", "r2"]
    assert [info.key for info in listing.entries(index, "", A, None, ALL)] == [KEYS[0], KEYS[4]]
    assert listing.entries(index, "", B, None, ALL) == []
    assert (listing.entries_total(index), listing.entries_total(index, "")) == (3, 2)


def test_entries_are_counted_in_one_tenant_or_in_all():
    """A key in two partitions is two entries."""
    index = a_small_world().index
    assert listing.entries_total(index) == 9
    assert listing.entries_total(index, "") == 8
    assert listing.entries_total(index, "blue") == 1
    assert listing.entries_total(index, "nobody") == 0


def test_a_tenant_that_holds_nothing_has_no_models():
    """A producer's number alone makes no list longer."""
    history = History(evicted(A, epoch=1, sequence=1))
    assert list(history.index.models_of("")) == []
    assert listing.partitions(history.index, "", "", None, ALL) == []
    assert listing.replicas(history.index, "", None, ALL) == []
    assert KEY.tenant_id == ""
