"""Connections to one or several servers, and gRPC's errors in the package's own words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from warmindex import errors, limits
from warmindex.errors import InvalidError, Reason, UnavailableError, WarmindexError
from warmindex.v1 import index_service_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Answer = TypeVar("Answer")

# An idle connection through a load balancer is cut after a minute or so; a ping keeps it.
KEEPALIVE_MS: Final = 30_000
# A server that is gone is noticed after this; the next one is asked then.
KEEPALIVE_TIMEOUT_MS: Final = 10_000

_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # gRPC's own back-off grows to two minutes; a server that is back is wanted at once.
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
)

_BY_STATUS: Final[dict[str, type[WarmindexError]]] = {
    kind.status: kind
    for kind in (
        errors.InvalidError,
        errors.FencedError,
        errors.OvertakenError,
        errors.QuotaError,
        errors.NotBuiltError,
        errors.UnauthenticatedError,
        errors.ForbiddenError,
        errors.UnavailableError,
    )
}
_BY_REASON: Final[dict[Reason, type[WarmindexError]]] = {
    kind.default_reason: kind
    for kind in (
        errors.RevisionNotReachedError,
        errors.JournalUnavailableError,
        errors.ShuttingDownError,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """How to speak to the servers: with TLS (files are PEM), or in the clear; with a token.

    A token in the clear can be read by whoever sees the traffic: outside a trusted network
    it goes with TLS only.
    """

    tls: bool = False
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token: str = field(default="", repr=False)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call."""
        token = self.token.strip()
        return (("authorization", f"Bearer {token}"),) if token else ()

    @property
    def encrypted(self) -> bool:
        """Whether TLS is used."""
        return self.tls or self.ca_file is not None or self.certificate_file is not None

    def credentials(self) -> grpc.ChannelCredentials | None:
        """The channel's credentials; None for a connection in the clear."""
        if not self.encrypted:
            return None
        return grpc.ssl_channel_credentials(
            root_certificates=_content(self.ca_file),
            private_key=_content(self.key_file),
            certificate_chain=_content(self.certificate_file),
        )


class Channels:
    """One channel a server, made when it is first needed; calls stay with the one that works."""

    def __init__(self, servers: str, security: Security | None = None) -> None:
        self._addresses = [each.strip() for each in servers.split(",") if each.strip()]
        if not self._addresses:
            raise InvalidError("server is empty: give HOST:PORT, or several with commas")
        self._security = security or Security()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[str, Any] = {}
        self._current = 0
        self._closed = False

    @property
    def address(self) -> str:
        """The server that is asked first."""
        return self._addresses[self._current]

    async def attempt(self, call: Callable[[Any], Awaitable[Answer]]) -> Answer:
        """Make a call on the present server, or on the next that can be reached.

        Raises the WarmindexError of the last one tried.
        """
        for left in reversed(range(len(self._addresses))):
            address = self.address
            try:
                return await call(self.stub(address))
            except grpc.aio.AioRpcError as error:
                translated = error_of(error, address)
                if not isinstance(translated, UnavailableError):
                    raise translated from None
                self.move_on(address)
                if not left:
                    raise translated from None
            except asyncio.CancelledError:
                # Closing a connection cancels its calls; their callers are not cancelled.
                task = asyncio.current_task()
                if self._closed and not (task and task.cancelling()):
                    raise _closed() from None
                raise
        raise AssertionError("unreachable")

    def move_on(self, address: str) -> None:
        """Ask the next server first from now on, unless someone has moved on already."""
        if self.address == address:
            self._current = (self._current + 1) % len(self._addresses)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What goes with every call: the token, where there is one."""
        return self._security.metadata

    def stub(self, address: str) -> Any:
        """The calls of one server."""
        if address not in self._stubs:
            stub = index_service_pb2_grpc.IndexServiceStub(self.channel(address))
            self._stubs[address] = _WithMetadata(stub, self.metadata) if self.metadata else stub
        return self._stubs[address]

    def channel(self, address: str) -> grpc.aio.Channel:
        """The connection to one server."""
        if self._closed:
            raise _closed()
        if address not in self._channels:
            self._channels[address] = self._open(address)
        return self._channels[address]

    async def close(self) -> None:
        """Close all channels, for good: calls under way and later ones fail."""
        self._closed = True
        channels, self._channels, self._stubs = self._channels, {}, {}
        for channel in channels.values():
            await channel.close()

    def _open(self, address: str) -> grpc.aio.Channel:
        credentials = self._security.credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(address, _OPTIONS)
        return grpc.aio.secure_channel(address, credentials, _OPTIONS)


class _WithMetadata:
    """A stub whose calls carry the same metadata."""

    def __init__(self, stub: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self._stub = stub
        self._metadata = metadata

    def __getattr__(self, method: str) -> Any:
        return partial(getattr(self._stub, method), metadata=self._metadata)


def error_of(error: grpc.aio.AioRpcError, address: str = "") -> WarmindexError:
    """A gRPC error as one of the package's, with reason and field where the server gave them."""
    reason, field = _details(error)
    status = error.code().name
    message = error.details() or status
    if status == "DEADLINE_EXCEEDED":
        return UnavailableError(f"no answer in time from {address}")
    if status == "CANCELLED":
        # Not by the caller, who gets a CancelledError: a server that goes away does this.
        return UnavailableError(f"the call was broken off by {address}: {message}")
    if status == "RESOURCE_EXHAUSTED" and "larger than max" in message:
        return InvalidError(
            f"{message}: send or ask for less at once", reason=Reason.FIELD_TOO_LONG
        )
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(status, WarmindexError)
    if status == "UNAVAILABLE" and reason is Reason.UNSPECIFIED:
        message = f"cannot reach {address}: {message}"
    return kind(message, field=field, reason=reason)


def _details(error: grpc.aio.AioRpcError) -> tuple[Reason, str]:
    reason, field = Reason.UNSPECIFIED, ""
    try:
        status = rpc_status.from_call(error)
    except (ValueError, DecodeError):
        # Details of another status than the call's: a proxy, or trailers that were cut.
        status = None
    for detail in status.details if status else ():
        info, request = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
            name = info.reason.removeprefix("ERROR_REASON_")
            reason = Reason.__members__.get(name, Reason.UNSPECIFIED)
        elif detail.Is(request.DESCRIPTOR):
            detail.Unpack(request)
            field = request.field_violations[0].field if request.field_violations else ""
    return reason, field


def _closed() -> UnavailableError:
    return UnavailableError("this client is closed")


def _content(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None else None
