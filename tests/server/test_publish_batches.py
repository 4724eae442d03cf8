"""PublishEvents: batches in order, a bad event beside its neighbours, limits of a message."""

from __future__ import annotations

from collections.abc import Iterable

import grpc
import pytest
from support.bad_events import BAD_EVENTS, BadEvent
from support.messages import block, event, key, partition, raw_field
from support.server import ServerHere, fault
from warmindex.v1 import error_reason_pb2, event_pb2
from warmindex.v1 import index_service_pb2 as pb

Outcome = pb.EventResult
MESSAGE_BYTES_MAX = 16 * 2**20


async def publish_all(
    server: ServerHere, *batches: Iterable[event_pb2.CacheEvent]
) -> list[pb.PublishEventsResponse]:
    """One message per batch over one stream; its answers."""
    messages = [pb.PublishEventsRequest(events=batch) for batch in batches]
    return [answer async for answer in server.stub.PublishEvents(iter(messages))]


def outcomes(answer: pb.PublishEventsResponse) -> list[int]:
    """The verdicts of one answer."""
    return [result.outcome for result in answer.results]


async def test_each_message_is_answered_in_order(server):
    """One answer a message, one result an event, with rising revisions; all is visible."""
    batches = [
        [event(content_hashes=[key(10 * batch + n)]) for n in range(3)] for batch in range(4)
    ]
    answers = await publish_all(server, *batches)
    assert [outcomes(answer) for answer in answers] == [[Outcome.OUTCOME_APPLIED] * 3] * 4
    revisions = [result.revision for answer in answers for result in answer.results]
    assert revisions == list(range(revisions[0], revisions[0] + 12))
    info = await server.stub.GetServerInfo(pb.GetServerInfoRequest())
    assert info.entries == 12
    assert {answer.history_id for answer in answers} == {info.history_id}


async def test_events_of_one_message_apply_one_after_the_other(server):
    """A message that embeds, evicts and embeds again leaves what its last event says."""
    (answer,) = await publish_all(
        server,
        [
            event(embeddings=block([1.0])),
            event(type=event_pb2.CacheEvent.EVICTED, adapter_scoped=True),
            event(embeddings=block([1.0, 2.0])),
        ],
    )
    assert outcomes(answer) == [Outcome.OUTCOME_APPLIED] * 3
    got = await server.stub.GetEmbeddings(
        pb.GetEmbeddingsRequest(partition=partition(), content_hashes=[key(1)])
    )
    assert got.embeddings == block([1.0, 2.0])


async def test_a_message_without_events_is_answered(server):
    """An empty message, as one sent to renew leases, has an answer without results."""
    (answer,) = await publish_all(server, [])
    assert list(answer.results) == []
    assert not answer.resync_required


@pytest.mark.parametrize("bad", BAD_EVENTS, ids=str)
async def test_a_bad_event_is_refused_beside_its_neighbours(server, bad: BadEvent):
    """Those before and after it apply; it says why not, and what to do."""
    neighbours = [event(content_hashes=[key(number)]) for number in (11, 12)]
    (answer,) = await publish_all(server, [neighbours[0], bad.message(), neighbours[1]])
    assert outcomes(answer) == [
        Outcome.OUTCOME_APPLIED,
        Outcome.OUTCOME_REFUSED,
        Outcome.OUTCOME_APPLIED,
    ]
    refused = answer.results[1]
    assert error_reason_pb2.ErrorReason.Name(refused.reason) == f"ERROR_REASON_{bad.reason}"
    assert bad.at in refused.error
    assert refused.holds_changed == 0
    assert (await server.client.server_info()).entries == 2


async def test_a_bad_number_is_used_up_in_the_stream(server):
    """Numbers go on behind a refused event; without it there would be a gap."""
    bad = [bad for bad in BAD_EVENTS if bad.number]
    numbered = [one.message(epoch=3, sequence=number) for number, one in enumerate(bad, 1)]
    (answer,) = await publish_all(server, [*numbered, event(epoch=3, sequence=len(bad) + 1)])
    assert set(outcomes(answer)[:-1]) == {Outcome.OUTCOME_REFUSED}
    last = answer.results[-1]
    assert last.outcome == Outcome.OUTCOME_APPLIED
    assert not last.resync_required
    revisions = [result.revision for result in answer.results]
    assert revisions == list(range(revisions[0], revisions[0] + len(revisions)))


async def test_another_width_is_refused_in_its_place(server):
    """The first event of a message gives the width; the next ones are held to it."""
    (answer,) = await publish_all(
        server,
        [
            event(content_hashes=[key(1)], embeddings=block([1.0])),
            event(content_hashes=[key(2)], embeddings=block([1.0, 2.0])),
            event(content_hashes=[key(3)], embeddings=block([3.0])),
        ],
    )
    assert outcomes(answer) == [
        Outcome.OUTCOME_APPLIED,
        Outcome.OUTCOME_REFUSED,
        Outcome.OUTCOME_APPLIED,
    ]
    assert answer.results[1].reason == error_reason_pb2.ERROR_REASON_DIMENSIONS_MISMATCH
    assert answer.results[1].error


