"""One embedding backend: its replicas, its limits, and how it is spoken to."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Protocol

import httpx

from warmindex.embedders.errors import BadAnswerError
from warmindex.embedders.over_http import http
from warmindex.embedders.over_http.answers import Judgement, Verdict, judge
from warmindex.embedders.over_http.batches import Limits
from warmindex.embedders.over_http.decode import Rows
from warmindex.embedders.over_http.replicas import Fleet, Replica

LOGGER = logging.getLogger("warmindex.embedders")


@dataclass(frozen=True, slots=True)
class Wording:
    """What a request asks for besides texts."""

    adapter_id: str
    is_question: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request came to; `rows` where the verdict is DONE."""

    replica: Replica
    judgement: Judgement
    rows: Rows | None = None


class Dialect(Protocol):
    """How one kind of server is spoken to. Pure: it makes and reads bytes."""

    # The width that is asked for; 0 is the model's own.
    dimensions: int

    def embed_url(self, replica: Replica) -> httpx.URL:
        """Where texts go."""
        ...

    def prompted(self, text: str, wording: Wording) -> str:
        """The text as it is sent."""
        ...

    def body(self, texts: Sequence[str], wording: Wording) -> bytes:
        """The JSON body of a request for prompted texts."""
        ...

    def rows(self, body: bytes, count: int) -> Rows:
        """The vectors in an answer. Raises BadAnswerError."""
        ...


class Backend:
    """Everything that the calls of one embedder share. `limits` are learnt as it answers."""

    def __init__(
        self,
        dialect: Dialect,
        fleet: Fleet,
        limits: Limits,
        *,
        headers: Mapping[str, str],
        secrets: Sequence[str],
        request_timeout_s: float,
    ) -> None:
        self.dialect = dialect
        self.fleet = fleet
        self.limits = limits
        self.secrets = secrets
        self.request_timeout_s = request_timeout_s
        self.chance = Random()  # noqa: S311 - jitter needs no cryptography
        self._headers = headers

    @cached_property
    def client(self) -> httpx.AsyncClient:
        """Opened at the first use: reading certificates takes its time."""
        return http.open_client(self._headers)

    async def ask(
        self, replica: Replica, texts: Sequence[str], wording: Wording, timeout_s: float
    ) -> Answer:
        """One request for prompted texts. Every way it can end is an Answer."""
        try:
            reply = await http.exchange(
                self.client,
                "POST",
                self.dialect.embed_url(replica),
                content=self.dialect.body(texts, wording),
                timeout_s=timeout_s,
            )
            judgement = judge(
                reply.status,
                reply.headers,
                reply.body,
                now_unix_s=reply.received_unix_s,
                sent_texts=texts,
                dimensions_asked=self.dialect.dimensions > 0,
                secrets=self.secrets,
            )
            if judgement.verdict is not Verdict.DONE:
                return Answer(replica, judgement)
            return Answer(replica, judgement, self.dialect.rows(reply.body, len(texts)))
        except http.UnansweredError as error:
            return Answer(replica, Judgement(error.verdict, error.words))
        except BadAnswerError as error:
            return Answer(replica, Judgement(Verdict.BAD_ANSWER, error.message))

    async def close(self) -> None:
        """Close the connections."""
        if "client" in self.__dict__:
            await self.client.aclose()
