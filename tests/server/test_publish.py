"""PublishEvent: what is applied, what is refused and how it is told."""

from __future__ import annotations

import pytest
from support.bad_events import BAD_EVENTS, BadEvent
from support.messages import (
    ALL_CLEARED,
    EVICTED,
    MODEL,
    REPLICA,
    block,
    block_of,
    documents,
    event,
    key,
    partition,
    publish_request,
)
from support.server import ServerHere, fault_of
from warmindex.v1 import error_reason_pb2, event_pb2
from warmindex.v1 import index_service_pb2 as pb

Outcome = pb.EventResult


async def publish(server: ServerHere, **fields: object) -> pb.EventResult:
    """Publish an event that is taken."""
    return (await server.stub.PublishEvent(publish_request(event(**fields)))).result


async def fill(server: ServerHere) -> None:
    """Something that a bad event could harm: vectors, documents, adapters, another replica."""
    hashes = [key(1), key(2), key(3)]
    some = {"content_hashes": hashes, "embeddings": block_of(3, 2)}
    await publish(server, **some, documents=documents("one", "two", "three"))
    await publish(server, **some, adapter_id="sql-lora")
    await publish(server, **some, replica_id="pod-2")
    chain = {"hash_scheme": "xxh3-chain/16", "content_hashes": [key(1, 8), key(2, 8)]}
    await publish(server, **chain, token_count=16)


# ---- what is taken -----------------------------------------------------------------------


async def test_an_event_is_visible_when_it_is_answered(server):
    """The answer names a revision, and reads show the event at once."""
    result = await publish(server, embeddings=block([1.0, 2.0]), documents=documents("one"))
    assert result.outcome == Outcome.OUTCOME_APPLIED
    assert result.holds_changed == 1
    assert not result.resync_required
    request = pb.GetEmbeddingsRequest(
        partition=partition(), content_hashes=[key(1)], min_revision=result.revision
    )
    answer = await server.stub.GetEmbeddings(request)
    assert list(answer.states) == [pb.GetEmbeddingsResponse.STATE_FOUND]
    assert answer.embeddings == block([1.0, 2.0])
    assert answer.revision == result.revision


async def test_the_history_is_told(server):
    """Every answer names the history that GetServerInfo names."""
    answer = await server.stub.PublishEvent(publish_request(event()))
    info = await server.stub.GetServerInfo(pb.GetServerInfoRequest())
    assert answer.history_id == info.history_id != ""
    assert answer.result.revision == info.revision
    assert info.journal == "memory"


async def test_saying_it_again_changes_nothing(server):
    """The second time is UNCHANGED, at a revision of its own."""
    first = await publish(server, documents=documents("one"))
    second = await publish(server, documents=documents("one"))
    assert (first.outcome, second.outcome) == (
        Outcome.OUTCOME_APPLIED,
        Outcome.OUTCOME_UNCHANGED,
    )
    assert second.revision == first.revision + 1
    assert second.holds_changed == 0


async def test_numbers_make_a_retry_harmless_and_a_gap_visible(server):
    """A number again is a DUPLICATE, one left out asks for a resync, an old life is FENCED."""
    outcomes = [
        (await publish(server, epoch=epoch, sequence=sequence))
        for epoch, sequence in ((5, 1), (5, 1), (5, 3), (5, 2), (4, 9), (5, 4))
    ]
    assert [(each.outcome, each.resync_required) for each in outcomes] == [
        (Outcome.OUTCOME_APPLIED, False),
        (Outcome.OUTCOME_DUPLICATE, False),
        (Outcome.OUTCOME_UNCHANGED, True),
        (Outcome.OUTCOME_DUPLICATE, True),
        (Outcome.OUTCOME_FENCED, False),
        (Outcome.OUTCOME_UNCHANGED, True),
    ]
    fenced = outcomes[4]
    assert fenced.current_epoch == 5
    assert fenced.reason == error_reason_pb2.ERROR_REASON_EPOCH_FENCED
    assert "larger epoch" in fenced.error


