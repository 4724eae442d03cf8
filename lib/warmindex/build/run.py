"""One pass over the texts of a build, under one identity of the model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import numpy as np

from warmindex import limits
from warmindex.answers import Embeddings, KeyState
from warmindex.build.parts import parts
from warmindex.build.result import Built, Item
from warmindex.embedders import EmbedderError, FailureKind, TextFailure
from warmindex.errors import WarmindexError
from warmindex.event import CacheEvent, EventType, FloatMatrix
from warmindex.hashing import TEXT_SHA256
from warmindex.index import Outcome

if TYPE_CHECKING:
    from warmindex.build.builder import Builder

_log = logging.getLogger(__name__)

# How many texts one builder takes at a time: a quarter of them, in whole batches of 32 and 64
# as backends take them, and within a bound. Not less, so that batches are full and several
# backends have some; not more, so that pods that start together all get some, and what is
# computed is soon published.
SHARE_STEP: Final = 64
SHARE_TEXTS_MAX: Final = 256
# Two shares under way at once: the next is claimed and sent while the last is published.
WORKERS: Final = 2
# A claim outlives its builder by this much; whoever waits for a dead one waits no longer.
CLAIM_TTL_S: Final = 15.0
CLAIM_RENEW_S: Final = 5.0
# One waiting call: short enough to notice a server that went away.
WAIT_S: Final = 5.0
# The server holds a waiting call; one that does not must not be asked in a tight loop.
ASK_AGAIN_S: Final = 0.02
# Past this a builder no longer waits for others and computes by itself.
PATIENCE_S: Final = 60.0
# A backend that could not even say who it is gets no more than this for a share.
AWAY_S: Final = 3.0


class Run:
    """One pass over a build's texts under one identity."""

    def __init__(
        self,
        builder: Builder,
        built: Built,
        items: Mapping[bytes, Item],
        progress: Callable[[int], None],
        *,
        publish: bool,
    ) -> None:
        self._builder = builder
        self._built = built
        self._items = items
        self._progress = progress
        self._publish = publish
        self._identified = publish
        self._partition = builder.partition(built.model_id)
        self._client = builder.client if built.model_id else None
        # Texts of like length go together: a batch is as slow as its longest.
        self._todo = dict.fromkeys(sorted(items, key=lambda each: len(items[each].text)))
        self._share_texts = min(-(-len(items) // (4 * SHARE_STEP)) * SHARE_STEP, SHARE_TEXTS_MAX)
        self._under_way: set[bytes] = set()
        self._pending: set[bytes] = set()
        self._asking = asyncio.Lock()
        self._swapped = False
        self._loop = asyncio.get_running_loop()
        self._patience_ends = self._loop.time() + builder.patience_s

    async def finished(self) -> bool:
        """Settle every text; False where the identity changed and all must begin again."""
        self._take_from_mirror()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(WORKERS, -(-len(self._todo) // SHARE_STEP))):
                group.create_task(self._work())
        if not self._swapped and self._builder.hold_found:
            await self._hold_found()
        return not self._swapped

    async def _work(self) -> None:
        while not self._swapped:
            claimant_id = uuid4().hex
            async with self._asking:
                share = await self._next_share(claimant_id)
            if share is None:
                return
            if share:
                self._under_way.update(share)
                async with self._renewing(claimant_id, share):
                    await self._embed(claimant_id, share)
                self._under_way.difference_update(share)

    def _take_from_mirror(self) -> None:
        """Take what a copy in this process has; it may lack what a server has by now."""
        mirror = self._builder.mirror
        if mirror is None or not mirror.usable or not self._built.model_id:
            return
        asked = list(self._todo)
        fetched = mirror.fetch(self._partition, asked)
        rows = iter(
            np.frombuffer(fetched.values, np.float32).reshape(fetched.rows, fetched.dimensions)
        )
        for content_hash, found in zip(asked, fetched.found, strict=True):
            if found:
                self._built.vectors[content_hash] = next(rows)
                del self._todo[content_hash]
        self._built.counts.reused += fetched.rows
        self._tell()

    # ---- asking ------------------------------------------------------------------------

    async def _next_share(self, claimant_id: str) -> list[bytes] | None:
        """Texts to embed now; none while others are at work on them; None when all is done."""
        open_hashes = [each for each in self._todo if each not in self._under_way]
        if not open_hashes:
            return None
        if self._client is None or self._loop.time() > self._patience_ends:
            return open_hashes[: self._share_texts]
        asked = open_hashes[: limits.CONTENT_HASHES_MAX]
        waiting = self._pending.issuperset(asked)
        if waiting:
            await asyncio.sleep(ASK_AGAIN_S)
        left_s = max(0.0, self._patience_ends - self._loop.time())
        try:
            answer = await self._ask(claimant_id, asked, min(WAIT_S, left_s) if waiting else 0.0)
        except WarmindexError as error:
            self._lose_index("ask the index", error)
            return open_hashes[: self._share_texts]
        return self._settle(asked, answer)

    async def _ask(self, claimant_id: str, hashes: Sequence[bytes], wait_s: float) -> Embeddings:
        assert self._client is not None  # noqa: S101 - only called with one
        return await self._client.get_embeddings(
            self._partition,
            hashes,
            claimant_id=claimant_id if self._publish else "",
            claim_ttl_s=CLAIM_TTL_S,
            wait_s=wait_s,
            max_bytes=limits.GET_BYTES_MAX,
            max_claims=self._share_texts,
        )

    def _settle(self, asked: Sequence[bytes], answer: Embeddings) -> list[bytes]:
        """Keep what was found; what falls to this worker."""
        self._built.history_id = answer.history_id
        rows = iter(answer.vectors)
        share: list[bytes] = []
        counts = self._built.counts
        for content_hash, state in zip(asked, answer.states, strict=True):
            if state is KeyState.FOUND:
                if content_hash in self._pending:
                    counts.waited += 1
                else:
                    counts.reused += 1
                self._built.vectors[content_hash] = next(rows)
                del self._todo[content_hash]
            elif state is KeyState.CLAIMED:
                counts.claimed += 1
                share.append(content_hash)
            elif state is KeyState.ABSENT and len(share) < self._share_texts:
                share.append(content_hash)
            elif state is KeyState.PENDING:
                self._pending.add(content_hash)
        self._tell()
        return share

    @asynccontextmanager
    async def _renewing(self, claimant_id: str, share: Sequence[bytes]) -> AsyncIterator[None]:
        """Keep the claims on a share while it is computed."""

        async def renew() -> None:
            while self._client is not None:
                await asyncio.sleep(CLAIM_RENEW_S)
                with suppress(WarmindexError):
                    await self._ask(claimant_id, share, 0.0)

        task = asyncio.create_task(renew()) if self._publish else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def _lose_index(self, doing: str, error: WarmindexError) -> None:
        """Go on without the index: it is never needed."""
        self._client = None
        self._built.counts.index_errors += 1
        self._built.problems.append(f"could not {doing}: {error.message}")
        _log.warning("could not %s, going on without it: %s", doing, error.message)

    # ---- embedding ---------------------------------------------------------------------

    def _useless(self) -> str:
        """Why a vector computed now would serve nobody; "" where it would serve somebody."""
        if not self._builder.hold_found:
            return ""
        if not self._publish:
            return "nothing is published while the model's identity cannot be read"
        return "" if self._client is not None else "nothing is published while the index is away"

    async def _embed(self, claimant_id: str, share: Sequence[bytes]) -> None:
        if useless := self._useless():
            await self._fail_all(claimant_id, share, useless)
            return
        try:
            embedded = await self._builder.embedder.embed_documents(
                [self._items[each].text for each in share],
                adapter_id=self._builder.adapter_id,
                deadline=None if self._identified else self._loop.time() + AWAY_S,
            )
        except EmbedderError as error:
            self._built.problems.append(f"could not embed: {error.message}")
            await self._fail_all(claimant_id, share, error.message)
            return
        if not await self._same_identity():
            await self._release(claimant_id, share)
            return
        if useless := self._useless():
            await self._fail_all(claimant_id, share, useless)
            return
        good: list[bytes] = []
        for position, content_hash in enumerate(share):
            failure = embedded.failures.get(position)
            if failure is None:
                good.append(content_hash)
                self._done(content_hash, embedded.vectors[position])
                self._built.counts.embedded += 1
            else:
                self._fail(content_hash, failure)
        left = [each for each in share if each in self._built.failures]
        if not await self._publish_rows(good):
            # What an EMBEDDED with its vector has ended is no claim any more.
            left = list(share)
        await self._release(claimant_id, left)

    async def _same_identity(self) -> bool:
        """Whether the backend is still what it was; then its batch may be kept."""
        if not self._built.model_id:
            return True
        try:
            model_id = await self._builder.current_model_id()
        except EmbedderError as error:
            self._publish = False
            self._built.problems.append(f"nothing is published: {error.message}")
            return True
        if model_id == self._built.model_id:
            return True
        self._swapped = True
        return False

    def _done(self, content_hash: bytes, row: FloatMatrix) -> None:
        self._built.vectors[content_hash] = row
        self._todo.pop(content_hash, None)
        self._tell()

    def _tell(self) -> None:
        self._progress(len(self._items) - len(self._todo))

    async def _fail_all(self, claimant_id: str, share: Sequence[bytes], why: str) -> None:
        for content_hash in share:
            self._fail(content_hash, TextFailure(FailureKind.UNAVAILABLE, why))
        await self._release(claimant_id, share)

    def _fail(self, content_hash: bytes, failure: TextFailure) -> None:
        self._built.failures[content_hash] = failure
        self._todo.pop(content_hash, None)
        self._tell()

    # ---- publishing --------------------------------------------------------------------

    async def _publish_rows(self, hashes: Sequence[bytes]) -> bool:
        """Publish vectors; whether the index has taken them all."""
        if not hashes or self._client is None or not self._publish:
            return True
        try:
            results = await self._client.publish_all(self._events(hashes))
        except WarmindexError as error:
            self._lose_index("publish", error)
            return False
        refused = [each for each in results if each.outcome in (Outcome.REFUSED, Outcome.LIMITED)]
        self._built.counts.refused += len(refused)
        self._built.problems += [f"the index refused vectors: {each.error}" for each in refused]
        return not refused

    async def _hold_found(self) -> None:
        """Hold what others had computed, so that it stays when they let go."""
        found = [each for each in self._items if each in self._built.vectors]
        await self._publish_rows(found)

    def _events(self, hashes: Sequence[bytes]) -> Iterator[CacheEvent]:
        vectors = self._built.vectors
        for part, documents in parts(hashes, self._items, len(vectors[hashes[0]])):
            yield CacheEvent(
                type=EventType.EMBEDDED,
                replica_id=self._builder.replica_id,
                model_id=self._built.model_id,
                tenant_id=self._builder.tenant_id,
                adapter_id=self._builder.adapter_id,
                adapter_scoped=True,
                hash_scheme=TEXT_SHA256,
                content_hashes=part,
                embeddings=np.stack([vectors[each] for each in part]),
                documents=documents,
            )

    async def _release(self, claimant_id: str, hashes: Sequence[bytes]) -> None:
        """Let others have what will not be published from here."""
        if self._client is None or not self._identified or not hashes:
            return
        with suppress(WarmindexError):
            await self._client.release_claims(self._partition, claimant_id, hashes)
