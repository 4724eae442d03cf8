"""The server as a whole: starts in order, drains in order.

start   HTTP port (alive, not ready) -> journal and replay -> gRPC port -> SERVING
stop    not ready, NOT_SERVING -> streams end, calls under way are answered -> journal
"""

from __future__ import annotations

import ipaddress
import logging
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from warmindex import limits
from warmindex.errors import InvalidError
from warmindex.index.search import SearchOptions

from warmindex_server.access import TokenFile
from warmindex_server.access.gate import Gate
from warmindex_server.access.tls import Tls
from warmindex_server.claims.memory import MemoryClaims
from warmindex_server.http import HttpPort
from warmindex_server.journal.base import Journal, JournalOptions
from warmindex_server.journal.registry import open_journal, recover_journal
from warmindex_server.leases.keeper import LeaseKeeper
from warmindex_server.replicas import Heard
from warmindex_server.rpc.reflection import enable_reflection
from warmindex_server.rpc.service import IndexService
from warmindex_server.several import share
from warmindex_server.snapshots import Snapshots
from warmindex_server.store import Store

if TYPE_CHECKING:
    from warmindex_server.settings import Settings
    from warmindex_server.shared import Peers

_log = logging.getLogger(__name__)

# Clients ping an idle stream every 10 s and more; gRPC's own default takes more than one
# ping in 300 s for an attack and hangs up.
PING_INTERVAL_MS_MIN: Final = 5_000

# How long a drained server waits for connections to take their last answers.
FAREWELL_S: Final = 1.0

GRPC_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.MESSAGE_BYTES_MAX),
    # A second server on the same port would take half of the calls to an index of its own.
    ("grpc.so_reuseport", 0),
    # The name has no "recv" in it, although the constant's in gRPC's headers does; an unknown
    # name is ignored.
    ("grpc.http2.min_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
    ("grpc.keepalive_permit_without_calls", 1),
)


