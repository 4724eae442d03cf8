"""What watchers are told of a record: one effect per partition and tier, and nothing else."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.history import (
    DEVICE,
    HOST,
    MODEL,
    OWN,
    A,
    B,
    C,
    D,
    History,
    cleared,
    embedded,
    evicted,
    rows,
)
from support.model import Effect
from support.questions import content, effects
from warmindex.event import Cause, Document, EventType, Tier
from warmindex.index import Outcome


def effect(
    event_type: EventType, *hashes: bytes, adapter: str = "", scheme: str = OWN, tier: Tier = DEVICE
) -> Effect:
    return Effect(event_type, scheme, adapter, tier, frozenset(hashes))


def held_variously() -> History:
    return History(
        embedded(A, B),
        embedded(B, C, tier=HOST),
        embedded(A, D, adapter_id="a"),
        embedded(A, replica_id="r2"),
    )


EVICTED, EMBEDDED = EventType.EVICTED, EventType.EMBEDDED
EFFECTS = [
    (embedded(A, B), []),
    (embedded(A, C, D), [effect(EMBEDDED, C, D)]),
    (embedded(A, tier=HOST), [effect(EMBEDDED, A, tier=HOST)]),
    (embedded(A, C, replica_id="r2"), [effect(EMBEDDED, C)]),
    (embedded(A, B, embeddings=rows([1], [2])), [effect(EMBEDDED, A, B)]),
    (embedded(A, B, documents=[Document(), Document("x")]), [effect(EMBEDDED, B)]),
    (evicted(A, B, C), [effect(EVICTED, A, B), effect(EVICTED, B, C, tier=HOST)]),
    (evicted(B, tier=HOST), [effect(EVICTED, B, tier=HOST)]),
    (
        evicted(A, B, C, D, adapter_scoped=False),
        [
            effect(EVICTED, A, B),
            effect(EVICTED, B, C, tier=HOST),
            effect(EVICTED, A, D, adapter="a"),
        ],
    ),
    (evicted(A, adapter_id="b"), []),
    (evicted(C, replica_id="r2"), []),
    (evicted(A, replica_id="nobody"), []),
    (cleared(), [Effect(EventType.ALL_CLEARED, "", "", Tier.UNSPECIFIED, frozenset())]),
    (cleared(replica_id="nobody"), []),
]


@pytest.mark.parametrize(("event", "expected"), EFFECTS)
def test_effects_are_one_per_partition_and_tier(event: object, expected: list[Effect]):
    """With exactly the keys that changed; none where nothing did, and one for a clear."""
    applied = held_variously().apply(event)
    assert effects(applied) == Counter(expected)
    assert applied.outcome is (Outcome.APPLIED if expected else Outcome.UNCHANGED)


@pytest.mark.parametrize(("event", "expected"), EFFECTS)
def test_an_effect_as_an_event_says_all_that_happened(event: object, expected: list[Effect]):
    """It has no number, names its scheme and tier, and does on a copy what the event did."""
    history, copy = held_variously(), held_variously()
    for change in history.apply(event).changes:
        told = change.as_event()
        assert (told.epoch, told.sequence) == (0, 0)
        assert (told.replica_id, told.tenant_id, told.model_id) == (event.replica_id, "", MODEL)
        if told.type is not EventType.ALL_CLEARED:
            assert told.hash_scheme == OWN
            assert told.tier is not Tier.UNSPECIFIED
            assert told.adapter_scoped is (told.type is EVICTED)
        copy.apply(told)
    assert content(copy.index) == content(history.index)


def test_an_effect_carries_the_vectors_and_documents_of_what_changed():
    """Rows and documents go with their keys, and cause, time and token count with them all."""
    history = History(embedded(B, embeddings=rows([2]), documents=[Document("b")], token_count=3))
    applied = history.apply(
        embedded(
            A,
            B,
            C,
            embeddings=rows([1], [2], [3]),
            documents=[Document("a"), Document("b"), Document("c")],
            token_count=3,
            timestamp_us=99,
            epoch=4,
            sequence=1,
            cause=Cause.REPORT,
        )
    )
    (change,) = applied.changes
    told = change.as_event()
    assert list(told.content_hashes) == [A, C]
    assert told.embeddings is not None
    assert told.embeddings.tolist() == [[1], [3]]
    assert [document.name for document in told.documents] == ["a", "c"]
    assert (told.token_count, told.timestamp_us, told.cause) == (3, 99, Cause.REPORT)
    assert (told.epoch, told.sequence) == (0, 0)


def test_a_vector_replaced_by_other_bytes_is_counted():
    """It is the sign of a backend that is not what it says; 0.0 and -0.0 are not the same."""
    history = History(embedded(A, B, embeddings=rows([1, 0], [3, 4])))
    event = embedded(A, B, C, D, embeddings=rows([1, -0.0], [3, 4], [5, 6], [7, 8]))
    applied = history.apply(event)
    assert applied.vectors_replaced == 1
    assert effects(applied) == Counter([effect(EventType.EMBEDDED, A, C, D)])
    assert np.signbit(history.vector(A)[1])
    assert history.apply(event).vectors_replaced == 0


def test_a_new_token_count_is_a_change():
    """Only for the keys whose count it changes, and once."""
    history = History(embedded(A, B, token_count=16), embedded(B, token_count=7))
    event = embedded(A, B, C, token_count=7)
    assert effects(history.apply(event)) == Counter([effect(EventType.EMBEDDED, A, C)])
    assert history.apply(event).outcome is Outcome.UNCHANGED
