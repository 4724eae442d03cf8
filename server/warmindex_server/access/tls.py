"""TLS files, read again when they change, for the gRPC port and the HTTP port alike.

Certificates are renewed every few weeks by something that knows nothing of this process, so a
handshake looks whether the files have changed. A pair that cannot be used, as while one half
of it is being replaced, leaves the last one in force, and says so in the log.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import grpc
from warmindex.errors import InvalidError

_log = logging.getLogger(__name__)

# A stat of three files is cheap, but not a thing for every handshake of a storm of them.
CHECK_S: Final = 1.0

# gRPC takes None for "as before", which its types do not say.
Fetch = Callable[[], grpc.ServerCertificateConfiguration]
Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. With `client_ca` callers must show a certificate that it has signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> list[Path]:
        """The files that are used."""
        return [path for path in (self.certificate, self.key, self.client_ca) if path]

    def stamp(self) -> Stamp:
        """What changes when a file does."""
        found = []
        for path in self.paths:
            try:
                status = path.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


class Tls:
    """Credentials of both ports from one set of files."""

    def __init__(self, files: TlsFiles) -> None:
        """Read them. Raises InvalidError where they cannot be used."""
        self._files = files
        self._stamp = files.stamp()
        self._checked_s = time.monotonic()
        self._context = _context(files)
        self._grpc = _grpc_configuration(files)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Credentials for the gRPC port."""
        return grpc.dynamic_ssl_server_credentials(
            self._grpc,
            cast("Fetch", self._fetch),
            require_client_authentication=bool(self._files.client_ca),
        )

    def http_context(self) -> ssl.SSLContext:
        """The context of the HTTP port; call `look_again` before handshakes that matter."""
        return self._context

    def look_again(self) -> bool:
        """Take over files that have changed; whether they have."""
        now_s = time.monotonic()
        if now_s - self._checked_s < CHECK_S:
            return False
        self._checked_s = now_s
        stamp = self._files.stamp()
        if stamp == self._stamp:
            return False
        try:
            # Tried on a context of its own: a bad pair must not spoil the one in use.
            _context(self._files)
            configuration = _grpc_configuration(self._files)
        except InvalidError as error:
            _log.error("TLS stays as it was: %s", error.message)
            return False
        self._stamp = stamp
        self._grpc = configuration
        self._context.load_cert_chain(self._files.certificate, self._files.key)
        if self._files.client_ca is not None:
            self._context.load_verify_locations(self._files.client_ca)
        _log.info("TLS files read again")
        return True

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """What gRPC asks before a handshake; None is "as before"."""
        return self._grpc if self.look_again() else None


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        names = ", ".join(map(str, files.paths))
        raise InvalidError(f"the TLS files {names} cannot be used: {error}") from error
    return context


def _grpc_configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    try:
        pair = (files.key.read_bytes(), files.certificate.read_bytes())
        client_ca = files.client_ca.read_bytes() if files.client_ca else None
    except OSError as error:
        raise InvalidError(f"the TLS files cannot be read: {error}") from error
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=client_ca)
