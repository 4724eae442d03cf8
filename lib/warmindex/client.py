"""An asyncio client of the index: typed, numpy in and out, no stubs in its face.

    async with IndexClient("127.0.0.1:50151") as client:
        found = await client.get_embeddings(key, hashes)

Several servers may be named, separated by commas; they must share one journal. Calls go to
one of them, and on to the next when it cannot be reached. Every error is one of
`warmindex.errors`; a call that got no answer in time is an UnavailableError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self, cast

import numpy as np

from warmindex import wire
from warmindex.answers import (
    Embeddings,
    EntryView,
    KeyState,
    PartitionView,
    PublishResult,
    ReplicaView,
    ReportResult,
    RouteAnswer,
    SearchHit,
    ServerInfo,
)
from warmindex.channels import Channels
from warmindex.event import Document, PartitionKey
from warmindex.publish_stream import PublishStream
from warmindex.v1 import index_service_pb2 as pb
from warmindex.watch_stream import watch

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Collection,
        Iterable,
        Sequence,
    )
    from types import TracebackType

    from numpy.typing import NDArray

    from warmindex.channels import Security
    from warmindex.event import CacheEvent
    from warmindex.index.selection import Selection
    from warmindex.watch_stream import WatchStep

DEFAULT_SERVER: Final = "127.0.0.1:50151"
# A read is answered from memory in milliseconds; whoever waits longer is better off computing.
TIMEOUT_S_DEFAULT: Final = 5.0

# A report lists all that a producer holds, which may be millions.
REPORT_TIMEOUT_S_DEFAULT: Final = 120.0


class IndexClient:
    """One fleet's index. Make it inside a running event loop; close it, or use `async with`."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        timeout_s: float = TIMEOUT_S_DEFAULT,
        security: Security | None = None,
    ) -> None:
        self._channels = Channels(server, security)
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """The server that is asked first."""
        return self._channels.address

    async def close(self) -> None:
        """Close the connections."""
        await self._channels.close()

    # ---- publishing --------------------------------------------------------------------

    async def publish(self, event: CacheEvent) -> PublishResult:
        """Publish one event; it is journaled and visible when this returns."""
        request = pb.PublishEventRequest(event=wire.event_to_wire(event))
        response = await self._call("PublishEvent", request)
        return wire.result_from_wire(response.result, response.history_id)

    async def publish_all(self, events: Iterable[CacheEvent]) -> list[PublishResult]:
        """Publish events in order over one stream, a few MiB a message; one result for each."""
        results: list[PublishResult] = []
        messages = list(wire.batches(events))
        if not messages:
            return results

        async def exchange(stub: Any) -> None:
            results.clear()
            call = stub.PublishEvents(iter(messages), timeout=self._timeout_s * len(messages))
            async for response in call:
                results.extend(
                    wire.result_from_wire(each, response.history_id) for each in response.results
                )

        await self._channels.attempt(exchange)
        return results

    def publish_stream(self) -> PublishStream:
        """Open a stream of events to the server that is asked first; see `move_on`."""
        address = self._channels.address
        return PublishStream(self._channels.channel(address), address, self._channels.metadata)

    def watch(self, selection: Selection, cursor: str = "") -> AsyncGenerator[WatchStep, None]:
        """Follow changes of one tenant: a snapshot first, or what came after a cursor.

        One watch on one server; see `watch_stream`. A `Mirror` does the rest.
        """
        return watch(self._channels, selection, cursor)

    def move_on(self, address: str) -> None:
        """Ask the next server first from now on, where `address` has failed."""
        self._channels.move_on(address)

    async def report_state(
        self,
        replica_id: str,
        model_id: str,
        entries: Iterable[CacheEvent],
        *,
        tenant_id: str = "",
        epoch: int = 0,
        sequence: int = 0,
        timeout_s: float | None = None,
    ) -> ReportResult:
        """Replace all that a replica holds in a model by what `entries` list, in one step.

        `entries` are EMBEDDED events of that replica. `sequence` is the last number that the
        report includes; an `epoch` of 0 leaves the numbering as it is. Raises OvertakenError
        where the producer published meanwhile, FencedError where a newer epoch is known.
        """
        header = wire.request_of(
            pb.ReportStateHeader,
            replica_id=replica_id,
            model_id=model_id,
            tenant_id=tenant_id,
            epoch=epoch,
            sequence=sequence,
        )

        async def parts() -> AsyncIterator[pb.ReportStateRequest]:
            yield pb.ReportStateRequest(header=header)
            count = 0
            for event in entries:
                count += len(event.content_hashes)
                yield pb.ReportStateRequest(entries=wire.event_to_wire(event))
            yield pb.ReportStateRequest(end=pb.ReportStateEnd(content_hashes=count))

        async def report(stub: Any) -> Any:
            return await stub.ReportState(parts(), timeout=timeout_s or REPORT_TIMEOUT_S_DEFAULT)

        answer = await self._channels.attempt(report)
        return ReportResult(answer.revision, answer.holds_added, answer.holds_removed)

    # ---- reading -----------------------------------------------------------------------

    async def get_embeddings(
        self,
        partition: PartitionKey,
        hashes: Sequence[bytes],
        *,
        claimant_id: str = "",
        claim_ttl_s: float | None = None,
        wait_s: float = 0.0,
        min_revision: int = 0,
        max_bytes: int = 0,
        max_claims: int = 0,
        timeout_s: float | None = None,
    ) -> Embeddings:
        """One answer to one question: a state per hash, and the rows of those found.

        At most 4096 hashes; with many, some may be KeyState.DEFERRED: ask again for them.
        """
        request = wire.request_of(
            pb.GetEmbeddingsRequest,
            partition=wire.partition_to_wire(partition),
            content_hashes=hashes,
            claimant_id=claimant_id,
            min_revision=min_revision,
            max_bytes=max_bytes,
            max_claims=max_claims,
        )
        if claim_ttl_s is not None:
            request.claim_ttl.FromMicroseconds(int(claim_ttl_s * 1e6))
        if wait_s:
            request.wait.FromMicroseconds(int(wait_s * 1e6))
        response = await self._call(
            "GetEmbeddings", request, (timeout_s or self._timeout_s) + wait_s
        )
        states = [KeyState.of(state) for state in response.states]
        block = response.embeddings
        return Embeddings(
            states=states,
            vectors=wire.rows_from_wire(block, states.count(KeyState.FOUND), "embeddings")
            if block.values
            else np.empty((0, 0), np.float32),
            revision=response.revision,
            history_id=response.history_id,
        )

    async def release_claims(
        self, partition: PartitionKey, claimant_id: str, hashes: Sequence[bytes]
    ) -> int:
        """Give up claims whose content will not be published; how many there were."""
        request = wire.request_of(
            pb.ReleaseClaimsRequest,
            partition=wire.partition_to_wire(partition),
            claimant_id=claimant_id,
            content_hashes=hashes,
        )
        return int((await self._call("ReleaseClaims", request)).released)

    async def search(
        self,
        partition: PartitionKey,
        *,
        embedding: NDArray[np.float32] | None = None,
        text: str = "",
        keywords: Sequence[str] = (),
        allowed: Collection[bytes] | None = None,
        limit: int = 0,
        max_distance: float | None = None,
        min_revision: int = 0,
    ) -> list[SearchHit]:
        """The best documents of a partition, best first.

        `embedding` is float32 of shape (dimensions,). `allowed`, where not None, limits the
        answer to these hashes.
        """
        request = wire.request_of(
            pb.SearchRequest,
            partition=wire.partition_to_wire(partition),
            query_text=text,
            keywords=keywords,
            limit=limit,
            max_distance=max_distance,
            min_revision=min_revision,
        )
        if embedding is not None:
            request.query_embedding.CopyFrom(wire.rows_to_wire(embedding.reshape(1, -1)))
        if allowed is not None:
            request.allowed.SetInParent()
            request.allowed.content_hashes.extend(allowed)
        response = await self._call("Search", request)
        return [
            SearchHit(
                content_hash=hit.content_hash,
                document=Document(hit.document.name, hit.document.description),
                score=hit.score,
                distance=hit.distance if hit.HasField("distance") else None,
                lexical_score=hit.lexical_score if hit.HasField("lexical_score") else None,
            )
            for hit in response.hits
        ]

    async def lookup_route(
        self,
        partition: PartitionKey,
        *,
        block_hashes: Sequence[bytes] = (),
        token_ids: Sequence[int] = (),
        limit: int = 0,
        replica_ids: Sequence[str] = (),
        min_revision: int = 0,
    ) -> RouteAnswer:
        """Who holds the longest beginning of a prompt; give its block hashes or its tokens.

        With tokens, an empty `hash_scheme` looks under every block size of the model.
        """
        request = wire.request_of(
            pb.LookupRouteRequest,
            partition=wire.partition_to_wire(partition),
            block_hashes=block_hashes,
            token_ids=token_ids,
            limit=limit,
            replica_ids=replica_ids,
            min_revision=min_revision,
        )
        response = await self._call("LookupRoute", request)
        return wire.route_from_wire(response)

    # ---- looking around ----------------------------------------------------------------

    async def server_info(self) -> ServerInfo:
        """Version, history and revision of the server that answers."""
        info = await self._call("GetServerInfo", pb.GetServerInfoRequest())
        return ServerInfo(info.version, info.history_id, info.revision, info.journal, info.entries)

    async def partitions(self, tenant_id: str = "", model_id: str = "") -> list[PartitionView]:
        """All partitions of a tenant, in key order."""
        request = wire.request_of(pb.ListPartitionsRequest, tenant_id=tenant_id, model_id=model_id)
        return [
            PartitionView(
                wire.partition_from_wire(each.key),
                each.entries,
                each.embeddings,
                each.dimensions,
                each.replicas,
                each.memory_bytes,
            )
            async for each in self._pages("ListPartitions", request, lambda page: page.partitions)
        ]

    async def replicas(self, tenant_id: str = "") -> list[ReplicaView]:
        """All replicas of a tenant that hold anything, by name and model."""
        request = wire.request_of(pb.ListReplicasRequest, tenant_id=tenant_id)
        return [
            ReplicaView(
                replica_id=each.replica_id,
                model_id=each.model_id,
                holds=each.holds,
                epoch=each.epoch,
                sequence=each.sequence,
                resync_required=each.resync_required,
                lease_remaining_s=_seconds(each, "lease_remaining"),
                heard_ago_s=_seconds(each, "heard_ago"),
            )
            async for each in self._pages("ListReplicas", request, lambda page: page.replicas)
        ]

    async def entries(self, content_hash: bytes, tenant_id: str = "") -> list[EntryView]:
        """One content hash in every partition that has it, in key order."""
        request = wire.request_of(
            pb.GetEntryRequest, tenant_id=tenant_id, content_hash=content_hash
        )
        return [
            EntryView(
                partition=wire.partition_from_wire(each.partition),
                holds=[(hold.replica_id, wire.tier_from_wire(hold.tier)) for hold in each.holds],
                document=Document(each.document.name, each.document.description)
                if each.HasField("document")
                else None,
                dimensions=each.dimensions,
            )
            async for each in self._pages("GetEntry", request, lambda page: page.entries)
        ]

    # ---- how it is done ----------------------------------------------------------------

    async def _call(self, method: str, request: Any, timeout_s: float | None = None) -> Any:
        deadline_s = timeout_s or self._timeout_s

        async def call(stub: Any) -> Any:
            return await getattr(stub, method)(request, timeout=deadline_s)

        return await self._channels.attempt(call)

    async def _pages(
        self, method: str, request: Any, items: Callable[[Any], Iterable[Any]]
    ) -> AsyncIterator[Any]:
        while True:
            page = await self._call(method, request)
            for item in items(page):
                yield item
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def _seconds(message: Any, field: str) -> float | None:
    if not message.HasField(field):
        return None
    return cast("float", getattr(message, field).ToMicroseconds() / 1e6)
