"""Bearer tokens: made once, shown once, and kept as hashes.

A token file has one JSON object a line; blank lines and lines that begin with # are passed
over:

    {"name": "gateway", "sha256": "9f86d0…", "tenant": "acme", "role": "producer"}

`tenant` null is all tenants, "" the default tenant. Tokens are 256 random bits, so a plain
SHA-256 of one cannot be guessed back. The file is read again when it changes; one that cannot
be read or parsed then leaves the tokens as they were, and says so in the log.
"""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Final

from warmindex.errors import InvalidError, UnauthenticatedError, WarmindexError
from warmindex.tokens import digest_of

from warmindex_server.access.principal import Principal, Role

_log = logging.getLogger(__name__)

# A token that was taken out of the file is refused after this at the latest.
CHECK_S: Final = 1.0
SCHEME: Final = "bearer "


class TokenFile:
    """The principals of a token file, as it is now."""

    def __init__(self, path: Path) -> None:
        """Read it. Raises InvalidError where that cannot be done."""
        self._path = path
        self._checked_s = time.monotonic()
        self._stamp = self._stamp_now()
        self._principals = read_tokens(path)

    def principal_of(self, authorization: str) -> Principal:
        """Whose `authorization` header it is. Raises UnauthenticatedError."""
        self._look_again()
        if not authorization:
            raise UnauthenticatedError(
                "there is no credential: send the metadata `authorization: Bearer TOKEN`"
            )
        token = authorization[len(SCHEME) :].strip()
        known = authorization[: len(SCHEME)].lower() == SCHEME
        # Looked up by hash: how long it takes says nothing about the tokens that exist.
        principal = self._principals.get(digest_of(token)) if known else None
        if principal is None:
            raise UnauthenticatedError("the credential is not valid: ask for a new token")
        return principal

    def _look_again(self) -> None:
        now_s = time.monotonic()
        if now_s - self._checked_s < CHECK_S:
            return
        self._checked_s = now_s
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._principals = read_tokens(self._path)
        except WarmindexError as error:
            _log.error("the tokens stay as they were: %s", error.message)
        else:
            _log.info("%s read again: %d tokens", self._path, len(self._principals))

    def _stamp_now(self) -> tuple[int, int, int]:
        """What changes when the file does; a mounted secret is replaced, so its inode too."""
        try:
            status = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (status.st_mtime_ns, status.st_size, status.st_ino)


def read_tokens(path: Path) -> dict[str, Principal]:
    """The principals of a file, by the hash of their token. Raises InvalidError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"token file {path} cannot be read: {error}") from error
    principals = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            digest, principal = _principal(line, f"{path}, line {number}")
            principals[digest] = principal
    return principals


def _principal(line: str, where: str) -> tuple[str, Principal]:
    try:
        entry = json.loads(line)
        role = Role[str(entry["role"]).upper()]
        digest, tenant, name = entry["sha256"], entry["tenant"], entry["name"]
        bytes.fromhex(digest)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidError(
            f'{where}: is not {{"name": …, "sha256": …, "tenant": …, "role": "reader", '
            f'"producer" or "operator"}}: {error!r:.100}'
        ) from error
    if not (isinstance(tenant, str | None) and isinstance(name, str)) or len(digest) != 64:
        raise InvalidError(f"{where}: tenant and name are strings, sha256 is 64 hex digits")
    return digest.lower(), Principal(name, tenant, role)
