"""Page tokens: the last place shown, as an opaque string.

A token carries a place and nothing else: who asks, and for what, is read from the request
that brings it, so a token opens nothing that the request would not.
"""

from __future__ import annotations

import base64
import binascii
import json
from contextlib import suppress

from warmindex import limits
from warmindex.errors import InvalidError, Reason, out_of_range


def page_size(asked: int) -> int:
    """The size of a page: 100 where 0 is asked for, 1000 at most."""
    if asked > limits.PAGE_SIZE_MAX:
        raise out_of_range("page_size", asked, f"0 to {limits.PAGE_SIZE_MAX}")
    return asked or limits.PAGE_SIZE_DEFAULT


def token_of(kind: str, place: tuple[str, ...]) -> str:
    """The token that continues a list of a kind behind a place."""
    return base64.urlsafe_b64encode(json.dumps([kind, *place]).encode()).decode()


def place_of(kind: str, token: str, parts: int) -> tuple[str, ...] | None:
    """The place in a token; None without one. InvalidError where it is none of this kind."""
    if not token:
        return None
    found = None
    with suppress(ValueError, binascii.Error, RecursionError):
        found = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    if (
        isinstance(found, list)
        and len(found) == parts + 1
        and all(isinstance(part, str) for part in found)
        and found[0] == kind
    ):
        return tuple(found[1:])
    raise InvalidError(
        "page_token is not one that this call has given; begin the list again without one",
        field="page_token",
        reason=Reason.PAGE_TOKEN,
    )
