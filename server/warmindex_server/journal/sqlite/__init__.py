"""`sqlite:///PATH`: one file, one server, nothing acknowledged lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from warmindex.errors import InvalidError

from warmindex_server.journal.base import Journal, JournalOptions, Recovered
from warmindex_server.journal.sqlite.journal import SqliteJournal
from warmindex_server.journal.sqlite.recover import recover

__all__ = ["SqliteJournal", "open_url", "recover_url"]

_PREFIX: Final = "sqlite:///"


def open_url(url: str, _options: JournalOptions) -> Journal:
    """The journal in the file that follows the third slash."""
    return SqliteJournal(path_of(url))


async def recover_url(url: str, _options: JournalOptions) -> Recovered:
    """Begin a new history in a new file with what can be read; the old file stays beside it."""
    return await asyncio.to_thread(recover, path_of(url))


def path_of(url: str) -> Path:
    """The path of a URL: relative, or absolute with a fourth slash. Raises InvalidError."""
    path = url.removeprefix(_PREFIX)
    if path == url or not path or path == ":memory:" or path.endswith("/"):
        raise InvalidError(
            f"journal is {url!r:.200}; give the path of a file after the third slash, like "
            "sqlite:///warm.db or sqlite:////var/lib/warmindex/warm.db",
            field="journal",
        )
    return Path(path)
