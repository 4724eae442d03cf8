"""One caller's set of tools, found by meaning and by words.

    session = Session(tools, embedder=LocalEmbedder(), client=IndexClient())   # returns at once
    await session.ready()
    hits = await session.find("open an issue", keywords=["github"])

Opening never waits: vectors are fetched, or embedded and published, in the background.
Until they are there, `find` works by words, and says so. The session searches its own copy of
its own tools and nothing else: no other session's tools, and no text from the index, can
ever be an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from warmindex import limits
from warmindex.build import Builder, Built, Counts, Item
from warmindex.client import IndexClient
from warmindex.embedders import Embedder, EmbedderError, IdentityUnavailableError
from warmindex.event import FloatMatrix
from warmindex.mirror import Mirror
from warmindex.rerank import Reranker
from warmindex.session_tools import SessionTools
from warmindex.tools import Tool, by_hash, tools_of

_log = logging.getLogger(__name__)

# Gateways that share a deployment share what they hold; scaling one down takes nothing.
REPLICA_DEFAULT: Final = "gateway"
# A finished build with retryable failures is tried again, with growing pauses.
RETRY_S_FIRST: Final = 1.0
RETRY_S_MAX: Final = 60.0
# A model that changes while the session builds is followed this often at once, then in its time.
SWAPS_MAX: Final = 2
# A search box waits no longer for the query's vector; words answer then.
QUERY_S_MAX: Final = 2.0
# Of that, what reading the model's identity beside it may take.
QUERY_IDENTITY_S_MAX: Final = 1.0
# Words are indexed at the first question: a few tools at a time, at about 0.2 ms each, so that
# whatever else the caller serves has its turn in between.
ABSORB_TOOLS: Final = 40
# How old the identity that a query is embedded under may be.
IDENTITY_S_MAX: Final = 30.0


class ToolHit(NamedTuple):
    """One of the session's tools, with its scores (see `SearchHit`)."""

    tool: Tool
    score: float
    distance: float | None
    lexical_score: float | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the vectors are: `done` of `total` distinct texts are settled."""

    done: int
    total: int


class Session:
    """A set of tools. Make it inside a running event loop; close it, or use `async with`."""

    def __init__(
        self,
        tools: Iterable[object],
        *,
        embedder: Embedder | None,
        client: IndexClient | None = None,
        replica_id: str = REPLICA_DEFAULT,
        tenant_id: str = "",
        adapter_id: str = "",
        publish_documents: bool = True,
        mirror: Mirror | bool = False,
        reranker: Reranker | None = None,
    ) -> None:
        """Begin to get the vectors of `tools` ready, and return at once.

        `tools` are `Tool`s, MCP tools, mappings with "name" and "description", or pairs of
        them. `embedder` None finds by words alone; `client` None works without an index.
        `publish_documents` False keeps the texts at home. `mirror` is a copy of the index in
        this process, which sessions of a gateway share; True makes one for this session.
        It is asked before the index. `reranker` orders the first hits of `find` anew; it stays
        open when the session is closed. Raises InvalidError for what is no tool.
        """
        self._own_mirror = None
        if mirror is True and client is not None:
            self._own_mirror = Mirror(client, tenant_id, adapter_ids=(adapter_id,), documents=False)
            self._own_mirror.start()
        self._embedder = embedder
        self._builder = (
            Builder(
                embedder,
                client,
                replica_id=replica_id,
                tenant_id=tenant_id,
                adapter_id=adapter_id,
                mirror=self._own_mirror if isinstance(mirror, bool) else mirror,
            )
            if embedder is not None
            else None
        )
        self._adapter_id = adapter_id
        self._publish_documents = publish_documents
        self._tools = SessionTools()
        self._done = 0
        self._total = 0
        self._model_id = ""
        self._identity_at_s = float("-inf")
        self._build_problem = ""
        self._query_problem = ""
        self._reranker = reranker
        self._rerank_problem = ""
        self._building: asyncio.Task[None] | None = None
        self._first_build: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.update(tools)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ---- the vectors -------------------------------------------------------------------

    def update(self, tools: Iterable[object]) -> None:
        """Take another list of tools; texts that stay keep their vectors. Returns at once."""
        grouped, refused = by_hash(tools_of(tools))
        for tool, why in refused:
            _log.warning("tool %r is found by words alone: %s", tool.name, why)
        self._tools.replace(grouped, [tool for tool, _ in refused])
        self._restart()

    async def ready(self, timeout_s: float | None = None) -> bool:
        """Wait for the first build to end; whether every tool can be found by meaning.

        False after `timeout_s` seconds, or where something is missing: see `degraded`.
        """
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._first_build), timeout_s)
        return not self._build_problem

    @property
    def progress(self) -> Progress:
        """How far the present build is."""
        return Progress(self._done, self._total)

    @property
    def degraded(self) -> str:
        """Why tools are found by words alone, or without the second stage; "" where all is well."""
        return self._build_problem or self._query_problem or self._rerank_problem

    @property
    def counts(self) -> Counts:
        """What became of the texts of all builds of this session."""
        return self._builder.counts if self._builder is not None else Counts()

    @property
    def model_id(self) -> str:
        """The identity of the model whose vectors the session has; "" if it is not known."""
        return self._model_id

    def _restart(self) -> None:
        if self._building is not None:
            self._building.cancel()
            self._building = None
        loop = asyncio.get_running_loop()
        if self._first_build.done():
            # Who waits for a build that was just given up waits for the one in its place.
            self._first_build = loop.create_future()
        if self._builder is None:
            self._build_problem = "there is no embedder: tools are found by words alone"
            self._end_first_build()
            return
        missing = self._missing()
        self._build_problem = (
            f"the vectors of {len(missing)} texts are not ready yet" if missing else ""
        )
        self._building = loop.create_task(self._build_until_whole(self._builder, missing))

    async def _build_until_whole(self, builder: Builder, missing: Mapping[bytes, Item]) -> None:
        """Build, and as long as something failed that may succeed later, build again."""
        pause_s = RETRY_S_FIRST
        swaps = 0
        try:
            while True:
                built = await builder.build(missing, self._note_progress)
                swapped = self._take(built)
                if swapped and swaps < SWAPS_MAX:
                    swaps += 1
                    missing = self._missing()
                    continue
                self._end_first_build()
                if not swapped and not any(each.retryable for each in built.failures.values()):
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, RETRY_S_MAX)
                missing = self._missing()
        except Exception:  # noqa: BLE001 - a session must survive a bug in its build
            self._build_problem = "the vectors could not be built; the log says why"
            _log.exception("a build failed")
            self._end_first_build()

    def _end_first_build(self) -> None:
        if not self._first_build.done():
            self._first_build.set_result(None)

    def _missing(self) -> dict[bytes, Item]:
        """The texts without a vector, each once."""
        items = {
            content_hash: Item(tool.text, tool.document if self._publish_documents else None)
            for content_hash, tool in self._tools.without_vector()
        }
        self._done, self._total = 0, len(items)
        return items

    def _note_progress(self, done: int) -> None:
        self._done = done

    def _take(self, built: Built) -> bool:
        """Keep what a build came to; whether texts that it had not to build lost their vectors.

        They do where the build found another model than theirs.
        """
        swapped = built.model_id != self._model_id and self._tools.has_vectors
        if swapped:
            self._tools.drop_vectors()
        self._model_id = built.model_id
        self._identity_at_s = asyncio.get_running_loop().time()
        self._tools.put_vectors(built.vectors)
        left = len(list(self._tools.without_vector())) if swapped else 0
        self._build_problem = f"the vectors of {left} texts are not ready yet" if left else ""
        if built.failures:
            first = next(iter(built.failures.values()))
            self._build_problem = (
                f"{len(built.failures)} texts have no vector; the first: {first.message}"
            )
            for problem in built.problems:
                _log.warning("%s", problem)
        return swapped

    # ---- finding -----------------------------------------------------------------------

    async def find(
        self,
        description: str = "",
        *,
        keywords: Sequence[str] = (),
        limit: int = limits.SEARCH_LIMIT_DEFAULT,
        max_distance: float = 1.0,
    ) -> list[ToolHit]:
        """The session's best tools for what is described, best first.

        Never raises for what somebody typed: an over-long description is cut.
        """
        description = _valid(description)[: limits.QUERY_TEXT_BYTES_MAX // 4]
        words = [_valid(word) for word in keywords][: limits.KEYWORDS_MAX]
        # First, so that nothing comes between a query's vector and those that it is held against.
        while self._tools.absorb(ABSORB_TOOLS):  # noqa: ASYNC110 - it works, it does not wait
            await asyncio.sleep(0)
        query = None
        text = description if description.strip() else " ".join(words)
        if text.strip():
            query = await self._embed_query(text)
        found_max = limit if self._reranker is None else max(limit, self._reranker.hits)
        found = [
            ToolHit(tool, hit.score, hit.distance, hit.lexical_score)
            for tool, hit in self._tools.search(query, description, words, found_max, max_distance)
        ]
        if self._reranker is not None:
            found = await self._reranked(self._reranker, " ".join((description, *words)), found)
        return found[:limit]

    async def _reranked(self, reranker: Reranker, text: str, found: list[ToolHit]) -> list[ToolHit]:
        """The hits in the second stage's order; in the first one's where that fails."""
        texts = [_valid(hit.tool.text) for hit in found]
        try:
            order = await reranker.order(text, texts, [hit.score for hit in found])
        except EmbedderError as error:
            self._rerank_problem = f"the first stage's order stands: {error.message}"
            return found
        self._rerank_problem = ""
        return [found[place] for place in order]

    async def _embed_query(self, text: str) -> FloatMatrix | None:
        """The query's vector; None where there is none that compares with the session's."""
        if self._embedder is None or not self._tools.has_vectors:
            return None
        deadline = asyncio.get_running_loop().time() + QUERY_S_MAX
        model_id = self._model_id
        try:
            if not await self._same_model():
                return None
            vector = await self._embedder.embed_query(
                text, adapter_id=self._adapter_id, deadline=deadline
            )
        except EmbedderError as error:
            self._query_problem = f"searching by words alone: {error.message}"
            return None
        self._query_problem = ""
        # A build may have found another model meanwhile.
        return vector if self._model_id == model_id else None

    async def _same_model(self) -> bool:
        """Whether the backend still is the model that the vectors are of; read now and then."""
        now = asyncio.get_running_loop().time()
        if self._builder is None or now - self._identity_at_s < IDENTITY_S_MAX:
            return True
        try:
            async with asyncio.timeout(QUERY_IDENTITY_S_MAX):
                model_id = await self._builder.current_model_id()
        except (IdentityUnavailableError, TimeoutError):
            # The last one that was read still finds; it is read again at the next query.
            return True
        self._identity_at_s = now
        if model_id == self._model_id:
            return True
        self._tools.drop_vectors()
        self._restart()
        return False

    async def close(self) -> None:
        """Stop building. The embedder and the client stay open: they are the caller's."""
        if self._building is not None:
            self._building.cancel()
            with suppress(asyncio.CancelledError):
                await self._building
        self._end_first_build()
        if self._own_mirror is not None:
            await self._own_mirror.close()


def _valid(text: str) -> str:
    """The text with what is no valid Unicode replaced."""
    return text.encode("utf-8", "replace").decode()
