"""IndexService: one line a call. What each does stands in the module of its concept."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from warmindex.errors import ShuttingDownError
from warmindex.index.search import SearchOptions
from warmindex.v1 import index_service_pb2

from warmindex_server.access.gate import Gate
from warmindex_server.reports.staging import Budget
from warmindex_server.rpc import fetch, find, inspect, publish, report, route
from warmindex_server.rpc.calls import handlers_of
from warmindex_server.rpc.stream_leases import StreamLeases
from warmindex_server.rpc.traffic import Traffic
from warmindex_server.rpc.watch import Watches

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    import grpc
    from google.protobuf.descriptor import ServiceDescriptor
    from warmindex.v1 import index_service_pb2 as pb

    from warmindex_server.claims.base import Claims
    from warmindex_server.leases.keeper import LeaseKeeper
    from warmindex_server.replicas import Heard
    from warmindex_server.rpc.faults import Context
    from warmindex_server.store import Store

Request = TypeVar("Request")


class IndexService:
    """The contract's calls over one store."""

    DESCRIPTOR: ClassVar[ServiceDescriptor] = index_service_pb2.DESCRIPTOR.services_by_name[
        "IndexService"
    ]
    # What health and reflection know it by.
    NAME: ClassVar[str] = DESCRIPTOR.full_name

    def __init__(
        self,
        store: Store,
        heard: Heard,
        claims: Claims,
        leases: LeaseKeeper,
        options: SearchOptions | None = None,
        gate: Gate | None = None,
    ) -> None:
        self._store = store
        self._heard = heard
        self._claims = claims
        self._leases = leases
        self._options = options or SearchOptions()
        self._watches = Watches(store)
        self._reports = Budget()
        self._gate = gate or Gate()
        self.traffic = Traffic()
        self._closing = False
        self._streams: set[asyncio.Task[None]] = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Let a server answer these calls; before it starts."""
        handlers = handlers_of(self, self.DESCRIPTOR, self.traffic, self._gate)
        server.add_generic_rpc_handlers((handlers,))

    def close(self) -> None:
        """End what waits: streams for their client, calls for a claim, watches for a change."""
        self._closing = True
        self._claims.close()
        self._store.stop_waiting()
        self._watches.close()
        for task in self._streams:
            task.cancel()

    async def PublishEvent(
        self, request: pb.PublishEventRequest, context: Context
    ) -> pb.PublishEventResponse:
        """Apply one event."""
        return await publish.publish_event(self._store, self._heard, self._leases, request)

    async def PublishEvents(
        self, requests: AsyncIterator[pb.PublishEventsRequest], context: Context
    ) -> AsyncIterator[pb.PublishEventsResponse]:
        """Apply batches in order, and answer each."""
        leases = StreamLeases(self._leases, self._heard)
        async with (
            aclosing(self._until_closing(requests)) as messages,
            aclosing(publish.publish_stream(self._store, leases, messages)) as answers,
        ):
            async for answer in answers:
                yield answer

    async def ReportState(
        self, requests: AsyncIterator[pb.ReportStateRequest], context: Context
    ) -> pb.ReportStateResponse:
        """Replace all that a producer holds by what the stream lists."""
        async with aclosing(self._until_closing(requests)) as parts:
            return await report.report_state(
                self._store, self._heard, self._leases, self._reports, parts
            )

    async def GetEmbeddings(self, request: pb.GetEmbeddingsRequest, context: Context) -> bytes:
        """The vectors that a partition has for content hashes, and claims on the absent ones."""
        return await fetch.get_embeddings(self._store, self._claims, request)

    async def ReleaseClaims(
        self, request: pb.ReleaseClaimsRequest, context: Context
    ) -> pb.ReleaseClaimsResponse:
        """Give up claims whose content will not be published."""
        return await fetch.release_claims(self._claims, request)

    async def Search(self, request: pb.SearchRequest, context: Context) -> pb.SearchResponse:
        """Rank a partition's documents."""
        return await find.search(self._store, request, self._options)

    async def LookupRoute(
        self, request: pb.LookupRouteRequest, context: Context
    ) -> pb.LookupRouteResponse:
        """Rank replicas by the longest leading run that they hold."""
        return await route.lookup_route(self._store, request)

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Context
    ) -> AsyncIterator[Any]:
        """Send a snapshot and then every later change, in order."""
        async for response in self._watches.watch(request):
            yield response

    async def ListPartitions(
        self, request: pb.ListPartitionsRequest, context: Context
    ) -> pb.ListPartitionsResponse:
        """List partitions and their sizes."""
        return await inspect.list_partitions(self._store, request)

    async def ListReplicas(
        self, request: pb.ListReplicasRequest, context: Context
    ) -> pb.ListReplicasResponse:
        """List the replicas that hold anything."""
        return await inspect.list_replicas(self._store, self._heard, self._leases, request)

    async def GetEntry(self, request: pb.GetEntryRequest, context: Context) -> pb.GetEntryResponse:
        """Show one content hash in every partition that has it."""
        return await inspect.get_entry(self._store, request)

    async def GetServerInfo(
        self, request: pb.GetServerInfoRequest, context: Context
    ) -> pb.GetServerInfoResponse:
        """Describe the server."""
        return await inspect.get_server_info(self._store)

    async def _until_closing(
        self, requests: AsyncIterator[Request]
    ) -> AsyncGenerator[Request, None]:
        """The requests of a stream, as long as the server stays.

        While the server is going away, a stream that is waiting for its client would hold it
        until the grace is over: `close` breaks the wait, and only the wait.
        """
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler runs in a task
        iterator = aiter(requests)
        while not self._closing:
            self._streams.add(task)
            try:
                request = await anext(iterator)
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                if not self._closing:
                    raise
                task.uncancel()
                break
            finally:
                self._streams.discard(task)
            yield request
        raise ShuttingDownError("the server is going away: publish to another one, or again")
