"""LangChain's `Embeddings`, with an index behind: in place of CacheBackedEmbeddings.

    from warmindex.identity import ModelIdentity
    from warmindex.langchain import IndexBackedEmbeddings

    identity = ModelIdentity(provider="openai", host="api.openai.com",
                             model="text-embedding-3-small", normalized=False,
                             truncation="server@0")
    embeddings = IndexBackedEmbeddings(OpenAIEmbeddings(…), identity, server="127.0.0.1:50151")

What one process has embedded, every other finds; texts that several want at the same time are
embedded once. Queries go to the model behind, as CacheBackedEmbeddings sends them unless
told otherwise. Where the index is away everything is embedded, as without it.

Needs the extra `langchain`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import numpy as np

try:
    from langchain_core.embeddings import Embeddings
except ImportError as error:
    raise ImportError("langchain-core is missing: pip install 'warmindex[langchain]'") from error

from warmindex.background_loop import BackgroundLoop
from warmindex.build import Builder, Built, Counts, Item
from warmindex.client import DEFAULT_SERVER, IndexClient
from warmindex.embedders import BackendUnavailableError, MisconfiguredError
from warmindex.errors import InvalidError
from warmindex.hashing import text_hash
from warmindex.identity import ModelIdentity
from warmindex.langchain_source import Compute, LangChainSource
from warmindex.limits import MIB
from warmindex.mirror import Mirror
from warmindex.vector_memory import VectorMemory

if TYPE_CHECKING:
    from warmindex.channels import Security

_log = logging.getLogger(__name__)

# Whoever shares a deployment shares what is held; no process takes it along when it ends.
REPLICA_DEFAULT: Final = "langchain"
# 2 million numbers: 5,461 texts at 384 dimensions.
MEMORY_MIB_DEFAULT: Final = 64
# An index that did not answer is not asked for so long: each call would wait for it.
AWAY_S: Final = 10.0


class IndexBackedEmbeddings(Embeddings):
    """Finds the vectors of documents in an index, and has computed what nobody has.

    Safe to use from several threads and event loops. `close` it, or use it as a context. A
    vector is what the index holds, float32: the same on the first call and on every other.
    """

    def __init__(
        self,
        underlying_embeddings: Embeddings,
        identity: ModelIdentity | str,
        *,
        server: str = DEFAULT_SERVER,
        security: Security | None = None,
        replica_id: str = REPLICA_DEFAULT,
        tenant_id: str = "",
        adapter_id: str = "",
        batch_size: int | None = None,
        memory_mib: int = MEMORY_MIB_DEFAULT,
        mirror: bool = False,
    ) -> None:
        """Connect nothing yet: the first call does.

        `identity` says all that determines a vector of `underlying_embeddings`: a
        ModelIdentity, or its `model_id` as a string. It is never guessed: two models under
        one identity would be given each other's vectors. `batch_size` is the most texts in
        one call to the model. `memory_mib` keeps vectors in this process, 0 none. `mirror`
        keeps a copy of all that the index has under the identity.

        Raises InvalidError where the identity is none.
        """
        self.underlying_embeddings = underlying_embeddings
        self.identity = _identity_of(identity)
        if batch_size is not None and batch_size < 1:
            raise InvalidError(f"batch_size is {batch_size}; give 1 or more", field="batch_size")
        self.counts = Counts()
        self._server = server
        self._security = security
        self._replica_id = replica_id
        self._tenant_id = tenant_id
        self._adapter_id = adapter_id
        self._batch_size = batch_size
        self._with_mirror = mirror
        self._memory = VectorMemory(memory_mib * MIB)
        self._loop = BackgroundLoop("warmindex-langchain")
        self._client: IndexClient | None = None
        self._mirror: Mirror | None = None
        self._away_until_s = 0.0

    # ---- LangChain's interface ---------------------------------------------------------

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """A vector for each text, in order. Raises what the model raises for a text.

        Whatever else could be embedded is in the index then, and is not paid for again.
        """
        wanted = _Wanted(texts, self._memory)
        if wanted.items or wanted.hashless:

            async def compute(batch: list[str]) -> Sequence[Sequence[float]]:
                return await asyncio.to_thread(self.underlying_embeddings.embed_documents, batch)

            self._loop.run(self._fill(wanted, compute))
        return wanted.rows()

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """The same; the model's own coroutine runs in the loop of the caller."""
        wanted = _Wanted(texts, self._memory)
        if wanted.items or wanted.hashless:
            here = asyncio.get_running_loop()

            async def compute(batch: list[str]) -> Sequence[Sequence[float]]:
                work = self.underlying_embeddings.aembed_documents(batch)
                return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, here))

            await self._loop.run_async(self._fill(wanted, compute))
        return wanted.rows()

    def embed_query(self, text: str) -> list[float]:
        """The model's own vector of a query; it is kept nowhere."""
        return self.underlying_embeddings.embed_query(text)

    async def aembed_query(self, text: str) -> list[float]:
        """The model's own vector of a query; it is kept nowhere."""
        return await self.underlying_embeddings.aembed_query(text)

    # ---- life --------------------------------------------------------------------------

    def close(self) -> None:
        """Close the connection. May be called twice; a later call to embed opens it again."""
        if self._client is not None:
            self._loop.run(self._disconnect())
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- in the loop's thread ----------------------------------------------------------

    async def _fill(self, wanted: _Wanted, compute: Compute) -> None:
        """Get what is wanted. Raises what the model raised for a text that has no vector."""
        source = LangChainSource(self.identity, compute, self._batch_size)
        if wanted.items:
            built = await self._build(wanted.items, source)
            wanted.take(built, source)
        if wanted.hashless:
            # Not valid Unicode, so that it has no key: computed every time, as it comes.
            embedded = await source.embed_documents(wanted.hashless)
            for text, row in zip(wanted.hashless, embedded.vectors, strict=True):
                if text not in source.errors:
                    wanted.loose[text] = source.unpublished.get(text) or row.tolist()
        if source.errors:
            error = next(iter(source.errors.values()))
            error.add_note(f"{len(source.errors)} texts have no vector; the others are kept")
            raise error

    async def _build(self, items: dict[bytes, Item], source: LangChainSource) -> Built:
        client = self._connected()
        builder = Builder(
            source,
            client if time.monotonic() >= self._away_until_s else None,
            replica_id=self._replica_id,
            tenant_id=self._tenant_id,
            adapter_id=self._adapter_id,
            mirror=self._mirror,
        )
        built = await builder.build(items)
        self.counts.add(built.counts)
        if built.counts.refused:
            _log.warning("%s", "; ".join(built.problems[:3]))
        if built.counts.index_errors:
            self._away_until_s = time.monotonic() + AWAY_S
        return built

    def _connected(self) -> IndexClient:
        if self._client is None:
            self._client = IndexClient(self._server, security=self._security)
            if self._with_mirror:
                self._mirror = Mirror(
                    self._client,
                    self._tenant_id,
                    model_id=self.identity.model_id,
                    adapter_ids=(self._adapter_id,),
                    documents=False,
                )
                self._mirror.start()
        return self._client

    async def _disconnect(self) -> None:
        if self._mirror is not None:
            await self._mirror.close()
        if self._client is not None:
            await self._client.close()
        self._mirror = self._client = None


