"""Effects as a watch's responses, in bytes: made once for all watchers of the same thing.

Effects + selection --> one response a change, or several where it is too large
                        the last one of them all has the cursor
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

from warmindex import limits
from warmindex.event import EventType
from warmindex.v1 import event_pb2, index_service_pb2
from warmindex.wire import document_to_wire, rows_to_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from warmindex.index import Change
    from warmindex.index.selection import Selection

    from warmindex_server.rpc.cursors import CursorScope
    from warmindex_server.watch import Effects

# Watchers of the same thing that keep up read a response within milliseconds of each other;
# whoever is further behind pays for the encoding of its own.
CACHE_BYTES: Final = 16 * 2**20
# An event that reaches more partitions and tiers than this, or a report, is encoded as it is
# sent, by each watch for itself: keeping it would hold memory, and encoding it at once the loop.
CACHED_CHANGES_MAX: Final = 8


class Encoder:
    """Responses of one server's watches; those that several watchers read are kept a while."""

    def __init__(self, cache_bytes: int = CACHE_BYTES) -> None:
        self.encoded = 0
        self._cache_bytes = cache_bytes
        self._watchers: Counter[CursorScope] = Counter()
        self._cache: OrderedDict[tuple[CursorScope, int], Sequence[bytes]] = OrderedDict()
        self._size_bytes = 0

    @contextmanager
    def shared(self, scope: CursorScope) -> Iterator[None]:
        """Count a watcher of a scope: where there are two, what one has encoded is kept."""
        self._watchers[scope] += 1
        try:
            yield
        finally:
            self._watchers[scope] -= 1
            if not self._watchers[scope]:
                del self._watchers[scope]

    def responses(
        self, scope: CursorScope, selection: Selection, effects: Effects
    ) -> Iterable[bytes]:
        """The responses that tell a watch of one revision's effects; none where none matches."""
        if self._watchers[scope] < 2 or len(effects.changes) > CACHED_CHANGES_MAX:
            return self._encoded(scope, selection, effects)
        key = (scope, effects.revision)
        known = self._cache.get(key)
        if known is None:
            known = list(self._encoded(scope, selection, effects))
            self._keep(key, known)
        return known

    def _encoded(
        self, scope: CursorScope, selection: Selection, effects: Effects
    ) -> Iterator[bytes]:
        """One after the other as they are asked for: a report may have changed millions."""
        before = None
        for change in filter(selection.has, effects.changes):
            self.encoded += 1
            for event in events_of(change, selection):
                if before is not None:
                    yield _response(before, "", effects.revision)
                before = event
        if before is not None:
            yield _response(before, scope.cursor(effects.revision), effects.revision)

    def _keep(self, key: tuple[CursorScope, int], responses: Sequence[bytes]) -> None:
        self._cache[key] = responses
        self._size_bytes += sum(map(len, responses))
        while self._size_bytes > self._cache_bytes:
            _, oldest = self._cache.popitem(last=False)
            self._size_bytes -= sum(map(len, oldest))


def _response(event: event_pb2.CacheEvent, cursor: str, revision: int) -> bytes:
    return index_service_pb2.WatchEventsResponse(
        event=event, cursor=cursor, revision=revision
    ).SerializeToString()


def events_of(change: Change, selection: Selection) -> Iterator[event_pb2.CacheEvent]:
    """A change as an event, or as several that are each within an event's limit."""
    message = event_of(change, selection)
    count = len(change.content_hashes)
    if count < 2 or message.ByteSize() <= limits.EVENT_BYTES_MAX:
        yield message
        return
    hashes = change.content_hashes
    positions = range(count) if change.positions is None else change.positions
    for half in (slice(None, count // 2), slice(count // 2, None)):
        part = change._replace(content_hashes=hashes[half], positions=positions[half])
        yield from events_of(part, selection)


def event_of(change: Change, selection: Selection) -> event_pb2.CacheEvent:
    """The effect as the contract has it: filled in, scoped to its adapter, without a number."""
    event = change.event
    message = event_pb2.CacheEvent(
        type=cast("event_pb2.CacheEvent.Type.ValueType", event.type.value),
        replica_id=event.replica_id,
        model_id=event.model_id,
        tenant_id=event.tenant_id,
        content_hashes=change.content_hashes,
        timestamp_us=event.timestamp_us,
        adapter_id=change.adapter_id,
        adapter_scoped=event.type is EventType.EVICTED,
        hash_scheme=change.hash_scheme,
        token_count=event.token_count,
        tier=cast("event_pb2.CacheTier.ValueType", change.tier.value),
        cause=cast("event_pb2.CacheEvent.Cause.ValueType", event.cause.value),
    )
    if event.type is not EventType.EMBEDDED:
        return message
    places = change.positions
    if selection.embeddings and event.embeddings is not None:
        rows = event.embeddings if places is None else event.embeddings[list(places)]
        message.embeddings.CopyFrom(rows_to_wire(rows))
    if selection.documents and event.documents:
        documents = event.documents
        chosen = documents if places is None else [documents[place] for place in places]
        message.documents.extend(map(document_to_wire, chosen))
    return message
