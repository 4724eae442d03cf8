"""One PublishEvents stream: messages out, answers in, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import grpc

from warmindex import wire
from warmindex.answers import PublishResult
from warmindex.channels import error_of
from warmindex.errors import UnavailableError
from warmindex.event import CacheEvent
from warmindex.record import Lease
from warmindex.v1 import index_service_pb2 as pb


class StreamAnswer(NamedTuple):
    """The answer to one message: a result per event, and what concerns the whole stream."""

    results: list[PublishResult]
    history_id: str
    resync_required: bool


class PublishStream:
    """A stream to one server; `IndexClient.publish_stream` opens it.

    Any number of messages may be under way; each `receive` answers the oldest that has none
    yet. Both raise a WarmindexError where the stream has ended, UnavailableError where
    sending again on another one is the thing to do.
    """

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self.address = address

    async def send(self, events: Sequence[CacheEvent], leases: Sequence[Lease] = ()) -> None:
        """Send one message; without events and leases it only renews the stream's leases."""
        request = pb.PublishEventsRequest(events=map(wire.event_to_wire, events))
        for lease in leases:
            message = request.leases.add(replica_id=lease.replica_id, tenant_id=lease.tenant_id)
            message.ttl.FromMilliseconds(lease.ttl_ms)
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except grpc.aio.UsageError:
            raise UnavailableError(f"the stream to {self.address} has ended") from None

    async def receive(self) -> StreamAnswer:
        """The answer to the oldest message without one."""
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        if answer is grpc.aio.EOF:
            raise UnavailableError(f"the stream to {self.address} has ended")
        return StreamAnswer(
            [wire.result_from_wire(result, answer.history_id) for result in answer.results],
            answer.history_id,
            answer.resync_required,
        )

    async def close(self) -> None:
        """End the stream; what has no answer yet will get none."""
        self._call.cancel()
