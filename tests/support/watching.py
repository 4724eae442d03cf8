"""A watcher in a test: it keeps what it was told, and an index made of that alone.

Whatever it receives is held to the contract at once: which responses may have a cursor, what
an effect looks like, revisions that never go back, snapshots of one revision.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import grpc
from support.questions import content
from warmindex import limits
from warmindex.index import Index
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub
from warmindex.wire import change_from_wire

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

# Longer than any test's story takes; a test that gets here has failed.
WAIT_S_MAX = 30.0
# What a client takes that says nothing about it.
DEFAULT_RESPONSE_BYTES_MAX = 4 * limits.MIB

RESET = pb.Bookmark.KIND_RESET
LIVE = pb.Bookmark.KIND_LIVE
IDLE = pb.Bookmark.KIND_IDLE
CLOSING = pb.Bookmark.KIND_CLOSING


async def until(reached: Callable[[], bool]) -> None:
    """Let others run until something holds of which nobody tells."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not reached():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)


class Watcher:
    """One watch over a connection of its own, with a default client's limits."""

    def __init__(self, address: str, **fields: Any) -> None:
        self._address = address
        self.request = pb.WatchEventsRequest(**fields)
        self.responses: list[pb.WatchEventsResponse] = []
        self.cursor = ""
        self.revision = 0
        self.live = False
        self._greeted = False  # by this connection
        self._whole_revision = 0
        self.begun = 0  # how often it connected without a cursor
        self._untold: list[event_pb2.CacheEvent] = []
        self.copy = Index()
        self._channel: grpc.aio.Channel | None = None
        self._call: Any = None
        self._reading: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.disconnect()

    async def connect(self, address: str | None = None, **fields: Any) -> None:
        """Watch, from the last cursor on if there is one."""
        # What was told of a revision that was not told in whole comes again.
        self._untold.clear()
        self._greeted = False
        self.revision = self._whole_revision
        self.begun += not self.cursor
        self._address = address or self._address
        self._channel = grpc.aio.insecure_channel(self._address)
        request = pb.WatchEventsRequest()
        request.CopyFrom(self.request)
        request.MergeFrom(pb.WatchEventsRequest(**{"cursor": self.cursor, **fields}))
        self._call = IndexServiceStub(self._channel).WatchEvents(request)

    async def disconnect(self) -> None:
        """Hang up."""
        if self._channel is not None:
            self._call.cancel()
            if self._reading is not None:
                await asyncio.wait({self._reading})
                self._reading = None
            await self._channel.close()
            self._channel = None

    async def next(self, wait_s: float = WAIT_S_MAX) -> pb.WatchEventsResponse | None:
        """The next response; None at the end of the watch. A TimeoutError breaks nothing."""
        self._reading = self._reading or asyncio.ensure_future(self._call.read())
        done, _ = await asyncio.wait({self._reading}, timeout=wait_s)
        if not done:
            raise TimeoutError
        response = self._reading.result()
        self._reading = None
        if response is grpc.aio.EOF:
            return None
        self.take(response)
        return response

    async def bookmark(self, kind: int) -> pb.WatchEventsResponse:
        """Read on up to a bookmark of a kind."""
        while True:
            response = await self.next()
            assert response is not None, "the watch has ended"
            if response.WhichOneof("update") == "bookmark" and response.bookmark.kind == kind:
                return response

    async def until(self, revision: int) -> None:
        """Read on until a revision is told in whole."""
        while not self.live or self.revision < revision or not self.responses[-1].cursor:
            assert await self.next() is not None, "the watch has ended"

    def events(self) -> list[event_pb2.CacheEvent]:
        """The events so far."""
        return [each.event for each in self.responses if each.WhichOneof("update") == "event"]

    def kinds(self) -> list[int]:
        """The bookmarks so far."""
        found = [each for each in self.responses if each.WhichOneof("update") == "bookmark"]
        return [each.bookmark.kind for each in found]

    def content(self) -> Any:
        """What the watcher's own index has."""
        return content(self.copy)

    def take(self, response: pb.WatchEventsResponse) -> None:
        """Hold a response to the contract, and take it into the copy."""
        assert response.ByteSize() <= DEFAULT_RESPONSE_BYTES_MAX
        self.responses.append(response)
        if not self._greeted and response.bookmark.kind == CLOSING:
            # It went away before it came to where this watch stands; maybe it was behind that.
            assert not response.cursor or response.cursor == self.cursor
            return
        self._greeted = True
        assert response.revision >= self.revision
        if response.WhichOneof("update") == "bookmark":
            self._take_bookmark(response)
        else:
            self._take_event(response)
        self.revision = response.revision
        if response.cursor:
            self.cursor, self._whole_revision = response.cursor, response.revision

    def _take_bookmark(self, response: pb.WatchEventsResponse) -> None:
        kind = response.bookmark.kind
        assert kind in (RESET, LIVE, IDLE, CLOSING)
        if kind == RESET:
            assert not response.cursor
            self.copy = Index(response.revision)
            self._untold.clear()
            self.cursor = ""
            self.live = False
        else:
            assert response.cursor or (kind == CLOSING and not self.live)
            self.live = self.live or kind == LIVE

    def _take_event(self, response: pb.WatchEventsResponse) -> None:
        event = response.event
        assert not event.epoch
        assert not event.sequence
        clear = event.type == event_pb2.CacheEvent.ALL_CLEARED
        assert clear or (event.hash_scheme and event.tier and event.content_hashes)
        assert event.adapter_scoped == (event.type == event_pb2.CacheEvent.EVICTED)
        if self.live:
            self._untold.append(event)
            if response.cursor:
                for each in self._untold:
                    applied = self.copy.apply(response.revision, change_from_wire(each))
                    left_out = self.request.omit_embeddings or self.request.omit_documents
                    told = applied.changes or left_out or not each.content_hashes
                    assert told, "a change that changes nothing"
                self._untold.clear()
        else:
            assert not response.cursor
            assert response.revision == self.copy.revision, "a snapshot of several revisions"
            assert event.type == event_pb2.CacheEvent.EMBEDDED
            self.copy.restore(change_from_wire(event))
