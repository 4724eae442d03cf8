"""What the embedders over HTTP share: texts in, vectors out, through one backend."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from warmindex.embedders.base import Embedded, FloatVector
from warmindex.embedders.errors import MisconfiguredError, TextRefusedError
from warmindex.embedders.options import EmbedderOptions, check_unicode
from warmindex.embedders.over_http.backend import Backend, Dialect, Wording
from warmindex.embedders.over_http.batches import Limits
from warmindex.embedders.over_http.call import Call
from warmindex.embedders.over_http.replicas import Fleet, Replica
from warmindex.embedders.over_http.urls import Base, is_azure
from warmindex.embedders.texts import assemble, prepare

# Somebody waits for the answer to a question; after this, words have to do.
QUESTION_S_MAX: Final = 10.0


def open_backend(
    dialect: Dialect, bases: Sequence[Base], limits: Limits, options: EmbedderOptions
) -> Backend:
    """A backend of these replicas. No connection is made yet.

    Raises MisconfiguredError where they are not replicas of one.
    """
    if len({base.basic for base in bases}) > 1:
        raise MisconfiguredError(
            "replicas of one backend share their credentials; these URLs differ in theirs",
            field="urls",
        )
    # The same address twice is one replica.
    replicas = list({base.name: Replica(base.name, base.url) for base in bases}.values())
    headers: dict[str, str] = {}
    if options.api_key and is_azure(bases[0]):
        headers["api-key"] = options.api_key
    elif options.api_key:
        headers["authorization"] = f"Bearer {options.api_key}"
    elif bases[0].basic:
        headers["authorization"] = bases[0].basic
    return Backend(
        dialect,
        Fleet(replicas, options.requests_in_flight),
        limits,
        headers=headers,
        secrets=[secret for secret in (options.api_key, bases[0].basic) if secret],
        request_timeout_s=options.request_timeout_s,
    )


async def embed_documents(
    backend: Backend, texts: Sequence[str], adapter_id: str, deadline: float | None
) -> Embedded:
    """See `Embedder`."""
    check_unicode("adapter_id", adapter_id)
    prepared = prepare(texts)
    if not prepared.unique:
        return assemble(prepared, {}, {})
    wording = Wording(adapter_id, is_question=False)
    ledger = await Call(backend, prepared.unique, wording, deadline).run()
    return assemble(prepared, ledger.vectors, ledger.failures)


async def embed_query(
    backend: Backend, text: str, adapter_id: str, deadline: float | None
) -> FloatVector:
    """See `Embedder`. Without a deadline, one is set."""
    check_unicode("adapter_id", adapter_id)
    if deadline is None:
        deadline = asyncio.get_running_loop().time() + QUESTION_S_MAX
    prepared = prepare([text])
    failures = dict(prepared.failures)
    if prepared.unique:
        wording = Wording(adapter_id, is_question=True)
        ledger = await Call(backend, prepared.unique, wording, deadline).run()
        if ledger.vectors:
            return ledger.vectors[0]
        failures = ledger.failures
    raise TextRefusedError(f"the text has no vector: {failures[0].message}")
