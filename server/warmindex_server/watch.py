"""The recent effects on the index, in order: what watchers read from.

    store --applied--> EffectLog --after(revision)--> watchers, each at its own revision

A watcher is a place in this log and nothing more: a slow one costs no memory. What is
oldest goes when the log is full, and a watcher that stood before it has to begin anew with a
snapshot. For that its stream's `cut_revision` is enough: everything after that is there.

A stream is what one watch follows: a (tenant, model), or a tenant with all its models. Every
effect is in two streams, and wakes only those who follow one of them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warmindex.event import CacheEvent
    from warmindex.index import Applied, Change
    from warmindex.record import Record

# A million holds in events of a thousand 8-byte hashes, or 40 thousand 384-wide vectors:
# what a fleet publishes in the minutes in which a watcher finds another server.
KEPT_BYTES: Final = 64 * 2**20
# While a snapshot is being sent, what comes meanwhile must still be there at its end, or the
# watcher begins anew, and again, as long as a fleet that fills up publishes at full speed.
HELD_BYTES: Final = 256 * 2**20

# The objects of one record's effects, of one change, of one hash beside its bytes, of a text.
_EFFECTS_BYTES: Final = 600
_CHANGE_BYTES: Final = 150
_HASH_BYTES: Final = 41
_DOCUMENT_BYTES: Final = 170

StreamKey: TypeAlias = tuple[str, str]


class Effects(NamedTuple):
    """What one record changed; `size_bytes` estimates what it keeps in memory."""

    revision: int
    changes: Sequence[Change]
    size_bytes: int


class Stream:
    """The effects of one (tenant, model), or of a tenant (model "") in all its models."""

    __slots__ = ("_effects", "_sleepers", "_start", "_waking", "cut_revision", "followers")

    def __init__(self, cut_revision: int) -> None:
        # Every effect after this revision is here.
        self.cut_revision = cut_revision
        self._effects: list[Effects] = []
        self._start = 0  # before this place all is forgotten
        self.followers = 0
        self._sleepers: set[asyncio.Future[None]] = set()
        self._waking = False

    @property
    def idle(self) -> bool:
        """Whether nothing is in it, and no one follows it."""
        return self._start == len(self._effects) and not self.followers

    def after(self, revision: int) -> Effects | None:
        """The first effects after a revision.

        One record's at a time: a watcher that waits for its client holds on to no more.
        """
        place = bisect_right(self._effects, revision, self._start, key=_revision_of)
        return self._effects[place] if place < len(self._effects) else None

    async def sleep(self, timeout_s: float) -> None:
        """Return when something has come, when someone wakes all, or when time is up."""
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(timeout_s, _end, sleeper)
        self._sleepers.add(sleeper)
        try:
            await sleeper
        finally:
            timer.cancel()
            self._sleepers.discard(sleeper)

    def wake(self) -> None:
        """End all sleeps."""
        self._waking = False
        sleepers, self._sleepers = self._sleepers, set()
        for sleeper in sleepers:
            _end(sleeper)

    def append(self, effects: Effects) -> None:
        """Take the newest effects, and wake who sleeps once for all that come in this step."""
        self._effects.append(effects)
        if self._sleepers and not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self.wake)

    def drop_first(self) -> None:
        """Forget the oldest effects."""
        self.cut_revision = self._effects[self._start].revision
        self._effects[self._start] = _FORGOTTEN
        self._start += 1
        if 2 * self._start > len(self._effects):
            del self._effects[: self._start]
            self._start = 0


class EffectLog:
    """The streams of one index. `revision` is the last one that the log was told of.

    `generation` counts the times another index took the place of the one it tells of: whoever
    followed that one follows anew.
    """

    def __init__(
        self, revision: int, kept_bytes: int = KEPT_BYTES, held_bytes: int = HELD_BYTES
    ) -> None:
        """Begin after `revision`: nothing before it is there."""
        self.revision = revision
        self.generation = 0
        self.size_bytes = 0
        self._kept_bytes = kept_bytes
        self._held_bytes = held_bytes
        self._snapshots = 0
        self._cut_revision = revision
        self._streams: dict[StreamKey, Stream] = {}
        self._order: deque[tuple[StreamKey, Effects]] = deque()

    def anew(self, revision: int) -> EffectLog:
        """Another one with the same limits, that begins after `revision`."""
        return EffectLog(revision, self._kept_bytes, self._held_bytes)

    def replace(self, other: EffectLog, revision: int) -> None:
        """Go on as another log, which tells of another index at `revision`; all watchers wake."""
        streams = self._streams.values()
        self.generation += 1
        self.revision = revision
        self.size_bytes = other.size_bytes
        self._cut_revision = other._cut_revision
        self._streams = other._streams
        self._order = other._order
        for stream in streams:
            stream.wake()

    def applied(self, _record: Record, applied: Applied) -> None:
        """Take note of what a record did; every record moves the revision."""
        self.revision = applied.revision
        if not applied.changes:
            return
        event = applied.changes[0].event
        effects = Effects(applied.revision, applied.changes, _size_bytes(applied.changes))
        key = (event.tenant_id, event.model_id)
        self._stream(key).append(effects)
        self._stream((event.tenant_id, "")).append(effects)
        self._order.append((key, effects))
        self.size_bytes += effects.size_bytes
        self._cut()

    @contextmanager
    def followed(self, tenant_id: str, model_id: str) -> Iterator[Stream]:
        """The stream of a (tenant, model), or of a tenant; it stays while it is followed."""
        stream = self._stream((tenant_id, model_id))
        stream.followers += 1
        try:
            yield stream
        finally:
            stream.followers -= 1
            if stream.idle and self._streams.get((tenant_id, model_id)) is stream:
                del self._streams[tenant_id, model_id]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep more than usual, because someone will need it when their snapshot is sent."""
        self._snapshots += 1
        try:
            yield
        finally:
            self._snapshots -= 1
            self._cut()

    def wake_all(self) -> None:
        """End all sleeps."""
        for stream in list(self._streams.values()):
            stream.wake()

    def _stream(self, key: StreamKey) -> Stream:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream(self._cut_revision)
        return stream

    def _cut(self) -> None:
        limit = self._held_bytes if self._snapshots else self._kept_bytes
        while self.size_bytes > limit:
            (tenant_id, model_id), effects = self._order.popleft()
            self.size_bytes -= effects.size_bytes
            self._cut_revision = effects.revision
            for key in ((tenant_id, model_id), (tenant_id, "")):
                stream = self._streams[key]
                stream.drop_first()
                if stream.idle:
                    del self._streams[key]


_revision_of = attrgetter("revision")
_FORGOTTEN: Final = Effects(0, (), 0)


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)


def _size_bytes(changes: Sequence[Change]) -> int:
    size = _EFFECTS_BYTES
    events: dict[int, CacheEvent] = {}
    for change in changes:
        size += _CHANGE_BYTES + 8 * len(change.content_hashes)
        events[id(change.event)] = change.event
    for event in events.values():
        hashes = event.content_hashes
        if hashes:
            size += len(hashes) * (_HASH_BYTES + len(hashes[0]))
        if event.embeddings is not None:
            size += event.embeddings.nbytes
        for document in event.documents:
            size += _DOCUMENT_BYTES + len(document.name) + len(document.description)
    return size
