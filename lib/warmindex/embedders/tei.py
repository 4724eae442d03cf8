"""The embedder over HuggingFace Text Embeddings Inference: GET /info, POST /embed.

The identity is read live from /info, of every replica: an address says nothing about the
model behind it, and neither does the name that an operator gave it. The native route is
used because it takes `truncate`, whose default has changed between releases: it is always
sent, and is part of the identity.

What /info cannot show is a server's own `--default-prompt`: give prompts here instead.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import httpx

from warmindex.embedders.base import Embedded, FloatVector
from warmindex.embedders.errors import EmbedderError, IdentityUnavailableError
from warmindex.embedders.options import EmbedderOptions
from warmindex.embedders.over_http import embed
from warmindex.embedders.over_http.backend import LOGGER, Wording
from warmindex.embedders.over_http.batches import BATCH_TEXTS_DEFAULT, Limits
from warmindex.embedders.over_http.decode import Rows, tei_rows
from warmindex.embedders.over_http.replicas import Replica
from warmindex.embedders.over_http.urls import Base, endpoint, parse_base
from warmindex.embedders.tei_info import TeiInfo, compose, read_info
from warmindex.identity import PROMPT_NAME_PREFIX, ModelIdentity

# TEI takes 2,000,000 bytes unless told otherwise; the rest of the body needs some.
BODY_BYTES_MAX: Final = 1_900_000


class TeiDialect:
    """How TEI's native route is spoken."""

    def __init__(self, options: EmbedderOptions) -> None:
        self.dimensions = options.dimensions
        self._options = options

    def embed_url(self, replica: Replica) -> httpx.URL:
        return endpoint(Base(replica.url), "/embed")

    def prompted(self, text: str, wording: Wording) -> str:
        prompt = self._prompt(wording)
        return text if prompt.startswith(PROMPT_NAME_PREFIX) else prompt + text

    def body(self, texts: Sequence[str], wording: Wording) -> bytes:
        options, prompt = self._options, self._prompt(wording)
        truncate = options.truncate != "none"
        body: dict[str, object] = {
            "inputs": texts,
            "truncate": truncate,
            "normalize": options.normalize,
        }
        if truncate:
            body["truncation_direction"] = options.truncate
        if prompt.startswith(PROMPT_NAME_PREFIX):
            body["prompt_name"] = prompt.removeprefix(PROMPT_NAME_PREFIX)
        if options.dimensions:
            body["dimensions"] = options.dimensions
        options.adapters.apply(body, wording.adapter_id)
        return json.dumps(body, ensure_ascii=False).encode("utf-8")

    def rows(self, body: bytes, count: int) -> Rows:
        return tei_rows(body, count)

    def _prompt(self, wording: Wording) -> str:
        options = self._options
        return options.query_prompt if wording.is_question else options.document_prompt


class TeiEmbedder:
    """An `Embedder` over one TEI, or several replicas of one.

    `identity` reads /info of every replica and wants one answer. A replica that cannot be read
    while others can is not asked for vectors until it can; one that has given vectors
    since its last reading makes the identity unavailable once, because nobody can say whose
    they were.
    """

    def __init__(self, options: EmbedderOptions) -> None:
        bases = [parse_base(url) for url in options.urls]
        self._options = options
        self._texts_max = options.batch_texts_max or BATCH_TEXTS_DEFAULT
        limits = Limits(self._texts_max, BODY_BYTES_MAX)
        self._backend = embed.open_backend(TeiDialect(options), bases, limits, options)
        self._has_limits = False

    async def identity(self) -> ModelIdentity:
        """See `Embedder`; UnauthorizedError and MisconfiguredError besides."""
        replicas = self._backend.fleet.replicas
        # What is answered from now on is not covered by this reading.
        answers = [replica.answers for replica in replicas]
        readings = await asyncio.gather(
            *(read_info(self._backend, replica) for replica in replicas), return_exceptions=True
        )
        infos: dict[str, TeiInfo] = {}
        errors: dict[str, EmbedderError] = {}
        unknown: list[str] = []
        for replica, reading, covered in zip(replicas, readings, answers, strict=True):
            if isinstance(reading, TeiInfo):
                infos[replica.name] = reading
            elif isinstance(reading, EmbedderError):
                errors[replica.name] = reading
                if replica.verified_answers < covered:
                    unknown.append(replica.name)
            else:
                raise reading
            replica.verified_answers = covered
        self._exclude(infos, errors, unknown)
        identities = {name: compose(info, self._options, name) for name, info in infos.items()}
        if len(set(identities.values())) > 1:
            said = ", ".join(f"{name} {identity}" for name, identity in identities.items())
            raise IdentityUnavailableError(f"the replicas serve different models: {said:.600}")
        self._take_limits(list(infos.values()))
        return next(iter(identities.values()))

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        adapter_id: str = "",
        deadline: float | None = None,
    ) -> Embedded:
        """See `Embedder`. Whether TEI has cut a text, it does not say."""
        if not self._has_limits:
            # Without /info the defaults do, and whoever needs the identity asks for it.
            with suppress(EmbedderError, TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self.identity()
            self._has_limits = True
        return await embed.embed_documents(self._backend, texts, adapter_id, deadline)

    async def embed_query(
        self,
        text: str,
        *,
        adapter_id: str = "",
        deadline: float | None = None,
    ) -> FloatVector:
        """See `Embedder`."""
        return await embed.embed_query(self._backend, text, adapter_id, deadline)

    async def close(self) -> None:
        """Close the connections."""
        await self._backend.close()

    def _exclude(
        self,
        infos: dict[str, TeiInfo],
        errors: dict[str, EmbedderError],
        unknown: Sequence[str],
    ) -> None:
        """Settle which replicas may be asked, and raise where that leaves no identity."""
        for replica in self._backend.fleet.replicas:
            if infos and replica.name in errors and not replica.excluded:
                LOGGER.warning(
                    "not asked for vectors until it can be read: %s", errors[replica.name]
                )
            replica.excluded = bool(infos) and replica.name in errors
        if not infos:
            raise next(iter(errors.values()))
        if unknown:
            raise IdentityUnavailableError(
                f"has given vectors since its model was last read, and now it cannot be: "
                f"{errors[unknown[0]].message}",
                backend=unknown[0],
            )

    def _take_limits(self, infos: Sequence[TeiInfo]) -> None:
        """Fit requests to what the servers say: the smallest of each."""
        self._has_limits = True
        permits = min(info.max_concurrent_requests for info in infos)
        texts = min(*(info.max_client_batch_size for info in infos), permits)
        texts = min(texts, self._options.batch_texts_max or texts)
        if texts != self._texts_max:
            # Only a change counts: a proxy in front may have taught a smaller limit.
            self._texts_max = texts
            self._backend.limits = Limits(texts, self._backend.limits.body_bytes)
        # Since 1.9 each text of a request takes a permit.
        in_flight = max(1, permits // texts)
        self._backend.fleet.set_in_flight_max(min(in_flight, self._options.requests_in_flight))
