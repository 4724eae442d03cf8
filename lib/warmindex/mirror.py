"""A copy of a part of the index in this process, kept up to date by a watch.

    async with Mirror(client, model_id=identity) as mirror:
        await mirror.ready()
        found = mirror.fetch(key, hashes)            # microseconds, and no server needed

States of the copy:

    empty     nothing yet: reads answer as an empty index does, `usable` is false
    usable    it was whole once, and has followed since; it stays so while servers are away
    distrusted  something came that this version does not know: as empty, until a snapshot
              has come

A snapshot is built beside the copy that serves and takes its place when it is whole. The
watch goes on where it stood, with its cursor, on whichever server can be reached. What the
copy does not have, a server may have by now: asking one is the caller's business, and so is
what to do with `lag`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self

from warmindex.errors import UnavailableError, WarmindexError
from warmindex.index import Index, Outcome
from warmindex.index.route import Route, lookup
from warmindex.index.search import SearchOptions
from warmindex.index.selection import Selection
from warmindex.watch_stream import StepKind, WatchStep

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
    from types import TracebackType

    from warmindex.answers import ServerInfo
    from warmindex.event import PartitionKey
    from warmindex.index.index import Query
    from warmindex.index.partition import Fetched
    from warmindex.index.search import Hit

_log = logging.getLogger(__name__)

# A server that is back is wanted at once; one that stays away is not asked all the time.
RETRY_S_FIRST: Final = 0.1
RETRY_S_MAX: Final = 5.0
# A server says something every 30 s or so. After this the connection is taken for dead,
# whatever it looks like.
SILENCE_S_MAX: Final = 75.0
# A step that had to be waited for this long was not lying ready: the copy had everything.
CURRENT_S: Final = 0.02
# All of them: nothing limits what a caller copies within its own process.
_FETCH_BYTES_MAX: Final = 2**62


class Source(Protocol):
    """Where a mirror gets what it has: an `IndexClient`."""

    def watch(self, selection: Selection, cursor: str = "") -> AsyncGenerator[WatchStep, None]:
        """The steps of one watch, as in `watch_stream`."""

    async def server_info(self) -> ServerInfo:
        """What the server says of itself."""


class Lag(NamedTuple):
    """How far a copy may be behind.

    `revisions` is the distance to the newest revision that it knows of, those of other
    models and tenants among them; `seconds` is the time since it surely had everything. Both
    are 0 while the watch is open and has nothing to tell.
    """

    revisions: int
    seconds: float


class Mirror:
    """See the module's text. Start it inside a running event loop; close it before its client."""

    def __init__(
        self,
        client: Source,
        tenant_id: str = "",
        *,
        model_id: str = "",
        adapter_ids: Iterable[str] = (),
        embeddings: bool = True,
        documents: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Follow one tenant; all models where `model_id` is "", all adapters without any."""
        self.selection = Selection(
            tenant_id, model_id, frozenset(adapter_ids), embeddings, documents
        )
        self.usable = False
        # Why the copy is not being kept up to date just now; "" where it is.
        self.problem = "not started"
        self.resets = 0
        self._client = client
        self._clock = clock
        self._index = Index()
        self._cursor = ""
        self._building: Index | None = None
        self._live = False
        self._head = 0
        self._current_s = clock()
        self._waiting_since_s: float | None = None
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._reclaiming: asyncio.Task[None] | None = None

    # ---- life --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to follow."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop following; the copy stays as it is. May be called twice."""
        tasks = [task for task in (self._task, self._reclaiming) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._live = False
        self.problem = "closed"

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def ready(self, timeout_s: float | None = None) -> None:
        """Return when the copy is usable. Raises TimeoutError."""
        await self._until(lambda: self.usable, timeout_s)

    async def reached(self, revision: int, timeout_s: float | None = None) -> None:
        """Return when the copy has what a publish changed at `revision`.

        For one that changed something of the selection; otherwise it is the next such change,
        or half a minute. Raises TimeoutError.
        """
        await self._until(lambda: self.usable and self.revision >= revision, timeout_s)

    # ---- reading -----------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The revision that the copy has reached; 0 while there is none."""
        return self._index.revision

    @property
    def lag(self) -> Lag | None:
        """How far the copy may be behind; None while it is not usable."""
        if not self.usable:
            return None
        if self._is_current():
            return Lag(0, 0.0)
        return Lag(max(0, self._head - self.revision), self._clock() - self._current_s)

    def fetch(
        self, key: PartitionKey, hashes: Sequence[bytes], bytes_max: int = _FETCH_BYTES_MAX
    ) -> Fetched:
        """The vectors that the copy has for some hashes, as many as fit into `bytes_max`."""
        return self._index.fetch(key, hashes, bytes_max)

    def search(
        self, key: PartitionKey, query: Query, options: SearchOptions | None = None
    ) -> list[Hit]:
        """The best documents of a partition, as the server's Search ranks them.

        Raises InvalidError where the query has another width than the partition's vectors.
        """
        return self._index.search(key, query, options or SearchOptions())

    def lookup(
        self,
        key: PartitionKey,
        chains: Mapping[str, Sequence[bytes]],
        *,
        limit: int = 0,
        replica_ids: Collection[str] = (),
    ) -> Route:
        """Who holds the longest beginning of a prompt; `chains` as in `index.route.lookup`."""
        return lookup(self._index, key, chains, limit=limit, replica_ids=replica_ids)

    # ---- following ---------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = RETRY_S_FIRST
        while True:
            try:
                await self._follow()
                self.problem = "the server has ended the watch"
            except TimeoutError:
                self.problem = f"the server has said nothing for {SILENCE_S_MAX:g} s"
            except UnavailableError as error:
                self.problem = error.message
            except WarmindexError as error:
                if self.problem != error.message:
                    _log.error("the mirror cannot follow: %s", error.message)
                self.problem = error.message
            if self._live:
                pause_s = RETRY_S_FIRST
            self._live, self._waiting_since_s, self._building = False, None, None
            # Many mirrors lose the same server at once, and need not find the next together.
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def _follow(self) -> None:
        """One watch, to its end."""
        with suppress(WarmindexError):
            self._head = max(self._head, (await self._client.server_info()).revision)
        loop = asyncio.get_running_loop()
        async with (
            asyncio.timeout(SILENCE_S_MAX) as silence,
            aclosing(self._client.watch(self.selection, self._cursor)) as steps,
        ):
            async for step in steps:
                silence.reschedule(loop.time() + SILENCE_S_MAX)
                self._note_current()
                self._take(step)
                self._changed.set()
                self._waiting_since_s = self._clock()

    def _note_current(self) -> None:
        """A step has come: where it had to be waited for, the copy had everything until now."""
        if self._is_current():
            self._current_s = self._clock()
        self._waiting_since_s = None

    def _is_current(self) -> bool:
        since_s = self._waiting_since_s
        return self._live and since_s is not None and self._clock() - since_s > CURRENT_S

    def _take(self, step: WatchStep) -> None:
        kind, event = step.kind, step.event
        self._head = max(self._head, step.revision)
        if kind is StepKind.CHANGE and event is not None and self._building is not None:
            self._building.restore(event)
        elif kind is StepKind.CHANGE and event is not None and self._live:
            if self._index.apply(step.revision, event).outcome is Outcome.REFUSED:
                self._distrust("a change does not fit the copy")
            self._reclaim()
        elif kind is StepKind.RESET:
            self._building, self._live = Index(step.revision), False
            self.resets += 1
        elif kind is StepKind.LIVE:
            self._go_live()
        elif kind is StepKind.IDLE and self._live:
            self._index.revision = step.revision
        elif kind is not StepKind.CLOSING:
            self._distrust("the server told something that this version does not know")
        if step.cursor:
            self._cursor = step.cursor

    def _go_live(self) -> None:
        if self._building is not None:
            self._index, self._building = self._building, None
        self._live = self.usable = True
        self._current_s = self._clock()
        self.problem = ""

    def _distrust(self, why: str) -> None:
        """Forget the copy, and begin again with a snapshot."""
        _log.warning("the mirror begins anew: %s", why)
        self._index, self._cursor = Index(), ""
        self._live = self.usable = False
        raise UnavailableError(why)

    def _reclaim(self) -> None:
        """Give back what clears have retired, a step at a time."""
        if self._index.reclaimable and self._reclaiming is None:
            self._reclaiming = asyncio.create_task(self._reclaim_all(self._index))

    async def _reclaim_all(self, index: Index) -> None:
        for _ in iter(index.reclaim_step, False):
            await asyncio.sleep(0)
        self._reclaiming = None

    async def _until(self, reached: Callable[[], bool], timeout_s: float | None) -> None:
        async with asyncio.timeout(timeout_s):
            while not reached():
                self._changed.clear()
                await self._changed.wait()
