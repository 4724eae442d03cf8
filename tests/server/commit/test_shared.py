"""Publishing to a journal that others write too: who is answered, and who is told to come again.

The journal here is written down: what an append gives and what the tail brings, step by step.
No real one loses a record at the wish of a test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from support.records import embedded
from support.several import until
from warmindex.errors import JournalUnavailableError
from warmindex.index import Outcome
from warmindex.record import Record
from warmindex_server.commit import shared
from warmindex_server.journal.base import Away, Back, Batch, JournalMovedError, Step
from warmindex_server.store import Store


class WrittenJournal:
    """A journal whose tail yields what a test puts in, and whose log is what a load finds."""

    name = "written"
    immediate = False
    shared = True

    def __init__(self) -> None:
        self.history_id = "first"
        self.revision = 0
        self.log: list[tuple[int, Record]] = []
        self.appended: list[Record] = []
        self.steps: asyncio.Queue[Step | Exception] = asyncio.Queue()
        self.answers = asyncio.Event()
        self.answers.set()
        self.loads = asyncio.Event()
        self.loads.set()

    async def snapshot(self) -> None:
        return None

    async def read(self, after: int) -> AsyncIterator[Batch]:
        await self.loads.wait()
        yield [pair for pair in self.log if pair[0] > after]

    async def tail(self, after: int) -> AsyncIterator[Step]:  # noqa: ARG002 - the test says what comes
        while True:
            step = await self.steps.get()
            if isinstance(step, Exception):
                raise step
            yield step

    async def append(self, records: Sequence[Record]) -> Sequence[int]:
        first = self.revision + 1
        self.revision += len(records)
        self.appended += records
        given = list(zip(range(first, self.revision + 1), records, strict=True))
        await self.answers.wait()
        self.log += given
        return [revision for revision, _ in given]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def store_on(journal: WrittenJournal) -> AsyncIterator[Store]:
    store = Store(journal)  # type: ignore[arg-type]
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def journal() -> WrittenJournal:
    return WrittenJournal()


async def published(journal: WrittenJournal, store: Store, *records: Record) -> asyncio.Future:
    """A publish whose append has been answered."""
    count = len(journal.log) + len(records)
    call = asyncio.ensure_future(store.publish_all(records))
    await until(lambda: len(journal.log) >= count)
    await asyncio.sleep(0)
    return call


async def test_a_publisher_is_answered_when_its_records_are_back(journal):
    """Among those of others, and not before the last one."""
    async with store_on(journal) as store:
        call = await published(journal, store, embedded(1), embedded(2))
        journal.steps.put_nowait([journal.log[0]])
        await store.wait_for_revision(1, 5)
        assert not call.done()
        journal.steps.put_nowait([journal.log[1], (3, embedded(3))])
        results = await call
        assert [applied.revision for applied in results] == [1, 2]
        assert {applied.outcome for applied in results} == {Outcome.APPLIED}


async def test_a_record_that_comes_back_before_its_append_is_answered(journal):
    """The tail may be quicker than the answer."""
    async with store_on(journal) as store:
        journal.answers.clear()
        call = asyncio.ensure_future(store.publish(embedded(1)))
        await until(lambda: journal.appended)
        journal.steps.put_nowait([(1, journal.appended[0])])
        await store.wait_for_revision(1, 5)
        journal.answers.set()
        assert (await call).revision == 1


@pytest.mark.parametrize("quicker", [False, True])
async def test_another_record_at_that_revision_is_no_answer(journal, quicker):
    """The journal has lost the publisher's, and somebody else's stands there."""
    async with store_on(journal) as store:
        if quicker:
            journal.answers.clear()
        call = asyncio.ensure_future(store.publish(embedded(1)))
        await until(lambda: journal.appended)
        journal.steps.put_nowait([(1, embedded(1))])
        await store.wait_for_revision(1, 5)
        journal.answers.set()
        with pytest.raises(JournalUnavailableError, match="publish again"):
            await call


async def test_a_reload_fails_what_it_passes(journal):
    """Whether the append was answered before the journal moved, or while it was loaded."""
    async with store_on(journal) as store:
        before = await published(journal, store, embedded(1))
        journal.answers.clear()
        meanwhile = asyncio.ensure_future(store.publish(embedded(2)))
        await until(lambda: len(journal.appended) >= 2)
        journal.loads.clear()
        journal.log.append((2, journal.appended[1]))
        journal.steps.put_nowait(JournalMovedError("gone"))
        with pytest.raises(JournalUnavailableError):
            await before
        assert "gone" in store.problem
        journal.loads.set()
        await until(lambda: not store.problem)
        assert store.revision == 2
        journal.answers.set()
        with pytest.raises(JournalUnavailableError, match="publish again"):
            await meanwhile


async def test_the_history_changes_together_with_the_index(journal):
    """While the new one is loaded, readers have the old index under its old name."""
    async with store_on(journal) as store:
        call = await published(journal, store, embedded(1))
        journal.steps.put_nowait(list(journal.log))
        await call
        journal.loads.clear()
        loaded = []
        store.loaded.append(lambda: loaded.append((store.history_id, store.revision)))
        waiting = asyncio.ensure_future(store.wait_for_revision(90, 5))
        journal.history_id, journal.revision, journal.log = "second", 99, []
        journal.steps.put_nowait(JournalMovedError("flushed", new_history=True))
        await until(lambda: store.problem)
        assert (store.history_id, store.revision) == ("first", 1)
        journal.loads.set()
        await waiting
        assert loaded == [("second", 99)]
        assert (store.history_id, store.revision) == ("second", 99)


async def test_while_the_journal_is_away_publishers_hear_so_at_once(journal):
    """Those whose record is on its way, those in the queue, and those who come."""
    async with store_on(journal) as store:
        on_its_way = await published(journal, store, embedded(1))
        journal.answers.clear()
        calls = [on_its_way]
        calls += [asyncio.ensure_future(store.publish(embedded(n))) for n in (2, 3)]
        await until(lambda: len(journal.appended) >= 2)
        calls.append(asyncio.ensure_future(store.publish(embedded(4))))
        await asyncio.sleep(0)
        journal.steps.put_nowait(Away("no route"))
        for call in (calls[0], calls[3]):
            with pytest.raises(JournalUnavailableError, match="no route"):
                await call
        with pytest.raises(JournalUnavailableError, match="no route"):
            await store.publish(embedded(5))
        journal.answers.set()
        for call in calls[1:3]:
            with pytest.raises(JournalUnavailableError):
                await call
        journal.steps.put_nowait(Back())
        await until(lambda: not store.problem)
        call = await published(journal, store, embedded(6))
        journal.steps.put_nowait(list(journal.log))
        assert (await call)[0].outcome is Outcome.APPLIED


async def test_a_server_that_follows_slowly_holds_its_publishers_back(journal, monkeypatch):
    """No more is appended than can be kept until it comes back."""
    monkeypatch.setattr(shared, "EXPECTED_RECORDS_MAX", 3)
    async with store_on(journal) as store:
        calls = [asyncio.ensure_future(store.publish(embedded(n))) for n in range(3)]
        await until(lambda: len(journal.log) >= 3)
        calls.append(asyncio.ensure_future(store.publish(embedded(3))))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(journal.appended) == 3
        journal.steps.put_nowait(list(journal.log))
        await until(lambda: len(journal.log) >= 4)
        journal.steps.put_nowait(journal.log[3:])
        assert [applied.revision for applied in await asyncio.gather(*calls)] == [1, 2, 3, 4]


async def test_a_tail_that_breaks_is_said_and_takes_nothing_more(journal, caplog):
    """Reads go on; nobody hangs on records that are never applied."""
    async with store_on(journal) as store:
        call = await published(journal, store, embedded(1))
        journal.steps.put_nowait(RuntimeError("a bug"))
        with pytest.raises(JournalUnavailableError, match="restart"):
            await call
        with pytest.raises(JournalUnavailableError, match="restart"):
            await store.publish(embedded(2))
        assert "restart" in store.problem
        assert any(record.levelname == "CRITICAL" for record in caplog.records)


async def test_a_server_that_goes_away_leaves_nobody_waiting(journal):
    """What was appended and has not come back fails."""
    async with store_on(journal) as store:
        call = await published(journal, store, embedded(1))
    with pytest.raises(JournalUnavailableError, match="going away"):
        await call
