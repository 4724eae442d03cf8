"""The memory journal keeps a bounded part of its log."""

from __future__ import annotations

import pytest
from support.journals import read_all, revisions
from support.records import embedded
from warmindex.record import Conditional, Report
from warmindex_server.journal import memory
from warmindex_server.journal.base import JournalMovedError


async def test_old_records_are_forgotten(monkeypatch):
    """Beyond the limit the oldest go, and a reader from before them is told."""
    monkeypatch.setattr(memory, "LOG_RECORDS_MAX", 10)
    journal = memory.MemoryJournal()
    given = [(await journal.append([embedded(number)]))[0] for number in range(25)]
    assert revisions(await read_all(journal, given[14])) == given[15:]
    with pytest.raises(JournalMovedError):
        await read_all(journal, given[13])


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda event: event,
        lambda event: Report(replica_id="r", model_id="m", changes=(event,)),
        lambda event: Conditional(record=event, unchanged_since=1),
    ],
)
async def test_vectors_in_the_log_are_bounded(monkeypatch, wrapped):
    """What the index may long have let go does not stay in memory through the log."""
    monkeypatch.setattr(memory, "LOG_VECTOR_BYTES_MAX", 10_000)
    journal = memory.MemoryJournal()
    for number in range(50):
        await journal.append([wrapped(embedded(number, hashes=2, dimensions=100))])
    kept = journal._log
    assert len(kept) * 800 <= 10_000 < (len(kept) + 1) * 800
    await journal.append([embedded(99, hashes=100, dimensions=100)])
    assert not journal._log
    assert journal._vector_bytes == 0


async def test_appending_never_waits():
    """The caller may apply in the same step: the coroutine ends without giving way."""
    append = memory.MemoryJournal().append([embedded(1)])
    with pytest.raises(StopIteration):
        append.send(None)
