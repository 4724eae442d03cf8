"""The names of a journal's keys: one prefix and one hash tag, so that a cluster keeps them
together.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

from warmindex.errors import InvalidError, Reason

PREFIX_BYTES_MAX: Final = 200


class Keys:
    """All keys of one journal; `warmindex` gives `{warmindex}:head` and so on.

    A prefix that has a hash tag of its own ("app:{warm}") is taken as it is. Other parts of a
    server that keep things in Redis beside the journal name them with `key` too.
    """

    def __init__(self, prefix: str) -> None:
        """Raises InvalidError (field "redis_prefix")."""
        tagged = re.fullmatch(r"[^{}]*\{[^{}]+\}[^{}]*", prefix)
        if not prefix or len(prefix.encode()) > PREFIX_BYTES_MAX or not (tagged or _plain(prefix)):
            raise InvalidError(
                f"redis_prefix is {prefix!r:.80}; give 1 to {PREFIX_BYTES_MAX} bytes, with braces "
                'only around one hash tag, as in "app:{warm}"',
                field="redis_prefix",
                reason=Reason.OUT_OF_RANGE,
            )
        self.prefix = prefix if tagged else f"{{{prefix}}}"
        self.head = self.key("head")
        self.snapshot_lock = self.key("snapshot-lock")

    def key(self, name: str) -> str:
        """The key of that name."""
        return f"{self.prefix}:{name}"

    def log(self, history_id: str) -> str:
        """The stream of a history."""
        return self.key(f"log:{history_id}")

    def new_snapshot(self, revision: int) -> str:
        """A list that no other writer writes to."""
        return self.key(f"snapshot:{revision}:{secrets.token_hex(4)}")


def _plain(prefix: str) -> bool:
    return "{" not in prefix and "}" not in prefix
