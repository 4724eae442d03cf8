"""A place for each kind of journal, so that one suite can open it, leave it and come back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from warmindex.record import Record, SnapshotPart
from warmindex_server.journal.base import Journal, JournalOptions
from warmindex_server.journal.registry import open_journal


class Place:
    """Where a journal's data lies. `keeps`: what was appended is there when it opens again."""

    keeps = True
    shared = False

    def __init__(self, url: str, options: JournalOptions | None = None) -> None:
        self.url = url
        self.options = options or JournalOptions()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Journal]:
        """A started journal."""
        journal = open_journal(self.url, self.options)
        await journal.start()
        try:
            yield journal
        finally:
            await journal.close()


class MemoryPlace(Place):
    """Nowhere."""

    keeps = False

    def __init__(self) -> None:
        super().__init__("memory")


class SqlitePlace(Place):
    """A file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path}")
        self.path = path


class RedisPlace(Place):
    """A prefix in a server that others use too."""

    shared = True

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url, JournalOptions(redis_prefix=prefix))


async def read_all(journal: Journal, after: int = 0) -> list[tuple[int, Record]]:
    """Everything that read() gives."""
    return [pair async for batch in journal.read(after) for pair in batch]


async def load(journal: Journal) -> tuple[int, list[SnapshotPart], list[tuple[int, Record]]]:
    """What a start reads: the snapshot's revision (or 0) and parts, and the records after it."""
    snapshot = await journal.snapshot()
    parts: list[SnapshotPart] = []
    revision = 0
    if snapshot is not None:
        revision = snapshot.revision
        parts = [part async for batch in snapshot.batches for part in batch]
    return revision, parts, await read_all(journal, revision)


async def batches_of(*batches: Sequence[SnapshotPart]) -> AsyncIterator[Sequence[SnapshotPart]]:
    """Batches of parts, as the store hands them over."""
    for batch in batches:
        yield batch


def revisions(pairs: Iterable[tuple[int, Record]]) -> list[int]:
    """The revisions alone."""
    return [revision for revision, _ in pairs]
