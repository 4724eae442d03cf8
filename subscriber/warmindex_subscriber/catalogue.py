"""Keeps the index warm with what catalogues list: publishes what is new, evicts what has gone.

    files --read--> tools --by content hash--> build (fetch, embed, publish) --> held
                                      +------> evict what was held and is listed no longer

Whatever several catalogues list is embedded once and held once; it goes when the last of them
drops it. At the start the index is asked what an earlier life of this holder had published in
the same partition, and what is listed no longer goes. Later the index is asked now and then
for all that is listed: that keeps it from going idle, and what the index has lost is published
again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from warmindex import limits
from warmindex.build import Builder, Built, Counts, Item
from warmindex.client import IndexClient
from warmindex.embedders import Embedder
from warmindex.errors import NotBuiltError, UnavailableError, WarmindexError
from warmindex.event import CacheEvent, EventType
from warmindex.hashing import TEXT_SHA256
from warmindex.index.selection import Selection
from warmindex.tools import Tool, by_hash
from warmindex.watch_stream import StepKind

_log = logging.getLogger(__name__)

# Everything listed is asked for this often: well within the days after which an index lets
# go of what nobody has touched.
REFRESH_S: Final = 3600.0
# How often the index is asked whether it still is the one that was published to.
HISTORY_CHECK_S: Final = 30.0
# What a holder holds in a partition is told in a second or two, also where it is a million keys.
SNAPSHOT_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Summary:
    """What one synchronisation did."""

    listed: int
    counts: Counts
    evicted: int
    seconds: float
    problems: Sequence[str]

    def __str__(self) -> str:
        """One line for the log."""
        counts = self.counts
        line = (
            f"{self.listed} texts: reused {counts.reused}, waited {counts.waited}, "
            f"embedded {counts.embedded}, failed {counts.failed}, evicted {self.evicted}, "
            f"{self.seconds:.2f} s"
        )
        return f"{line}; {'; '.join(self.problems[:3])}" if self.problems else line


class Catalogue:
    """One holder's tools in one tenant and adapter."""

    def __init__(
        self,
        embedder: Embedder,
        client: IndexClient,
        *,
        replica_id: str,
        tenant_id: str = "",
        adapter_id: str = "",
    ) -> None:
        self._client = client
        self._replica_id = replica_id
        self._tenant_id = tenant_id
        self._adapter_id = adapter_id
        self._builder = Builder(
            embedder,
            client,
            replica_id=replica_id,
            tenant_id=tenant_id,
            adapter_id=adapter_id,
            hold_found=True,
        )
        self._model_id = ""
        self._held: set[bytes] = set()
        self._history_id = ""
        # Whether `_held` is all that this holder has in the partition.
        self._knows_held = False

    @property
    def counts(self) -> Counts:
        """What became of the texts of all synchronisations."""
        return self._builder.counts

    async def synchronise(
        self,
        tools: Iterable[Tool],
        progress: Callable[[int, int], None] | None = None,
        *,
        complete: bool = True,
    ) -> Summary:
        """Bring the index to what is listed; everything listed is touched on the way.

        `complete` False says that something is listed which could not be read: nothing is
        evicted then.
        """
        started = time.perf_counter()
        grouped, refused = by_hash(tools)
        problems = [f"tool {tool.name!r} is left out: {why}" for tool, why in refused]
        items = {
            content_hash: Item(same[0].text, same[0].document)
            for content_hash, same in grouped.items()
        }
        total = len(items)
        built = await self._builder.build(
            items, lambda done: progress(done, total) if progress else None
        )
        evicted = 0
        try:
            if complete:
                evicted = await self._let_go(built)
            else:
                self._knows_held = False
        except WarmindexError as error:
            built.counts.index_errors += 1
            problems.append(f"not all that has gone was evicted: {error.message}")
        return Summary(
            len(items),
            built.counts,
            evicted,
            time.perf_counter() - started,
            [*problems, *built.problems],
        )

    async def history_changed(self) -> bool:
        """Whether the index has lost its history since the last synchronisation."""
        info = await self._client.server_info()
        return bool(self._history_id) and info.history_id != self._history_id

    # ---- letting go --------------------------------------------------------------------

    async def _let_go(self, built: Built) -> int:
        """Evict what is held and no longer listed; how many holds went.

        Where the model is another, all that was held under the last one goes.
        """
        if not built.model_id or built.counts.index_errors:
            return 0
        listed = set(built.vectors)
        evicted = 0
        if self._model_id and self._model_id != built.model_id:
            evicted += await self._clear(self._model_id)
            self._held, self._knows_held = set(), False
        self._model_id = built.model_id
        if not self._knows_held:
            self._held |= await self._held_before(built.model_id)
            self._knows_held = True
        gone = self._held - listed - set(built.failures)
        evicted += await self._evict(built.model_id, sorted(gone))
        self._held = (self._held - gone) | listed
        self._history_id = built.history_id or (await self._client.server_info()).history_id
        return evicted

    async def _held_before(self, model_id: str) -> set[bytes]:
        """What this holder has in the partition, also from an earlier life.

        A ReportState would tell the index all of this at once, and take the holder's content
        out of every other adapter's partition: other subscribers may fill those under its name.
        """
        selection = Selection(
            self._tenant_id, model_id, frozenset((self._adapter_id,)), False, False
        )
        held: set[bytes] = set()
        try:
            async with asyncio.timeout(SNAPSHOT_S_MAX):
                async with aclosing(self._client.watch(selection)) as steps:
                    async for step in steps:
                        if step.kind is StepKind.LIVE:
                            return held
                        held.update(self._own(step.event))
        except NotBuiltError:
            return held
        except TimeoutError:
            raise UnavailableError("the index does not tell what it has") from None
        raise UnavailableError("the index went away while it told what it has")

    def _own(self, event: CacheEvent | None) -> Sequence[bytes]:
        """The texts that a part of a snapshot says this holder has."""
        if event is None or event.replica_id != self._replica_id:
            return ()
        return event.content_hashes if event.hash_scheme == TEXT_SHA256 else ()

    async def _evict(self, model_id: str, hashes: Sequence[bytes]) -> int:
        results = await self._client.publish_all(
            self._event(EventType.EVICTED, model_id, part) for part in _parts(hashes)
        )
        return sum(result.holds_changed for result in results)

    async def _clear(self, model_id: str) -> int:
        result = await self._client.publish(
            CacheEvent(
                type=EventType.ALL_CLEARED,
                replica_id=self._replica_id,
                model_id=model_id,
                tenant_id=self._tenant_id,
            )
        )
        return result.holds_changed

    def _event(self, kind: EventType, model_id: str, hashes: Sequence[bytes]) -> CacheEvent:
        return CacheEvent(
            type=kind,
            replica_id=self._replica_id,
            model_id=model_id,
            tenant_id=self._tenant_id,
            adapter_id=self._adapter_id,
            # Without it an empty adapter would sweep every adapter's partition.
            adapter_scoped=True,
            hash_scheme=TEXT_SHA256,
            content_hashes=hashes,
        )


