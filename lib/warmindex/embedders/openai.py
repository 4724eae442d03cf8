"""The embedder over the OpenAI form of embeddings: POST /v1/embeddings.

OpenAI, Azure, vLLM, Ollama, LiteLLM, TEI's second route and many others speak it. None of
them can say what it serves, so the identity is what is configured: the model's name, and
where that name means something. A revision tells two states of one name apart.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import httpx

from warmindex.embedders.base import Embedded, FloatVector
from warmindex.embedders.errors import IdentityRefusedError, MisconfiguredError
from warmindex.embedders.options import EmbedderOptions
from warmindex.embedders.over_http import embed
from warmindex.embedders.over_http.backend import Wording
from warmindex.embedders.over_http.batches import Limits
from warmindex.embedders.over_http.decode import Rows, openai_rows
from warmindex.embedders.over_http.replicas import Replica
from warmindex.embedders.over_http.urls import (
    Base,
    azure_deployment,
    endpoint,
    identity_host,
    openai_base,
    parse_base,
)
from warmindex.errors import InvalidError
from warmindex.identity import TRUNCATION_SERVER, ModelIdentity

# OpenAI takes 2048 texts, others 100 or fewer; smaller requests answer sooner, and several
# are under way at once.
BATCH_TEXTS_MAX: Final = 64
# The default of a common reverse proxy, and about what OpenAI's tokens per request allow.
BODY_BYTES_MAX: Final = 1_000_000


class OpenAIDialect:
    """How the OpenAI form is spoken."""

    def __init__(self, options: EmbedderOptions) -> None:
        self.dimensions = options.dimensions
        self._options = options

    def embed_url(self, replica: Replica) -> httpx.URL:
        return endpoint(Base(replica.url), "/embeddings")

    def prompted(self, text: str, wording: Wording) -> str:
        options = self._options
        return (options.query_prompt if wording.is_question else options.document_prompt) + text

    def body(self, texts: Sequence[str], wording: Wording) -> bytes:
        options = self._options
        # Without a format some servers refuse, and some answer base64.
        body: dict[str, object] = {"input": texts, "encoding_format": "float"}
        if options.model:
            body["model"] = options.model
        if options.dimensions:
            body["dimensions"] = options.dimensions
        options.adapters.apply(body, wording.adapter_id)
        return json.dumps(body, ensure_ascii=False).encode("utf-8")

    def rows(self, body: bytes, count: int) -> Rows:
        return openai_rows(body, count)


class OpenAIEmbedder:
    """An `Embedder` over one OpenAI-compatible server, or several replicas of one.

    Replicas share one identity: give them a common `host`, else the identity names all their
    addresses, and changes with them. Raises MisconfiguredError for options that cannot be.
    """

    def __init__(self, options: EmbedderOptions) -> None:
        bases = [openai_base(parse_base(url)) for url in options.urls]
        self._options = options
        self._deployment = azure_deployment(bases[0])
        if not options.model and not self._deployment:
            raise MisconfiguredError("model is empty; give the model to ask for", field="model")
        self._hosts = sorted({identity_host(base) for base in bases})
        limits = Limits(options.batch_texts_max or BATCH_TEXTS_MAX, BODY_BYTES_MAX)
        self._backend = embed.open_backend(OpenAIDialect(options), bases, limits, options)

    async def identity(self) -> ModelIdentity:
        """The identity as configured. Raises IdentityRefusedError where it has no string."""
        options = self._options
        try:
            return ModelIdentity(
                provider="openai",
                host=options.host or ",".join(self._hosts),
                model=self._deployment or options.model,
                revision=options.revision,
                dimensions=options.dimensions,
                normalized=False,
                truncation=TRUNCATION_SERVER,
                document_prompt=options.document_prompt,
            )
        except InvalidError as error:
            raise IdentityRefusedError(error.message, field=error.field) from error

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        adapter_id: str = "",
        deadline: float | None = None,
    ) -> Embedded:
        """See `Embedder`. Whether a text was cut, such servers do not say."""
        self._check_adapter(adapter_id)
        return await embed.embed_documents(self._backend, texts, adapter_id, deadline)

    async def embed_query(
        self,
        text: str,
        *,
        adapter_id: str = "",
        deadline: float | None = None,
    ) -> FloatVector:
        """See `Embedder`."""
        self._check_adapter(adapter_id)
        return await embed.embed_query(self._backend, text, adapter_id, deadline)

    async def close(self) -> None:
        """Close the connections."""
        await self._backend.close()

    def _check_adapter(self, adapter_id: str) -> None:
        if adapter_id and self._deployment and self._options.adapters.by == "model":
            raise MisconfiguredError(
                f"the address names the deployment {self._deployment!r}, so the adapter "
                f"{adapter_id!r:.80} cannot be chosen by the model's name; set an adapter rule",
                field="adapter_rule",
            )
