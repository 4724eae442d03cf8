"""Bearer tokens: how they are made, and what of them is kept.

A token is 256 random bits, so a plain SHA-256 of it cannot be guessed back; that is what a
server keeps.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

# Makes a leaked token recognisable to scanners.
TOKEN_PREFIX: Final = "wmx_"  # noqa: S105 - no password, the beginning of every one
TOKEN_BYTES: Final = 32


def new_token() -> tuple[str, str]:
    """A new token, and the SHA-256 of it in hex, which is what a server's file keeps."""
    token = TOKEN_PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    return token, digest_of(token)


def digest_of(token: str) -> str:
    """The SHA-256 of a token, in hex."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
