"""A log as a chain: each entry carries the nonce of the one before it.

Pure: whether what Redis gives still continues what a reader has seen.

    reader stands at   next entry                        means
    -----------------  --------------------------------  ----------------------------------
    revision 7, nonce  links to that nonce               it continues (also over the first
    N                                                    entry of a new history)
    revision 7, N      is 8, links to another nonce      the log was replaced behind the reader
    revision 7, N      is 12, links to another nonce     cut past the reader, or replaced
    revision 7, none   is 8                              taken as the continuation
    revision 7, none   is 12                             cut past the reader
    the beginning      is a history's first entry        it continues
    the beginning      is any other                      cut past the reader
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from warmindex_server.journal.redis.scripts import NONCE_BYTES

# (id, fields) of each entry, as the client gives them.
RawEntries: TypeAlias = Sequence[tuple[bytes, Mapping[bytes, bytes]]]


class Entry(NamedTuple):
    """One entry of the stream; `frame` is None on a history's first one."""

    revision: int
    before: bytes
    nonce: bytes
    frame: bytes | None


class Position(NamedTuple):
    """Where a reader stands: after the record of that revision. 0 is the beginning."""

    revision: int
    nonce: bytes | None = None


class ChainBrokenError(Exception):
    """An entry does not continue what the reader has seen; `jumped`: its revision neither."""

    def __init__(self, position: Position, entry: Entry) -> None:
        super().__init__(f"revision {entry.revision} does not continue {position.revision}")
        self.position = position
        self.jumped = entry.revision != position.revision + 1


def parse(entries: RawEntries) -> list[Entry]:
    """Entries as the client gives them. Raises ValueError where they are not a journal's."""
    return [_entry(name, fields) for name, fields in entries]


def _entry(name: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    link = fields.get(b"l", b"")
    if len(link) != 2 * NONCE_BYTES or (b"r" in fields) == (b"h" in fields):
        raise ValueError(f"entry {name.decode()} of the stream was not written by a journal")
    revision = int(name.partition(b"-")[0])
    return Entry(revision, link[:NONCE_BYTES], link[NONCE_BYTES:], fields.get(b"r"))


def follow(position: Position, entry: Entry) -> Position:
    """The position after an entry. Raises ChainBrokenError."""
    if position.nonce is not None:
        continues = entry.before == position.nonce
    elif position.revision:
        continues = entry.revision == position.revision + 1
    else:
        continues = entry.frame is None
    if not continues:
        raise ChainBrokenError(position, entry)
    return Position(entry.revision, entry.nonce)


def fields_of(reply: Any) -> RawEntries:
    """The entries of an XREAD of one stream, in any of the shapes that the client gives."""
    if not reply:
        return []
    if isinstance(reply, dict):
        (entries,) = reply.values()
        # RESP3 puts the entries of a stream into one more list.
        nested = len(entries) == 1 and isinstance(entries[0], list)
        return list(entries[0] if nested else entries)
    ((_, entries),) = reply
    return list(entries)
