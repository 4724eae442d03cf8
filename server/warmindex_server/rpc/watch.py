"""WatchEvents: a snapshot, then every change, in order; or the changes after a cursor.

    begin --no cursor, or none that can be followed--> RESET, snapshot, LIVE --+
      |                                                                        v
      +--cursor-------------------------------------> LIVE ------------->  changes
                                                                               |
                        RESET … again  <--fell behind what is kept, or         |
                                          another history-----------------------+

A watch stands at a revision: everything up to it is sent. It never jumps: where the log no
longer has what comes next, the watch says so with a reset and starts from a snapshot.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from warmindex import limits
from warmindex.errors import InvalidError, Reason, RevisionNotReachedError
from warmindex.event import CacheEvent, check_adapter_id, check_model_id, check_tenant_id
from warmindex.index.selection import Selection
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import event_to_wire

from warmindex_server.access import allow_tenant
from warmindex_server.rpc.cursors import CursorScope
from warmindex_server.rpc.effects import Encoder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from warmindex.record import SnapshotPart

    from warmindex_server.store import Store
    from warmindex_server.watch import EffectLog, Stream

# How long a watch may be silent: below the idle timeouts of load balancers (60 s and more),
# and often enough that a quiet watch's cursor stays within what is kept.
IDLE_S: Final = 30.0
# How long a server that shares its journal may take to reach a cursor that another server
# gave out. What it has not reached by then lies beyond the journal's end.
CURSOR_WAIT_S: Final = limits.MIN_REVISION_WAIT_S


class Watches:
    """All watches of one server."""

    def __init__(self, store: Store, idle_s: float = IDLE_S) -> None:
        self.store = store
        self.idle_s = idle_s
        self.encoder = Encoder()
        self.closing = False
        # A step of a snapshot takes a millisecond or two: one at a time between others' turns,
        # however many watchers begin anew at once.
        self.turn = asyncio.Lock()

    def close(self) -> None:
        """Let every watch end with KIND_CLOSING."""
        self.closing = True
        self.store.log.wake_all()

    async def watch(self, request: pb.WatchEventsRequest) -> AsyncIterator[bytes]:
        """One watch, as the bytes of its responses."""
        watch = _Watch(self, _selection(request))
        async for response in watch.responses(request.cursor):
            watch.sent_s = time.monotonic()
            yield response


def _selection(request: pb.WatchEventsRequest) -> Selection:
    check_tenant_id(request.tenant_id, "tenant_id")
    allow_tenant(request.tenant_id, "tenant_id")
    check_model_id(request.model_id, "model_id")
    if len(request.adapter_ids) > limits.WATCH_ADAPTERS_MAX:
        raise InvalidError(
            f"adapter_ids has {len(request.adapter_ids)} names; at most "
            f"{limits.WATCH_ADAPTERS_MAX} go into one watch: open several, or watch all",
            field="adapter_ids",
            reason=Reason.TOO_MANY,
        )
    for adapter_id in request.adapter_ids:
        check_adapter_id(adapter_id, "adapter_ids")
    return Selection(
        request.tenant_id,
        request.model_id,
        frozenset(request.adapter_ids),
        not request.omit_embeddings,
        not request.omit_documents,
    )


def _pages(step: Sequence[SnapshotPart] | None, revision: int) -> list[bytes] | None:
    """The responses of one step of a snapshot; None after the last."""
    if step is None:
        return None
    return [
        pb.WatchEventsResponse(event=event_to_wire(part), revision=revision).SerializeToString()
        for part in step
        if isinstance(part, CacheEvent)
    ]


class _Watch:
    """One watch. `_position` is the revision it stands at; None before a snapshot."""

    def __init__(self, watches: Watches, selection: Selection) -> None:
        self._watches = watches
        self._store: Store = watches.store
        self._log: EffectLog = watches.store.log
        self._selection = selection
        self._scope = CursorScope(self._store.history_id, selection)
        self._position: int | None = None
        self._resuming = False
        self.sent_s = time.monotonic()

    async def responses(self, cursor: str) -> AsyncIterator[bytes]:
        await self._resume(cursor)
        while not self._watches.closing:
            scope = CursorScope(self._store.history_id, self._selection)
            if scope != self._scope:
                self._scope, self._position = scope, None
            part = self._snapshot() if self._position is None else self._changes(self._position)
            async for response in part:
                yield response
        yield self._bookmark(pb.Bookmark.KIND_CLOSING, self._position)

    async def _resume(self, cursor: str) -> None:
        """Stand where a cursor says, if this server is or comes to be so far."""
        revision = self._scope.revision(cursor)
        if revision is None:
            return
        while revision > self._store.revision and self._store.journal.shared:
            with suppress(RevisionNotReachedError):
                await self._store.wait_for_revision(revision, CURSOR_WAIT_S)
            # While the journal is away, nobody can tell where it ends.
            if not self._store.problem or self._watches.closing:
                break
        if revision <= self._store.revision:
            self._position = revision
            self._resuming = True

    async def _snapshot(self) -> AsyncIterator[bytes]:
        """Reset, snapshot, live: then the watch stands at the snapshot's revision."""
        self._resuming = False
        key = self._selection[:2]
        with (
            await self._store.open_snapshot(self._selection) as snapshot,
            self._log.held(),
            self._log.followed(*key) as stream,
        ):
            generation, revision = self._log.generation, snapshot.revision
            yield self._bookmark(pb.Bookmark.KIND_RESET, None, revision)
            steps = snapshot.steps()
            while True:
                async with self._watches.turn:
                    pages = _pages(next(steps, None), revision)
                    # The turn is over when everybody else has had theirs.
                    await asyncio.sleep(0)
                if pages is None:
                    break
                for page in pages:
                    yield page
                if self._watches.closing or self._lost(stream, generation, revision):
                    return
            self._position = revision
            yield self._bookmark(pb.Bookmark.KIND_LIVE, revision)

    async def _changes(self, position: int) -> AsyncIterator[bytes]:
        """Every change after the watch's position, until something ends that."""
        log, encoder = self._log, self._watches.encoder
        generation = log.generation
        with log.followed(*self._selection[:2]) as stream, encoder.shared(self._scope):
            while not self._watches.closing and log.generation == generation:
                if self._lost(stream, generation, position):
                    self._position = None
                    return
                if self._resuming:
                    self._resuming = False
                    yield self._bookmark(pb.Bookmark.KIND_LIVE, position)
                effects = stream.after(position)
                if effects is not None:
                    for response in encoder.responses(self._scope, self._selection, effects):
                        yield response
                    self._position = position = effects.revision
                else:
                    # What else was applied meanwhile is of other streams.
                    self._position = position = max(position, log.revision)
                quiet_s = time.monotonic() - self.sent_s
                if quiet_s >= self._watches.idle_s:
                    yield self._bookmark(pb.Bookmark.KIND_IDLE, position)
                elif effects is not None:
                    await self._store.give_way()
                else:
                    await stream.sleep(self._watches.idle_s - quiet_s)

    def _lost(self, stream: Stream, generation: int, position: int) -> bool:
        """Whether what follows a position is no longer there."""
        return self._log.generation != generation or stream.cut_revision > position

    def _bookmark(
        self, kind: pb.Bookmark.Kind.ValueType, position: int | None, revision: int | None = None
    ) -> bytes:
        if revision is None:
            revision = self._store.revision if position is None else position
        return pb.WatchEventsResponse(
            bookmark=pb.Bookmark(kind=kind),
            cursor="" if position is None else self._scope.cursor(position),
            revision=revision,
        ).SerializeToString()
