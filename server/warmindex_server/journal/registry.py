"""From a URL to its journal.

A journal is a module with two functions::

    def open_url(url: str, options: JournalOptions) -> Journal
    async def recover_url(url: str, options: JournalOptions) -> Recovered

The package's own stand in the table below. Another package adds one by an entry point in the
group "warmindex.journals": the URL's scheme as its name, the module as its value.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, Protocol, cast

from warmindex.errors import InvalidError

from warmindex_server.journal.base import Journal, JournalOptions, Recovered

ENTRY_POINTS: Final = "warmindex.journals"

_HERE: Final = "warmindex_server.journal"
_MODULES: Final = {
    "memory": f"{_HERE}.memory",
    "sqlite": f"{_HERE}.sqlite",
    "redis": f"{_HERE}.redis",
    "rediss": f"{_HERE}.redis",
    "redis+sentinel": f"{_HERE}.redis",
    "rediss+sentinel": f"{_HERE}.redis",
    "redis+cluster": f"{_HERE}.redis",
    "rediss+cluster": f"{_HERE}.redis",
}


class JournalModule(Protocol):
    """What a module offers to be a journal."""

    def open_url(self, url: str, options: JournalOptions, /) -> Journal:
        """Make the journal, without touching anything yet. Raises InvalidError."""

    async def recover_url(self, url: str, options: JournalOptions, /) -> Recovered:
        """Begin a new history with what can be read; the damaged data is kept aside."""


def open_journal(url: str, options: JournalOptions | None = None) -> Journal:
    """The journal that a URL names, not started. Raises InvalidError (field "journal")."""
    return _module(url).open_url(url, options or JournalOptions())


async def recover_journal(url: str, options: JournalOptions | None = None) -> Recovered:
    """Begin a new history with what can be read. No server may run on it.

    Raises InvalidError, JournalStartError, JournalUnavailableError.
    """
    return await _module(url).recover_url(url, options or JournalOptions())


def _module(url: str) -> JournalModule:
    scheme = url.partition(":")[0]
    name = _MODULES.get(scheme)
    if name is not None:
        try:
            return cast(JournalModule, import_module(name))
        except ModuleNotFoundError as error:
            raise InvalidError(
                f"journal is {scheme}://…, and the Python package {error.name!r} that it needs is "
                "not installed: pip install 'warmindex[redis]'",
                field="journal",
            ) from error
    for entry_point in entry_points(group=ENTRY_POINTS, name=scheme):
        return cast(JournalModule, entry_point.load())
    raise InvalidError(
        f"journal is {_without_password(url)!r:.200}; give memory, sqlite:///PATH or "
        "redis://HOST:PORT/DB (also rediss, redis+sentinel, redis+cluster)",
        field="journal",
    )


def _without_password(url: str) -> str:
    start, at, rest = url.rpartition("@")
    return f"…@{rest}" if at and ":" in start else url
