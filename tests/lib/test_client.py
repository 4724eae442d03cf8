"""IndexClient: typed questions and answers against a real server."""

from __future__ import annotations

import numpy as np
import pytest
from support.messages import MODEL, key
from warmindex import __version__
from warmindex.answers import KeyState
from warmindex.client import IndexClient
from warmindex.errors import FencedError, InvalidError, Reason
from warmindex.event import CacheEvent, Document, EventType, PartitionKey
from warmindex.index import Outcome

HERE = PartitionKey("", MODEL, "text-sha256", "")
NOWHERE = PartitionKey("", "nobody's", "text-sha256", "")
HALF = "\ud83d"


def embedded(*numbers: int, **fields: object) -> CacheEvent:
    """An EMBEDDED of some keys."""
    return CacheEvent(
        **{
            "type": EventType.EMBEDDED,
            "replica_id": "pod-1",
            "model_id": MODEL,
            "content_hashes": [key(number) for number in numbers],
            **fields,
        }
    )


def rows(count: int, dimensions: int) -> np.ndarray:
    return np.arange(1, count * dimensions + 1, dtype=np.float32).reshape(count, dimensions)


# ---- publishing --------------------------------------------------------------------------


async def test_a_published_event_is_told_of(server):
    """Outcome, revision, holds and history."""
    result = await server.client.publish(embedded(1, 2))
    assert result.outcome is Outcome.APPLIED
    assert result.holds_changed == 2
    assert result.revision == server.store.revision
    assert result.history_id == server.store.history_id
    assert (result.error, result.reason, result.current_epoch) == ("", Reason.UNSPECIFIED, 0)
    again = await server.client.publish(embedded(1, 2))
    assert (again.outcome, again.holds_changed) == (Outcome.UNCHANGED, 0)


async def test_a_refused_event_is_an_error(server):
    """With the reason, the field and the words of the server."""
    await server.client.publish(embedded(1, embeddings=rows(1, 2)))
    with pytest.raises(InvalidError, match="have 2") as error:
        await server.client.publish(embedded(2, embeddings=rows(1, 3)))
    assert error.value.reason is Reason.DIMENSIONS_MISMATCH
    assert error.value.field == "event.embeddings.dimensions"


async def test_an_old_life_is_told_the_new_one(server):
    """A fenced event is an answer, not an error: the producer decides."""
    await server.client.publish(embedded(1, epoch=9, sequence=1))
    result = await server.client.publish(embedded(2, epoch=8, sequence=1))
    assert (result.outcome, result.current_epoch) == (Outcome.FENCED, 9)
    assert result.reason is Reason.EPOCH_FENCED


async def test_many_events_have_many_results(server):
    """One each, in order, over as many messages as it takes; a bad one in its place."""
    wide = embedded(*range(700), embeddings=rows(700, 1024))
    bad = embedded(9999, embeddings=rows(1, 3))
    small = [embedded(10_000 + number) for number in range(2000)]
    results = await server.client.publish_all([wide, bad, *small])
    assert [result.outcome for result in results] == [
        Outcome.APPLIED,
        Outcome.REFUSED,
        *[Outcome.APPLIED] * 2000,
    ]
    assert results[1].reason is Reason.DIMENSIONS_MISMATCH
    revisions = [result.revision for result in results]
    assert revisions == sorted(revisions)


async def test_no_events_are_no_results(server):
    """And no call."""
    assert await server.client.publish_all([]) == []


async def test_an_event_that_no_message_holds_is_invalid(server):
    """Over 16 MiB gRPC itself says no; the client says what to do."""
    huge = embedded(*range(4096), embeddings=rows(4096, 1100))
    for publish in (server.client.publish(huge), server.client.publish_all([huge])):
        with pytest.raises(InvalidError):
            await publish
    assert (await server.client.server_info()).entries == 0


async def test_a_report_replaces_what_a_replica_holds(server):
    """What it does not list goes, what it lists more of comes."""
    await server.client.publish(embedded(1, 2))
    result = await server.client.report_state("pod-1", MODEL, [embedded(2, 3)])
    assert (result.holds_added, result.holds_removed) == (1, 1)
    assert result.revision == server.store.revision
    await server.client.publish(embedded(2, epoch=5, sequence=1))
    with pytest.raises(FencedError):
        await server.client.report_state("pod-1", MODEL, [embedded(2)], epoch=4)


# ---- reading -----------------------------------------------------------------------------


async def test_vectors_are_a_matrix(server):
    """One row per FOUND key, in the order asked for; the state of each key."""
    await server.client.publish(embedded(1, 2, embeddings=rows(2, 3)))
    found = await server.client.get_embeddings(HERE, [key(2), key(7), key(1)])
    assert found.states == [KeyState.FOUND, KeyState.ABSENT, KeyState.FOUND]
    assert found.vectors.tolist() == [[4, 5, 6], [1, 2, 3]]
    assert found.vectors.dtype == np.float32
    assert found.history_id == server.store.history_id