async def test_duplicates_and_old_lives_are_told_in_place(server):
    """A retried stream is told of what it has said before, and applies the rest."""
    first = [event(epoch=2, sequence=n, content_hashes=[key(n)]) for n in (1, 2)]
    await publish_all(server, first)
    (answer,) = await publish_all(
        server,
        [
            *first,
            event(epoch=2, sequence=3, content_hashes=[key(3)]),
            event(epoch=1, sequence=1, content_hashes=[key(4)]),
        ],
    )
    assert outcomes(answer) == [
        Outcome.OUTCOME_DUPLICATE,
        Outcome.OUTCOME_DUPLICATE,
        Outcome.OUTCOME_APPLIED,
        Outcome.OUTCOME_FENCED,
    ]
    assert answer.results[3].current_epoch == 2
    assert (await server.client.server_info()).entries == 3


# ---- limits of a message -----------------------------------------------------------------


async def test_a_message_takes_1024_events(server):
    """As many as may be are taken."""
    (answer,) = await publish_all(server, [event(content_hashes=[key(n)]) for n in range(1024)])
    assert outcomes(answer) == [Outcome.OUTCOME_APPLIED] * 1024


async def test_one_event_more_ends_the_stream(server):
    """Nothing of that message is applied; what came before it is answered and stays."""
    call = server.stub.PublishEvents()
    await call.write(pb.PublishEventsRequest(events=[event()]))
    assert outcomes(await call.read()) == [Outcome.OUTCOME_APPLIED]
    before, revision = server.state(), server.store.revision
    too_many = [event(content_hashes=[key(n)], epoch=1, sequence=n + 1) for n in range(1025)]
    await call.write(pb.PublishEventsRequest(events=too_many))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.read()
    found = fault(error.value)
    assert (found.status, found.reason, found.field) == (
        "INVALID_ARGUMENT",
        "ERROR_REASON_TOO_MANY",
        "events",
    )
    assert "send several" in found.message
    assert (server.state(), server.store.revision) == (before, revision)


async def test_bytes_that_are_no_message_end_the_stream(server):
    """So do bytes that cannot be read, with what came before them answered."""
    call = server.channel.stream_stream("/warmindex.v1.IndexService/PublishEvents")()
    await call.write(pb.PublishEventsRequest(events=[event()]).SerializeToString())
    assert await call.read()
    await call.write(b"\xff\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.read()
    found = fault(error.value)
    assert found.status == "INVALID_ARGUMENT"
    assert ".proto" in found.message
    assert (await server.client.server_info()).entries == 1


def padded(size: int) -> bytes:
    """A message of that many bytes with one good event, the rest in a field nobody knows."""
    message = pb.PublishEventsRequest(events=[event()]).SerializeToString()
    left = size - len(message) - len(raw_field(100, bytes(2**22)))
    return message + raw_field(100, bytes(2**22 + left))


async def test_a_message_may_have_sixteen_mebibytes(server):
    """A message of exactly the limit is taken, one byte more is too large."""
    call = server.channel.stream_stream("/warmindex.v1.IndexService/PublishEvents")()
    await call.write(padded(MESSAGE_BYTES_MAX))
    answer = pb.PublishEventsResponse.FromString(await call.read())
    assert outcomes(answer) == [Outcome.OUTCOME_APPLIED]
    await call.write(padded(MESSAGE_BYTES_MAX + 1))
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.read()
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_the_connection_outlives_a_message_that_is_too_large(server):
    """Another stream on the same connection goes on, before and after."""
    neighbour = server.stub.PublishEvents()
    await neighbour.write(pb.PublishEventsRequest(events=[event()]))
    await neighbour.read()
    for method in ("PublishEvents", "PublishEvent"):
        call = server.channel.stream_stream(f"/warmindex.v1.IndexService/{method}")()
        await call.write(padded(17 * 2**20))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await neighbour.write(pb.PublishEventsRequest(events=[event()]))
        assert outcomes(await neighbour.read()) == [Outcome.OUTCOME_UNCHANGED]
    await neighbour.done_writing()
    assert await neighbour.read() is grpc.aio.EOF


async def test_a_client_that_goes_away_leaves_what_it_said(server):
    """A stream that is cancelled in between harms nobody."""
    call = server.stub.PublishEvents()
    await call.write(pb.PublishEventsRequest(events=[event()]))
    await call.read()
    call.cancel()
    assert (await server.client.server_info()).entries == 1
