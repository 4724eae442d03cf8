"""Journals that lose their process at every step, held against a list of what was promised.

A machine appends, snapshots, and crashes before or after any step that a journal takes
outside itself: a statement of SQLite, a command to Redis. What was acknowledged is there
afterwards, in order and at its revision; of what was under way a beginning may be there; and
nothing else is.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from support.journals import RedisPlace, SqlitePlace, load
from support.records import embedded, number_of
from support.redis_server import RedisServer
from warmindex_server.journal.registry import open_journal

pytestmark = pytest.mark.usefixtures("small_pieces")

# More steps than any operation here takes: a crash that far away never comes.
STEPS_MAX = 12
# Parts a batch, so that a snapshot takes several steps.
BATCH_PARTS = 3

crash_points = st.tuples(st.integers(0, STEPS_MAX), st.booleans())


class CrashError(BaseException):
    """The process is gone."""


class CrashingSqlite:
    """A file whose server dies; what a power loss leaves is copied at that moment."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="warmindex-crash-"))
        self.generation = 0
        self.place = SqlitePlace(self.folder / "0.db")
        self.torn_bytes = 0

    async def open(self):
        """A journal on what the last crash left."""
        journal = open_journal(self.place.url)
        await journal.start()
        return journal

    def arm(self, journal, step: int, after: bool) -> None:
        """Let it die at a step from now, before or after the step."""
        counter = itertools.count()
        run = journal._run

        async def run_or_die(work):
            if next(counter) != step:
                return await run(work)
            size_before = self._wal_bytes()
            if after:
                await run(work)
            self._leave(size_before)
            raise CrashError

        journal._run = run_or_die

    def _wal_bytes(self) -> int:
        return Path(f"{self.place.path}-wal").stat().st_size

    def _leave(self, wal_bytes_before: int) -> None:
        old = self.place.path
        self.generation += 1
        new = self.folder / f"{self.generation}.db"
        shutil.copy(old, new)
        shutil.copy(f"{old}-wal", f"{new}-wal")
        wal = Path(f"{new}-wal")
        grown = wal.stat().st_size - wal_bytes_before
        if 0 < self.torn_bytes < grown:
            # The step was not acknowledged, so power loss may take any part of it.
            with wal.open("r+b") as file:
                file.truncate(wal.stat().st_size - self.torn_bytes)
        self.place = SqlitePlace(new)

    async def abandon(self, journal) -> None:
        """Let go of a journal that died."""
        with suppress(AttributeError):
            del journal._run
        await journal.close()

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.folder)


class CrashingRedis:
    """A prefix in a Redis that stays, while its servers die."""

    prefixes = itertools.count()
    torn_bytes = 0

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.place = RedisPlace(server.url, f"crash{next(self.prefixes)}")

    async def open(self):
        """A journal on what is there."""
        journal = open_journal(self.place.url, self.place.options)
        await journal.start()
        return journal

    def arm(self, journal, step: int, after: bool) -> None:
        """Let it die at a command from now, before or after it."""
        counter = itertools.count()
        call = journal.link.call

        async def call_or_die(*command):
            number = next(counter)
            if number > step:
                raise CrashError
            if number < step:
                return await call(*command)
            if after:
                await call(*command)
            raise CrashError

        journal.link.call = call_or_die

    async def abandon(self, journal) -> None:
        """Let go of a journal that died: its lock runs out."""
        await journal.close()
        with self.server.client() as client:
            client.delete(journal.keys.snapshot_lock)

    def remove(self) -> None:
        """The server is the test's."""


