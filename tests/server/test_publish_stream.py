"""A stream of events over a journal that waits: taken in together, answered in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from support.server import ServerHere, running
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerHere]:
    """A server with a journal on disk."""
    async with running(journal=f"sqlite:///{tmp_path}/journal.db", grace_s=0.5) as here:
        yield here


def message(number: int, events: int = 1) -> pb.PublishEventsRequest:
    """Events of one replica, numbered from `number` on."""
    return pb.PublishEventsRequest(
        events=[
            event_pb2.CacheEvent(
                type=event_pb2.CacheEvent.EMBEDDED,
                replica_id="r",
                model_id="m",
                hash_scheme="x",
                content_hashes=[(number + offset).to_bytes(8, "big")],
                epoch=1,
                sequence=number + offset,
            )
            for offset in range(events)
        ]
    )


async def test_answers_come_in_the_order_of_the_messages(server: ServerHere):
    """Five hundred messages sent at once are applied and answered one after the other."""
    call = server.stub.PublishEvents(iter(message(number) for number in range(1, 501)))
    results = [answer.results[0] async for answer in call]
    assert [each.outcome for each in results] == [pb.EventResult.OUTCOME_APPLIED] * 500
    revisions = [each.revision for each in results]
    assert revisions == sorted(revisions)
    assert not any(each.resync_required for each in results)


async def test_a_faulty_message_ends_the_stream_behind_its_answers(server: ServerHere):
    """What came before it is answered, nothing of it or after it is applied."""
    messages = [message(1), message(2), message(3, events=1025), message(2000)]
    call = server.stub.PublishEvents(iter(messages))
    for number in (1, 2):
        answer = await call.read()
        assert answer.results[0].outcome == pb.EventResult.OUTCOME_APPLIED, number
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    info = await server.stub.GetServerInfo(pb.GetServerInfoRequest())
    assert info.entries == 2


async def test_a_client_that_goes_away_leaves_the_server_well(server: ServerHere):
    """A stream cut in the middle is forgotten; the next one goes on."""
    call = server.stub.PublishEvents(iter(message(number) for number in range(1, 2001)))
    await call.read()
    call.cancel()
    again = server.stub.PublishEvents(iter([message(5000)]))
    (answer,) = [each async for each in again]
    assert answer.results[0].outcome == pb.EventResult.OUTCOME_APPLIED