async def test_the_cause_is_the_servers_alone(server):
    """A producer that sends a cause is not believed: the event counts as its own."""
    await publish(server, epoch=1, sequence=2)
    cleared = await publish(
        server, type=ALL_CLEARED, content_hashes=[], cause=event_pb2.CacheEvent.CAUSE_LEASE
    )
    # A clear by the server would have asked for a resync; the producer's own heals.
    assert cleared.outcome == Outcome.OUTCOME_APPLIED
    assert not cleared.resync_required


async def test_what_means_nothing_on_a_clear_is_not_looked_at(server):
    """ALL_CLEARED takes everything, whatever its other fields say, bad values too."""
    await fill(server)
    result = await publish(
        server,
        type=ALL_CLEARED,
        adapter_id="x" * 1000,
        adapter_scoped=True,
        hash_scheme="y" * 1000,
        tier=9,
        content_hashes=[b"", bytes(100)],
    )
    assert result.outcome == Outcome.OUTCOME_APPLIED
    replicas = await server.client.replicas()
    assert [replica.replica_id for replica in replicas] == ["pod-2"]


@pytest.mark.parametrize(
    "fields",
    [
        {"replica_id": "é" * 128},
        {"model_id": "\N{GRINNING FACE}" * 512},
        {"tenant_id": "x" * 128},
        {"adapter_id": "語" * 85 + "x"},
        {"hash_scheme": "x" * 64},
        {"hash_scheme": "own", "content_hashes": [b"x", bytes(64), bytes(48)]},
        {"content_hashes": [key(number) for number in range(4096)]},
        {"embeddings": block_of(1, 8192)},
        {"embeddings": block([3e38, -3e38])},
        {"embeddings": block([1e-45])},
        {"documents": [event_pb2.Document(name="é" * 512, description="語" * 21845 + "x")]},
        {"token_count": 2**32 - 1},
        {"timestamp_us": -(2**63)},
        {"tier": 3},
        {"epoch": 2**64 - 1, "sequence": 1},
        {"type": EVICTED, "content_hashes": [bytes(64), b"x"]},
    ],
    ids="-".join,
)
async def test_a_limit_itself_is_allowed(server, fields):
    """Whatever is just as long, as many or as large as it may be is taken."""
    result = await publish(server, **fields)
    assert result.outcome in (Outcome.OUTCOME_APPLIED, Outcome.OUTCOME_UNCHANGED)


async def test_an_event_may_have_three_mebibytes(server):
    """An event of exactly the limit is applied, one byte more is refused."""
    message = event(
        content_hashes=[key(number) for number in range(3000)],
        embeddings=block_of(3000, 250),
        documents=[event_pb2.Document()] * 3000,
    )
    last = message.documents[-1]
    last.description = "x" * 20_000  # its length takes as many bytes as in the end
    last.description += "x" * (3 * 2**20 - message.ByteSize())
    assert message.ByteSize() == 3 * 2**20
    answer = await server.stub.PublishEvent(publish_request(message))
    assert answer.result.holds_changed == 3000
    last.description += "x"
    fault = await fault_of(server.stub.PublishEvent(publish_request(message)))
    assert (fault.status, fault.field) == ("INVALID_ARGUMENT", "event")


# ---- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("bad", BAD_EVENTS, ids=str)
async def test_a_bad_event_is_refused_and_changes_nothing(server, bad: BadEvent):
    """It is told what is wrong, where, and what to do; it is not journaled."""
    await fill(server)
    before, revision = server.state(), server.store.revision
    fault = await fault_of(server.stub.PublishEvent(publish_request(bad.message())))
    assert fault.status == "INVALID_ARGUMENT"
    assert fault.reason == f"ERROR_REASON_{bad.reason}"
    assert fault.domain == "warmindex.v1"
    assert fault.field == bad.at
    assert fault.description == fault.message
    for words in (bad.at, *bad.says):
        assert words in fault.message
    assert server.state() == before
    assert server.store.revision == revision