async def test_no_vectors_are_an_empty_matrix(server):
    """Of no rows, whatever was asked."""
    for hashes in ([], [key(1)]):
        found = await server.client.get_embeddings(NOWHERE, hashes)
        assert found.vectors.shape == (0, 0)
        assert found.states == [KeyState.ABSENT] * len(hashes)


async def test_an_answer_that_is_full_says_so(server):
    """The rest is DEFERRED, and can be asked for again; a larger answer can be asked for."""
    await server.client.publish(embedded(1, 2, 3, embeddings=rows(3, 2)))
    keys = [key(1), key(2), key(3)]
    some = await server.client.get_embeddings(HERE, keys, max_bytes=16)
    assert some.states == [KeyState.FOUND, KeyState.FOUND, KeyState.DEFERRED]
    rest = await server.client.get_embeddings(HERE, keys[2:])
    assert np.concatenate([some.vectors, rest.vectors]).tolist() == rows(3, 2).tolist()


def test_a_state_of_a_newer_server_is_absent():
    """Without a claim: compute it yourself."""
    assert KeyState.of(77) is KeyState.ABSENT
    assert [KeyState.of(int(state)) for state in KeyState] == list(KeyState)


async def test_a_search_has_typed_hits(server):
    """Scores of the arm that did not rank a hit are None."""
    documents = [Document("open_issue", "file a bug"), Document("send_mail", "write a letter")]
    await server.client.publish(embedded(1, 2, embeddings=rows(2, 2), documents=documents))
    by_words = await server.client.search(HERE, text="bug", keywords=["letter"])
    assert {hit.document for hit in by_words} == set(documents)
    assert all(hit.distance is None and hit.lexical_score for hit in by_words)
    query = np.array([1, 2], np.float32)
    (nearest, *_) = await server.client.search(HERE, embedding=query, limit=1, max_distance=0.5)
    assert nearest.content_hash == key(1)
    assert nearest.document == documents[0]
    assert nearest.lexical_score is None
    assert nearest.distance == pytest.approx(0, abs=1e-6)


async def test_allowed_keys_may_be_any_collection(server):
    """None is everything, an empty one nothing."""
    documents = [Document("same", "text")] * 3
    await server.client.publish(embedded(1, 2, 3, documents=documents))
    for allowed, count in ((None, 3), ([], 0), ({key(1)}, 1), (frozenset({key(1), key(9)}), 1)):
        assert len(await server.client.search(HERE, text="same", allowed=allowed)) == count


async def test_the_server_tells_of_itself(server):
    """Who answers, in typed values."""
    await server.client.publish(embedded(1, 2))
    info = await server.client.server_info()
    assert info == (__version__, server.store.history_id, server.store.revision, "memory", 2)


async def test_replicas_have_times_where_they_have_any(server):
    """Heard of just now; without a lease there is none left."""
    await server.client.publish(embedded(1))
    (replica,) = await server.client.replicas()
    assert replica.heard_ago_s is not None
    assert replica.heard_ago_s >= 0
    assert replica.lease_remaining_s is None
    assert (replica.replica_id, replica.model_id, replica.holds) == ("pod-1", MODEL, 1)


# ---- what never leaves the client --------------------------------------------------------


BAD_CALLS = {
    "half a pair in a text": lambda c: c.search(HERE, text=HALF),
    "half a pair in a keyword": lambda c: c.search(HERE, keywords=["a", HALF]),
    "half a pair in a name": lambda c: c.search(HERE._replace(adapter_id=HALF), text="a"),
    "half a pair in a tenant": lambda c: c.replicas(HALF),
    "half a pair in a claimant": lambda c: c.get_embeddings(HERE, [], claimant_id=HALF),
    "a limit below 0": lambda c: c.search(HERE, text="a", limit=-1),
    "a limit beyond its field": lambda c: c.lookup_route(HERE, block_hashes=[], limit=2**32),
    "a token below 0": lambda c: c.lookup_route(HERE, token_ids=[-1]),
    "a revision below 0": lambda c: c.search(HERE, text="a", min_revision=-1),
    "bytes below 0": lambda c: c.get_embeddings(HERE, [], max_bytes=-1),
    "an epoch below 0": lambda c: c.report_state("pod-1", MODEL, [], epoch=-1),
}


@pytest.mark.parametrize("name", BAD_CALLS)
async def test_a_value_that_fits_no_field_is_invalid(name: str):
    """There is no server here: it is refused before anything is sent."""
    async with IndexClient("127.0.0.1:1") as client:
        with pytest.raises(InvalidError):
            await BAD_CALLS[name](client)


async def test_what_the_server_refuses_names_the_field(server):
    """As the contract calls it."""
    with pytest.raises(InvalidError) as error:
        await server.client.search(HERE, text="x" * 70_000)
    assert (error.value.field, error.value.reason) == ("query_text", Reason.FIELD_TOO_LONG)
    with pytest.raises(InvalidError) as error:
        await server.client.get_embeddings(HERE, [b"short"])
    assert (error.value.field, error.value.reason) == ("content_hashes", Reason.HASH_LENGTH)