class _Wanted:
    """The texts of one call: what is known of them, and what is still to get."""

    def __init__(self, texts: Sequence[str], memory: VectorMemory) -> None:
        self._memory = memory
        # A text that is not valid Unicode has no hash, and is its own key.
        self._keys = [_key_of(text) for text in texts]
        self._found = memory.get(key for key in self._keys if isinstance(key, bytes))
        self.items = {
            key: Item(text)
            for key, text in zip(self._keys, texts, strict=True)
            if isinstance(key, bytes) and key not in self._found
        }
        self.hashless = list(dict.fromkeys(key for key in self._keys if isinstance(key, str)))
        self.loose: dict[str, list[float]] = {}

    def take(self, built: Built, source: LangChainSource) -> None:
        """Take a build's vectors. Raises where two models share one identity."""
        hashes = list(built.vectors)
        widths = {len(row) for row in built.vectors.values()}
        widths |= {len(row) for row in self._found.values()}
        if len(widths) > 1:
            raise MisconfiguredError(
                f"vectors of {' and '.join(map(str, sorted(widths)))} numbers are known under one "
                "identity: the index has those of another model; name this model's own identity",
                field="identity",
            )
        rows = np.stack([built.vectors[each] for each in hashes]).tolist() if hashes else []
        fresh = dict(zip(hashes, rows, strict=True))
        self._memory.put(fresh)
        self._found.update(fresh)
        for key, failure in built.failures.items():
            text = self.items[key].text
            if text in source.unpublished:
                self._found[key] = source.unpublished[text]
            else:
                source.errors.setdefault(text, BackendUnavailableError(failure.message))

    def rows(self) -> list[list[float]]:
        """A list of its own for each text, so that nobody changes another's."""
        return [
            self._found[key][:] if isinstance(key, bytes) else self.loose[key][:]
            for key in self._keys
        ]


def _key_of(text: str) -> bytes | str:
    try:
        return text_hash(text)
    except InvalidError:
        return text


def _identity_of(given: ModelIdentity | str) -> ModelIdentity:
    """Raises InvalidError, saying what an identity is."""
    if isinstance(given, ModelIdentity):
        return given
    try:
        return ModelIdentity.parse(given)
    except (InvalidError, AttributeError, TypeError) as problem:
        raise InvalidError(
            f"identity is {given!r:.80}, which does not say all that determines a vector: give a "
            "warmindex.identity.ModelIdentity, or the model_id of one "
            f"({getattr(problem, 'message', 'it is no string')})",
            field="identity",
        ) from problem