def _parts(hashes: Sequence[bytes]) -> Iterable[Sequence[bytes]]:
    for start in range(0, len(hashes), limits.CONTENT_HASHES_MAX):
        yield hashes[start : start + limits.CONTENT_HASHES_MAX]


async def keep(
    catalogue: Catalogue,
    read: Callable[[], Iterable[Tool]],
    changed: asyncio.Event,
    *,
    told: Callable[[Summary], None],
    progress: Callable[[int, int], None] | None = None,
    complete: Callable[[], bool] = lambda: True,
) -> None:
    """Synchronise now, whenever `changed` is set, hourly, and after the index lost its history.

    `complete` says whether the last `read` had all that is listed.
    Runs until cancelled. What fails is tried again at the next check.
    """
    refreshed_s = float("-inf")
    whole = False
    while True:
        now_s = time.monotonic()
        if changed.is_set() or not whole or now_s - refreshed_s >= REFRESH_S:
            changed.clear()
            tools = read()
            summary = await catalogue.synchronise(tools, progress, complete=complete())
            told(summary)
            refreshed_s = now_s
            whole = not summary.counts.index_errors and not summary.counts.failed
        try:
            async with asyncio.timeout(HISTORY_CHECK_S):
                await changed.wait()
        except TimeoutError:
            try:
                whole = whole and not await catalogue.history_changed()
            except WarmindexError as error:
                _log.warning("cannot ask the index for its history: %s", error.message)