class Server:
    """One process: a journal, an index, a gRPC port and an HTTP port."""

    def __init__(self, settings: Settings) -> None:
        check_exposure(settings)
        self._settings = settings
        self._state = "starting"
        self.port = 0
        self.http_port = 0
        self._tls = Tls(settings.tls) if settings.tls else None
        self._gate = Gate(TokenFile(settings.tokens) if settings.tokens else None)
        self._http = HttpPort(self._readiness, self._tls)
        self._health = health.aio.HealthServicer()
        self._store: Store | None = None
        self._leases: LeaseKeeper | None = None
        self._peers: Peers | None = None
        self._snapshots: Snapshots | None = None
        self._service: IndexService | None = None
        self._grpc: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Load what the journal has, then serve.

        Raises OSError where a port is taken, and what the journal raises.
        """
        host, http_port = split_address(self._settings.http_listen)
        try:
            self.http_port = await self._http.start(host, http_port)
        except OSError as error:
            raise _taken("--http-listen", self._settings.http_listen) from error
        self._state = "replaying"
        journal = await self._open_journal()
        heard = Heard()
        self._store = Store(journal)
        shared = share(journal, self._store, heard)
        claims = shared.claims if shared else MemoryClaims()
        self._peers = shared.peers if shared else None
        self._leases = LeaseKeeper(self._store, heard, leadership=self._peers)
        self._snapshots = Snapshots(self._store, self._peers)
        self._store.listeners += [heard, claims, self._leases]
        if not journal.immediate:
            self._store.listeners.append(self._snapshots)
        self._store.loaded += [claims.loaded, self._leases.loaded]
        await self._store.start()
        if self._peers is not None:
            self._peers.returned.append(self._leases.begin_again)
            await self._peers.start()
        self._leases.start()
        if not journal.immediate:
            self._snapshots.start()
        self._service = IndexService(
            self._store,
            heard,
            claims,
            self._leases,
            SearchOptions(words_weight=self._settings.words_weight),
            self._gate,
        )
        self._grpc = self._make_grpc(self._service)
        self.port = self._bind(self._grpc)
        await self._set_health(serving=True)
        await self._grpc.start()
        self._state = "serving"
        _log.info(
            "serving %s at revision %d, http on port %d",
            journal.name,
            self._store.revision,
            self.http_port,
        )

    async def stop(self) -> None:
        """Drain: answer what is under way, within the grace, and let go of everything."""
        if self._state == "closing":
            return
        self._state = "closing"
        if self._grpc is not None and self._service is not None:
            await self._drain(self._grpc, self._service)
        if self._leases is not None:
            await self._leases.close()
        if self._peers is not None:
            await self._peers.close()
        if self._snapshots is not None:
            await self._snapshots.close()
        if self._store is not None:
            await self._store.close()
        await self._http.close()

    async def _drain(self, server: grpc.aio.Server, service: IndexService) -> None:
        """Send callers elsewhere, answer those that are here, and close the port."""
        grace_s = self._settings.grace_s
        await self._set_health(serving=False)
        service.close()
        await service.traffic.ebb(grace_s)
        # What is open now is nobody's call: a load balancer that watches health, a tool's
        # reflection, an answer on its way out.
        await server.stop(min(FAREWELL_S, grace_s))

    async def _open_journal(self) -> Journal:
        settings = self._settings
        options = JournalOptions(redis_prefix=settings.redis_prefix)
        if settings.recover:
            recovered = await recover_journal(settings.journal, options)
            _log.warning(
                "recovered into history %s: %d records and %d snapshot batches kept, %d and %d "
                "lost; the old data is in %s",
                recovered.history_id,
                recovered.records_kept,
                recovered.part_batches_kept,
                recovered.records_lost,
                recovered.part_batches_lost,
                recovered.old_data or "no other place",
            )
        journal = open_journal(settings.journal, options)
        await journal.start()
        return journal

    def _readiness(self) -> tuple[bool, str]:
        """Whether calls should be sent here, and the state in words."""
        store = self._store
        if self._state == "serving" and store is not None and store.problem:
            return False, f"journal away: {store.problem}"
        if self._state == "replaying" and store is not None and store.progress:
            return False, f"replaying: {store.progress}"
        return self._state == "serving", self._state

    def _make_grpc(self, service: IndexService) -> grpc.aio.Server:
        server = grpc.aio.server(options=GRPC_OPTIONS)
        service.add_to(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        enable_reflection((service.NAME, health.SERVICE_NAME), server)
        return server

    def _bind(self, server: grpc.aio.Server) -> int:
        try:
            if self._tls is None:
                port = server.add_insecure_port(self._settings.listen)
            else:
                port = server.add_secure_port(self._settings.listen, self._tls.grpc_credentials())
        except RuntimeError as error:
            raise _taken("--listen", self._settings.listen) from error
        return port

    async def _set_health(self, *, serving: bool) -> None:
        status = (
            health_pb2.HealthCheckResponse.SERVING
            if serving
            else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", IndexService.NAME):
            await self._health.set(name, status)


def _taken(flag: str, address: str) -> OSError:
    return OSError(
        f"cannot listen on {address}: the port is taken, or the address is not this machine's; "
        f"choose another with {flag}"
    )


def split_address(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT, without the brackets of an IPv6 host."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_exposure(settings: Settings) -> None:
    """Raise InvalidError where others could reach the server and nobody asked for that."""
    if settings.insecure or (settings.tls and (settings.tokens or settings.tls.client_ca)):
        return
    for flag, address in (("--listen", settings.listen), ("--http-listen", settings.http_listen)):
        host, _ = split_address(address)
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = host == "localhost"
        if not loopback:
            raise InvalidError(
                f"{flag} is {address}, which others can reach: give it TLS (--tls-certificate, "
                "--tls-key) and --tokens or --tls-client-ca, listen on 127.0.0.1, or say "
                "--insecure where the network is trusted",
                field=flag,
            )
