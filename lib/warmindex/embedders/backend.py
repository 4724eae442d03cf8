"""One embedding backend: its replicas, its limits, and how it is spoken to."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Protocol

import httpx

from warmindex.embedders import http
from warmindex.embedders.batches import Limits
from warmindex.embedders.decode import Rows
from warmindex.embedders.replicas import Fleet, Replica

LOGGER = logging.getLogger("warmindex.embedders")


@dataclass(frozen=True, slots=True)
class Wording:
    """What a request asks for besides texts."""

    adapter_id: str
    is_question: bool


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

    async def close(self) -> None:
        """Close the connections."""
        if "client" in self.__dict__:
            await self.client.aclose()
