"""A quota that is reached: what it hit is sent again, in order, until there is room.

No server of this package has quotas yet. Here a real one gets one, as the contract describes it:
of a replica's events on a stream, nothing newer passes before the first that was limited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.publishing import Source, until, until_same
from support.server import ServerHere
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.rpc import publish
from warmindex_subscriber.publisher import line

LIMITED = pb.EventResult(outcome=pb.EventResult.OUTCOME_LIMITED, error="no more entries")


class Quota:
    """Stands between a stream and the real handler; `full` is switched from outside."""

    def __init__(self) -> None:
        self.full = False
        self._handler = publish.publish_stream

    async def publish_stream(
        self, store: Any, leases: Any, requests: AsyncIterator[pb.PublishEventsRequest]
    ) -> AsyncIterator[pb.PublishEventsResponse]:
        first: dict[str, int] = {}
        async for request in requests:
            passed = [self._passes(event, first) for event in request.events]
            events = [event for event, passes in zip(request.events, passed, strict=True) if passes]

            async def one(message: pb.PublishEventsRequest) -> AsyncIterator[Any]:
                yield message

            message = pb.PublishEventsRequest(events=events, leases=request.leases)
            async for answer in self._handler(store, leases, one(message)):
                results = iter(answer.results)
                yield pb.PublishEventsResponse(
                    results=[next(results) if passes else LIMITED for passes in passed],
                    history_id=answer.history_id,
                    resync_required=answer.resync_required,
                )

    def _passes(self, event: Any, first: dict[str, int]) -> bool:
        limited = first.get(event.replica_id)
        if self.full or (limited is not None and event.sequence > limited):
            first.setdefault(event.replica_id, event.sequence)
            return False
        first.pop(event.replica_id, None)
        return True


@pytest.fixture
def quota(monkeypatch: pytest.MonkeyPatch) -> Quota:
    found = Quota()
    monkeypatch.setattr(publish, "publish_stream", found.publish_stream)
    monkeypatch.setattr(line, "LIMITED_PAUSE_S", 0.05)
    return found


@pytest.mark.parametrize("reporting", [False, True])
async def test_what_was_limited_arrives_when_there_is_room(
    server: ServerHere, quota: Quota, reporting: bool
):
    """Again and again, with reports in between as well: nothing is lost, and nothing is stuck."""
    source = Source("pod-1", "pod-2", seed=1)
    async with source.publishing(server.address, lease_s=30, message_events_max=4) as publisher:
        for _ in range(5):
            await source.say_something(20)
            quota.full = True
            limited = publisher.counters.limited
            await source.say_something(20)
            await until(lambda before=limited: publisher.counters.limited > before)
            if reporting:
                await source.report("pod-1")
            await source.say_something(5)
            quota.full = False
        await until_same(source, server.address)
        assert publisher.counters.refused == 0
    assert source.reported == (["pod-1"] * 5 if reporting else []), "nobody had to ask"
