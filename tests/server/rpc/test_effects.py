"""Effects as responses: what is encoded once, what is cut, which part has the cursor."""

from __future__ import annotations

import numpy as np
from warmindex import limits
from warmindex.event import CacheEvent, Document, EventType
from warmindex.index import Index
from warmindex.index.selection import Selection
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.rpc.cursors import CursorScope
from warmindex_server.rpc.effects import CACHED_CHANGES_MAX, Encoder
from warmindex_server.watch import Effects

ALL = Selection()
SCOPE = CursorScope("history", ALL)


def effects_of(*events: CacheEvent) -> Effects:
    """What the last of some events did."""
    index = Index()
    for event in events:
        applied = index.apply(index.revision + 1, event)
    return Effects(applied.revision, applied.changes, 0)


def embedded(*numbers: int, **fields: object) -> CacheEvent:
    return CacheEvent(
        **{
            "type": EventType.EMBEDDED,
            "replica_id": "r",
            "model_id": "m",
            "hash_scheme": "own",
            "content_hashes": [number.to_bytes(8, "big") for number in numbers],
            **fields,
        }
    )


def decoded(
    encoder: Encoder, effects: Effects, selection: Selection = ALL
) -> list[pb.WatchEventsResponse]:
    scope = CursorScope("history", selection)
    raw = encoder.responses(scope, selection, effects)
    return [pb.WatchEventsResponse.FromString(each) for each in raw]


def test_an_effect_is_encoded_once_for_two_watchers_and_again_for_one():
    """What only one watcher reads is not kept."""
    encoder = Encoder()
    effects = effects_of(embedded(1))
    with encoder.shared(SCOPE):
        decoded(encoder, effects)
        assert decoded(encoder, effects) == decoded(encoder, effects)
        assert encoder.encoded == 3
        with encoder.shared(SCOPE):
            decoded(encoder, effects)
            decoded(encoder, effects)
            assert encoder.encoded == 4
    assert not encoder._watchers


def test_what_is_kept_of_encodings_is_bounded():
    """The oldest go first."""
    encoder = Encoder(cache_bytes=2_000)
    with encoder.shared(SCOPE), encoder.shared(SCOPE):
        for number in range(100):
            effects = effects_of(embedded(number))._replace(revision=number + 1)
            decoded(encoder, effects)
        assert 0 < len(encoder._cache) < 40
        assert encoder._size_bytes == sum(
            len(response) for responses in encoder._cache.values() for response in responses
        )
        assert (SCOPE, 100) in encoder._cache
        assert (SCOPE, 1) not in encoder._cache


def test_an_effect_on_many_partitions_is_encoded_as_it_is_sent():
    """The last response alone has the cursor; those of other adapters are left out."""
    count = CACHED_CHANGES_MAX + 3
    events = [embedded(1, adapter_id=f"a{number}") for number in range(count)]
    sweep = embedded(1, type=EventType.EVICTED)
    effects = effects_of(*events, sweep)
    encoder = Encoder()
    with encoder.shared(SCOPE), encoder.shared(SCOPE):
        told = decoded(encoder, effects)
        assert not encoder._cache
    assert [bool(each.cursor) for each in told] == [*[False] * (count - 1), True]
    assert {each.event.adapter_id for each in told} == {f"a{number}" for number in range(count)}
    some = Selection(adapter_ids=frozenset(["a1", "a2", "no"]))
    told = decoded(encoder, effects, some)
    assert [each.event.adapter_id for each in told] == ["a1", "a2"]
    assert [bool(each.cursor) for each in told] == [False, True]
    assert decoded(encoder, effects, Selection(adapter_ids=frozenset(["no"]))) == []


def test_only_what_changed_of_an_event_is_told_with_its_rows_and_texts():
    """The rows and documents of the hashes that are named, in their order."""
    first = embedded(1, 3, embeddings=np.array([[1, 1], [3, 3]], np.float32))
    matrix = np.array([[1, 1], [2, 2], [3, 4]], np.float32)
    texts = [Document(), Document("two"), Document()]
    effects = effects_of(first, embedded(1, 2, 3, embeddings=matrix, documents=texts))
    (told,) = decoded(Encoder(), effects)
    assert [int.from_bytes(each, "big") for each in told.event.content_hashes] == [2, 3]
    rows = np.frombuffer(told.event.embeddings.values, np.float32).reshape(2, 2)
    assert rows.tolist() == [[2, 2], [3, 4]]
    assert [each.name for each in told.event.documents] == ["two", ""]


def test_an_effect_over_an_events_limit_is_cut_in_parts_that_are_within():
    """By halves, whatever makes it large; a part has the rows and texts of its own hashes."""
    count = 300
    texts = [Document(str(number), "x" * 30_000) for number in range(count)]
    effects = effects_of(embedded(*range(count), documents=texts))
    told = decoded(Encoder(), effects)
    assert len(told) > 1
    assert all(each.event.ByteSize() <= limits.EVENT_BYTES_MAX for each in told)
    assert [bool(each.cursor) for each in told] == [*[False] * (len(told) - 1), True]
    numbers = [int.from_bytes(h, "big") for each in told for h in each.event.content_hashes]
    assert numbers == list(range(count))
    assert [document.name for each in told for document in each.event.documents] == list(
        map(str, range(count))
    )
