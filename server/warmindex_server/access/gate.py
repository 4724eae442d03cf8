"""The gate before every call: who calls, and whether such a one may make this call at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from warmindex_server.access.principal import EVERYONE, Principal, Role, enter, require_role
from warmindex_server.access.tokens import TokenFile

# The role that each call needs. A call that is not here is nobody's: see `Gate.admit`.
ROLE_OF: Final = {
    "PublishEvent": Role.PRODUCER,
    "PublishEvents": Role.PRODUCER,
    "ReportState": Role.PRODUCER,
    "ReleaseClaims": Role.PRODUCER,
    "GetEmbeddings": Role.READER,
    "Search": Role.READER,
    "LookupRoute": Role.READER,
    "WatchEvents": Role.READER,
    "ListPartitions": Role.READER,
    "ListReplicas": Role.READER,
    "GetEntry": Role.READER,
    "GetServerInfo": Role.READER,
}
AUTHORIZATION: Final = "authorization"


class WithMetadata(Protocol):
    """A call's context, as far as the gate looks at it."""

    def invocation_metadata(self) -> Any:
        """What the caller sent beside the request: pairs of name and value, or None."""


class Gate:
    """Admits callers; without a token file everybody."""

    def __init__(self, tokens: TokenFile | None = None) -> None:
        self._tokens = tokens

    def admit(self, context: WithMetadata, method: str) -> None:
        """Note who is calling, for the rest of this task.

        Raises UnauthenticatedError and ForbiddenError.
        """
        if self._tokens is not None:
            principal = self._tokens.principal_of(_authorization(context.invocation_metadata()))
            require_role(principal, ROLE_OF[method])
            enter(principal)

    def principal_of(self, authorization: str) -> Principal:
        """Who an HTTP caller is. Raises UnauthenticatedError."""
        if self._tokens is None:
            return EVERYONE
        return self._tokens.principal_of(authorization)


def _authorization(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    for name, value in metadata or ():
        if name == AUTHORIZATION:
            return value if isinstance(value, str) else value.decode("latin-1")
    return ""
