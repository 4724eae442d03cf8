"""What TEI says about itself on /info, and the identity that follows from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from warmindex.embedders.errors import (
    EmbedderError,
    IdentityRefusedError,
    IdentityUnavailableError,
    MisconfiguredError,
    UnauthorizedError,
)
from warmindex.embedders.options import EmbedderOptions
from warmindex.embedders.over_http import http
from warmindex.embedders.over_http.answers import Judgement, Verdict, judge
from warmindex.embedders.over_http.backend import Backend
from warmindex.embedders.over_http.batches import BATCH_TEXTS_DEFAULT
from warmindex.embedders.over_http.decisions import error_of
from warmindex.embedders.over_http.replicas import Replica
from warmindex.embedders.over_http.urls import Base, endpoint
from warmindex.errors import InvalidError
from warmindex.identity import TRUNCATION_NONE, ModelIdentity, truncation_at

# /info costs the server nothing: one that does not answer it soon is not well.
INFO_TIMEOUT_S: Final = 5.0
_PERMITS_DEFAULT: Final = 512
# An idle connection that the server has closed meanwhile shows at the next request.
_CONNECTION_TRIES: Final = 2


@dataclass(frozen=True, slots=True)
class TeiInfo:
    """The parts of /info that matter. `revision` is "" where the server has none."""

    model_id: str
    revision: str
    dtype: str
    pooling: str
    max_input_length: int
    max_client_batch_size: int
    max_concurrent_requests: int


async def read_info(backend: Backend, replica: Replica) -> TeiInfo:
    """Read one replica's /info.

    Raises IdentityUnavailableError where that may be otherwise soon, else UnauthorizedError,
    MisconfiguredError or IdentityRefusedError.
    """
    url = endpoint(Base(replica.url), "/info")
    judgement = Judgement(Verdict.AWAY)
    for _ in range(_CONNECTION_TRIES):
        try:
            reply = await http.exchange(backend.client, "GET", url, timeout_s=INFO_TIMEOUT_S)
        except http.UnansweredError as error:
            judgement = Judgement(error.verdict, error.words)
            if error.verdict is not Verdict.AWAY:
                break
            continue
        judgement = judge(
            reply.status,
            reply.headers,
            reply.body,
            now_unix_s=reply.received_unix_s,
            secrets=backend.secrets,
        )
        if judgement.verdict is Verdict.DONE:
            return parse_info(reply.body, replica.name)
        break
    raise _info_error(judgement, replica.name)


def parse_info(body: bytes, name: str) -> TeiInfo:
    """Read the JSON of /info. Raises IdentityUnavailableError or MisconfiguredError."""
    try:
        info = json.loads(body)
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict) or not _text(info, "model_id"):
        raise IdentityUnavailableError("/info answers something else than TEI's", backend=name)
    kinds = info.get("model_type")
    kind, details = next(iter(kinds.items())) if isinstance(kinds, dict) and kinds else ("", {})
    if kind.lower() != "embedding":
        raise MisconfiguredError(
            f"serves a {kind or 'model of unknown kind'}, not an embedding model", backend=name
        )
    return TeiInfo(
        model_id=_text(info, "model_id"),
        revision=_text(info, "model_sha"),
        dtype=_text(info, "model_dtype").lower(),
        pooling=_text(details if isinstance(details, dict) else {}, "pooling").lower(),
        max_input_length=_count(info, "max_input_length", 0),
        max_client_batch_size=_count(info, "max_client_batch_size", BATCH_TEXTS_DEFAULT),
        max_concurrent_requests=_count(info, "max_concurrent_requests", _PERMITS_DEFAULT),
    )


def compose(info: TeiInfo, options: EmbedderOptions, name: str) -> ModelIdentity:
    """The identity under these options. Raises IdentityRefusedError, saying what to set."""
    revision = info.revision or options.revision
    if not revision and _is_path(info.model_id):
        raise IdentityRefusedError(
            f"serves the model from the path {info.model_id!r:.80} and knows no revision of it, "
            "so another model under that path could not be told from this one; "
            "configure a revision (--revision) and change it with the model",
            backend=name,
            field="revision",
        )
    truncation = TRUNCATION_NONE
    if options.truncate != "none":
        if not info.max_input_length:
            raise IdentityRefusedError(
                "does not say on /info at how many tokens it cuts texts; configure truncate none",
                backend=name,
                field="truncate",
            )
        truncation = truncation_at(options.truncate, info.max_input_length)
    try:
        return ModelIdentity(
            provider="tei",
            model=info.model_id,
            revision=revision,
            dtype=info.dtype,
            pooling=info.pooling,
            dimensions=options.dimensions,
            normalized=options.normalize,
            truncation=truncation,
            document_prompt=options.document_prompt,
        )
    except InvalidError as error:
        raise IdentityRefusedError(error.message, backend=name, field=error.field) from error


def _info_error(judgement: Judgement, name: str) -> EmbedderError:
    error = error_of(judgement, name)
    if isinstance(error, UnauthorizedError):
        return error
    if judgement.verdict in {Verdict.MISCONFIGURED, Verdict.REFUSED}:
        return MisconfiguredError(
            f"/info answers {judgement.words}; give the base URL of a TEI", backend=name
        )
    return IdentityUnavailableError(
        f"/info: {judgement.verdict.value} ({judgement.words})",
        backend=name,
        retry_after_s=judgement.retry_after_s,
    )


def _is_path(model_id: str) -> bool:
    """Whether a model_id is a place on the server's disk, and not a name on a hub."""
    return model_id[0] in "/.~" or "\\" in model_id or model_id.count("/") > 1


def _text(info: dict[str, Any], key: str) -> str:
    value = info.get(key)
    return value if isinstance(value, str) else ""


def _count(info: dict[str, Any], key: str, default: int) -> int:
    """A number of /info; the default where it is absent, zero or nonsense."""
    value = info.get(key)
    return value if isinstance(value, int) and value > 0 else default
