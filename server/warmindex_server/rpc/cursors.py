"""Cursors of watches: a revision, bound to the history and to what is watched.

A cursor means something only to a watch that asks for the same, of the same history, on
whatever server. Every other one, whatever it is, is as good as none.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from warmindex.index.selection import Selection

_SCOPE_BYTES: Final = 16
_FORM: Final = struct.Struct(f">{_SCOPE_BYTES}sQ")


class CursorScope:
    """What the cursors of one kind of watch are bound to."""

    def __init__(self, history_id: str, selection: Selection) -> None:
        fields = selection._replace(adapter_ids=frozenset())
        bound = [history_id, *fields, *sorted(selection.adapter_ids)]
        text = json.dumps(bound, default=list).encode()
        self.digest = blake2b(text, digest_size=_SCOPE_BYTES).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CursorScope) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def cursor(self, revision: int) -> str:
        """The cursor of a watch that has everything up to a revision."""
        return base64.urlsafe_b64encode(_FORM.pack(self.digest, revision)).decode()

    def revision(self, cursor: str) -> int | None:
        """The revision of a cursor; None where it is not one of this scope."""
        with suppress(ValueError, binascii.Error, struct.error):
            raw = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True)
            digest, revision = _FORM.unpack(raw)
            if digest == self.digest:
                return int(revision)
        return None
