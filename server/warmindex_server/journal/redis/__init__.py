"""`redis://…`: several servers behind one address, as durable as that Redis."""

from __future__ import annotations

from warmindex_server.journal.base import Journal, JournalOptions, Recovered
from warmindex_server.journal.redis.journal import RedisJournal
from warmindex_server.journal.redis.recover import recover

__all__ = ["RedisJournal", "open_url", "recover_url"]


def open_url(url: str, options: JournalOptions) -> Journal:
    """The journal of that Redis and prefix. Raises InvalidError."""
    return RedisJournal(url, options)


async def recover_url(url: str, options: JournalOptions) -> Recovered:
    """Begin a new history with what can be read; the keys of the old one stay."""
    return await recover(url, options)