@pytest.mark.parametrize("bad", [bad for bad in BAD_EVENTS if bad.number], ids=str)
async def test_a_bad_event_uses_its_number_up(server, bad: BadEvent):
    """The number is journaled alone: a retry is a duplicate, and the next one is no gap."""
    await publish(server, replica_id="pod-2", embeddings=block([1.0, 2.0]))
    content, _, leases = server.state()
    revision = server.store.revision
    await fault_of(server.stub.PublishEvent(publish_request(bad.message(epoch=1, sequence=1))))
    assert (server.state()[0], server.state()[2]) == (content, leases)
    assert server.store.revision == revision + 1
    again = await publish(server, epoch=1, sequence=1)
    assert again.outcome == Outcome.OUTCOME_DUPLICATE
    after = await publish(server, epoch=1, sequence=2)
    assert after.outcome == Outcome.OUTCOME_APPLIED
    assert not after.resync_required


@pytest.mark.parametrize("bad", [bad for bad in BAD_EVENTS if not bad.number], ids=str)
async def test_a_bad_producer_uses_no_number_up(server, bad: BadEvent):
    """Where the producer or the number is what is wrong, nothing at all is journaled."""
    numbers = {name: bad.fields.get(name, 1) for name in ("epoch", "sequence")}
    if "epoch" in bad.fields or "sequence" in bad.fields:
        numbers = {}
    message = bad.message(**numbers)
    before, revision = server.state(), server.store.revision
    fault = await fault_of(server.stub.PublishEvent(publish_request(message)))
    assert fault.field == bad.at
    assert (server.state(), server.store.revision) == (before, revision)


async def test_no_event_is_a_missing_field(server):
    """A request without an event is told to have one."""
    fault = await fault_of(server.stub.PublishEvent(pb.PublishEventRequest()))
    assert (fault.status, fault.reason, fault.field) == (
        "INVALID_ARGUMENT",
        "ERROR_REASON_FIELD_REQUIRED",
        "event",
    )


async def test_vectors_of_another_width_are_refused_and_journaled(server):
    """What depends on the state is decided when the record is applied: it has a revision."""
    await fill(server)
    before, revision = server.state(), server.store.revision
    message = event(content_hashes=[key(9)], embeddings=block([1.0, 2.0, 3.0]))
    fault = await fault_of(server.stub.PublishEvent(publish_request(message)))
    assert (fault.status, fault.reason, fault.field) == (
        "INVALID_ARGUMENT",
        "ERROR_REASON_DIMENSIONS_MISMATCH",
        "event.embeddings.dimensions",
    )
    assert "is 3" in fault.message
    assert "have 2" in fault.message
    assert server.state() == before
    assert server.store.revision == revision + 1


async def test_another_width_uses_the_number_up(server):
    """The next number is no gap, and a width is free again once nothing has a vector."""
    await publish(server, embeddings=block([1.0, 2.0]), epoch=1, sequence=1)
    message = event(embeddings=block([1.0]), content_hashes=[key(2)], epoch=1, sequence=2)
    await fault_of(server.stub.PublishEvent(publish_request(message)))
    gone = await publish(server, type=EVICTED, adapter_scoped=True, epoch=1, sequence=3)
    assert gone.outcome == Outcome.OUTCOME_APPLIED
    assert not gone.resync_required
    message.sequence = 4
    answer = await server.stub.PublishEvent(publish_request(message))
    assert answer.result.outcome == Outcome.OUTCOME_APPLIED


async def test_producers_number_for_themselves(server):
    """A producer is tenant, model and replica: one's numbers say nothing of another's."""
    for names in (
        {},
        {"tenant_id": "blue"},
        {"model_id": MODEL + "x"},
        {"replica_id": REPLICA + "x"},
    ):
        result = await publish(server, epoch=7, sequence=1, **names)
        assert result.outcome == Outcome.OUTCOME_APPLIED
        assert not result.resync_required