class JournalMachine(RuleBasedStateMachine):
    """One journal through many lives."""

    make: Callable[[], CrashingSqlite | CrashingRedis]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.world = type(self).make()
        # What was promised, and what was under way at a crash.
        self.numbers: dict[int, int] = {}
        self.under_way: list[int] = []
        self.next_number = 0
        self.history = ""

    @initialize()
    def begin(self) -> None:
        self.journal = self.run(self.world.open())
        self.history = self.journal.history_id

    def run(self, work: Awaitable):
        async def in_time():
            async with asyncio.timeout(30):
                return await work

        return self.runner.run(in_time())

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.run(self.world.abandon(self.journal))
        self.runner.close()
        self.world.remove()

    # ---- what happens ------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        events = self.fresh(count)
        revisions = self.run(self.journal.append(events))
        self.promise(dict(zip(revisions, map(number_of, events), strict=True)))
        self.verify()

    @rule(count=st.integers(1, 4), point=crash_points, torn=st.integers(0, 60_000))
    def die_appending(self, count: int, point: tuple[int, bool], torn: int) -> None:
        events = self.fresh(count)
        self.under_way = list(map(number_of, events))
        self.world.torn_bytes = torn
        self.die(self.journal.append(events), point, self.promise_all(events))

    @rule(share=st.floats(0, 1), keep=st.sampled_from([0, 0, 1, 3]))
    def save(self, share: float, keep: int) -> None:
        revision = self.revision_at(share)
        self.run(self.journal.save_snapshot(revision, self.state_at(revision), keep))
        self.verify()

    @rule(share=st.floats(0, 1), keep=st.sampled_from([0, 3]), point=crash_points)
    def die_saving(self, share: float, keep: int, point: tuple[int, bool]) -> None:
        revision = self.revision_at(share)
        self.world.torn_bytes = 0
        self.die(self.journal.save_snapshot(revision, self.state_at(revision), keep), point)

    @rule(point=crash_points)
    def die_loading(self, point: tuple[int, bool]) -> None:
        self.world.torn_bytes = 0
        self.die(load(self.journal), point)

    @rule()
    def restart(self) -> None:
        self.run(self.journal.close())
        self.journal = self.run(self.world.open())
        self.verify()

    # ---- what must hold ----------------------------------------------------------------

    def fresh(self, count: int) -> list:
        first = self.next_number
        self.next_number += count
        return [embedded(number, hashes=1 + number % 60) for number in range(first, first + count)]

    def promise(self, given: dict[int, int]) -> None:
        assert all(revision > max(self.numbers, default=0) for revision in given)
        self.numbers |= given

    def promise_all(self, events: list) -> Callable:
        def promise(revisions) -> None:
            self.under_way = []
            self.promise(dict(zip(revisions, map(number_of, events), strict=True)))

        return promise

    def revision_at(self, share: float) -> int:
        known = sorted(self.numbers) or [self.journal.revision]
        return known[int(share * (len(known) - 1))]

    async def state_at(self, revision: int):
        numbers = [number for at, number in sorted(self.numbers.items()) if at <= revision]
        for start in range(0, len(numbers), BATCH_PARTS):
            yield [embedded(number) for number in numbers[start : start + BATCH_PARTS]]

    def die(self, work: Awaitable, point: tuple[int, bool], done: Callable = lambda _: None):
        self.world.arm(self.journal, *point)
        with suppress(CrashError):
            done(self.run(work))
        self.run(self.world.abandon(self.journal))
        self.journal = self.run(self.world.open())
        self.verify()

    def verify(self) -> None:
        """What a start reads is what was promised, and a beginning of what was under way."""
        revision, parts, rest = self.run(load(self.journal))
        assert self.journal.history_id == self.history
        found = [number_of(part) for part in parts] + [number_of(record) for _, record in rest]
        promised = [number for _, number in sorted(self.numbers.items())]
        assert found[: len(promised)] == promised
        survived = found[len(promised) :]
        assert survived == self.under_way[: len(survived)]
        for at, record in rest:
            assert self.numbers.setdefault(at, number_of(record)) == number_of(record)
        self.under_way = []
        assert len(parts) == len([at for at in self.numbers if at <= revision])


def run_machine(make: Callable, examples: int, steps: int) -> None:
    """Run many lives of one kind of journal."""
    machine = type("Machine", (JournalMachine,), {"make": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_sqlite_keeps_its_promises_through_crashes():
    """At every statement, before and after, also with a torn write-ahead log."""
    run_machine(CrashingSqlite, examples=25, steps=12)


def test_redis_keeps_its_promises_through_crashes(redis_server):
    """At every command, before and after."""
    run_machine(lambda: CrashingRedis(redis_server), examples=25, steps=12)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sqlite_keeps_its_promises_for_long():
    """The same over more and longer lives."""
    run_machine(CrashingSqlite, examples=100, steps=30)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_redis_keeps_its_promises_for_long(redis_server):
    """The same over more and longer lives."""
    run_machine(lambda: CrashingRedis(redis_server), examples=100, steps=30)
