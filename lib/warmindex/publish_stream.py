"""One PublishEvents stream: messages out, answers in, in the same order.

What is sent are parts: events that `wire.event_to_part` has encoded with their numbers. A
publisher that is cut off sends them again as they are, on the next stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import grpc

from warmindex import wire
from warmindex.answers import PublishResult
from warmindex.channels import error_of
from warmindex.errors import UnavailableError
from warmindex.record import Lease
from warmindex.v1 import index_service_pb2 as pb

_METHOD: Final = f"/{pb.DESCRIPTOR.services_by_name['IndexService'].full_name}/PublishEvents"


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

    def __init__(
        self,
        channel: grpc.aio.Channel,
        address: str,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        # Requests are bytes already.
        open_stream: Any = channel.stream_stream(
            _METHOD, response_deserializer=pb.PublishEventsResponse.FromString
        )
        self._call = open_stream(metadata=metadata)
        self.address = address

    async def send(self, parts: Sequence[bytes], leases: Sequence[Lease] = ()) -> None:
        """Send one message; without events and leases it only renews the stream's leases."""
        request = b"".join(parts)
        if leases:
            request += _leases_to_wire(leases)
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except (grpc.aio.UsageError, asyncio.InvalidStateError):
            # The call, or the whole channel, has ended; `receive` may know why.
            raise self._ended() from None

    async def receive(self) -> StreamAnswer:
        """The answer to the oldest message without one."""
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise error_of(error, self.address) from None
        except (grpc.aio.UsageError, asyncio.InvalidStateError):
            raise self._ended() from None
        if answer is grpc.aio.EOF:
            raise self._ended()
        return StreamAnswer(
            [wire.result_from_wire(result, answer.history_id) for result in answer.results],
            answer.history_id,
            answer.resync_required,
        )

    def close(self) -> None:
        """End the stream; what has no answer yet will get none."""
        self._call.cancel()

    def _ended(self) -> UnavailableError:
        return UnavailableError(f"the stream to {self.address} has ended")


def _leases_to_wire(leases: Sequence[Lease]) -> bytes:
    request = pb.PublishEventsRequest()
    for lease in leases:
        message = request.leases.add(replica_id=lease.replica_id, tenant_id=lease.tenant_id)
        message.ttl.FromMilliseconds(lease.ttl_ms)
    return request.SerializeToString()
