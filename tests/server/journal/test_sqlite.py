"""The SQLite journal against crashes, full disks, damage and a second server."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.journals import SqlitePlace, batches_of, load, read_all, revisions
from support.records import embedded, number_of
from support.tree import ROOT
from warmindex.errors import InvalidError
from warmindex_server.journal.base import (
    JournalCorruptError,
    JournalInUseError,
    JournalStartError,
)
from warmindex_server.journal.registry import open_journal, recover_journal
from warmindex_server.journal.sqlite import path_of

pytestmark = pytest.mark.usefixtures("small_pieces")

WRITER = ROOT / "tests" / "support" / "journal_writer.py"


@pytest.fixture
def place(tmp_path):
    """A path for a file that is not there yet."""
    return SqlitePlace(tmp_path / "warm.db")


@contextmanager
def writer(place: SqlitePlace, *arguments: int):
    """A process that appends; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, str(WRITER), place.url, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def lines_until(process, wanted: int) -> list[list[str]]:
    """The first lines that a writer prints, and then whatever it printed before it died."""
    lines = [process.stdout.readline().split() for _ in range(wanted)]
    process.send_signal(signal.SIGKILL)
    lines += [line.split() for line in process.stdout.read().splitlines(keepends=True) if line]
    process.wait()
    return lines


def acknowledged(lines: list[list[str]]) -> dict[int, int]:
    """Revision -> number, of what the writer was told is durable. The last line may be torn."""
    whole = [line for line in lines if line[:1] == ["ok"] and len(line) == 3]
    return {int(revision): int(number) for _, revision, number in whole}


@pytest.mark.parametrize(("per_append", "appends"), [(1, 3), (1, 40), (7, 25), (200, 6)])
async def test_kill_9_loses_nothing_acknowledged(place, per_append, appends):
    """Every acknowledged record is there at its revision, and behind the last one nothing is
    out of order."""
    with writer(place, 1, per_append) as process:
        lines = lines_until(process, appends)
    known = acknowledged(lines)
    assert known
    async with place.opened() as journal:
        pairs = await read_all(journal)
    found = {revision: number_of(record) for revision, record in pairs}
    assert {revision: found.get(revision) for revision in known} == known
    assert list(found.values()) == list(range(1, len(found) + 1))


async def test_a_second_life_goes_on_where_the_first_was_killed(place):
    """Kill and restart three times: one history, one order, no revision twice."""
    known: dict[int, int] = {}
    histories = set()
    number = 1
    for _ in range(3):
        with writer(place, number, 3) as process:
            lines = lines_until(process, 10)
        histories.add(lines[0][1])
        fresh = acknowledged(lines)
        assert not set(fresh) & set(known)
        known |= fresh
        async with place.opened() as journal:
            pairs = await read_all(journal)
            number = number_of(pairs[-1][1]) + 1
    assert len(histories) == 1
    found = {revision: number_of(record) for revision, record in pairs}
    assert {revision: found.get(revision) for revision in known} == known


async def test_a_full_disk_is_an_outage_and_nothing_is_lost(place):
    """Appends fail while there is no room, work again once there is, and lose nothing."""
    with writer(place, 1, 20, 400_000) as process:
        output = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 0
    failed = [line for line in output if line.startswith("failed")]
    assert len(failed) == 1
    assert "cannot be written" in failed[0]
    assert output[-1].startswith("ok")
    known = acknowledged([line.split() for line in output])
    async with place.opened() as journal:
        pairs = await read_all(journal)
    found = {revision: number_of(record) for revision, record in pairs}
    assert {revision: found.get(revision) for revision in known} == known
    assert list(found.values()) == list(range(1, len(found) + 1))


async def test_a_second_server_is_refused(place):
    """One file, one server: the message says what to do, and the first one goes on."""
    async with place.opened() as journal:
        with writer(place, 1, 1) as process:
            assert process.stdout.readline() == ""
        with pytest.raises(JournalInUseError, match="in use by another process"):
            await open_journal(place.url).start()
        await journal.append([embedded(1)])
    async with place.opened() as journal:
        assert len(await read_all(journal)) == 1


# ---- damage ----------------------------------------------------------------------------


async def left_by_a_crash(place: SqlitePlace, appends: int) -> Path:
    """A file and its write-ahead log as a killed server leaves them; the log's path."""
    live = SqlitePlace(place.path.with_name("live.db"))
    async with live.opened() as journal:
        for number in range(appends):
            await journal.append([embedded(number, hashes=30)])
        for suffix in ("", "-wal"):
            shutil.copy(f"{live.path}{suffix}", f"{place.path}{suffix}")
    return Path(f"{place.path}-wal")


def change_byte(path: Path, position: int) -> None:
    """Let one byte of a file be another."""
    with path.open("r+b") as file:
        file.seek(position, os.SEEK_SET if position >= 0 else os.SEEK_END)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))


async def test_a_torn_tail_is_cut_with_a_warning(place, caplog):
    """A transaction that was being written at the crash goes; all before it stays."""
    wal = await left_by_a_crash(place, 10)
    with wal.open("r+b") as file:
        file.truncate(wal.stat().st_size - 1000)
    async with place.opened() as journal:
        pairs = await read_all(journal)
        assert [number_of(record) for _, record in pairs] == list(range(9))
        assert "cut off" in caplog.text
        assert list(await journal.append([embedded(9)])) == [pairs[-1][0] + 1]
    async with place.opened() as journal:
        assert len(await read_all(journal)) == 10


async def test_a_whole_tail_is_not_warned_of(place, caplog):
    """kill -9 between two appends is no reason for a warning."""
    await left_by_a_crash(place, 10)
    async with place.opened() as journal:
        assert len(await read_all(journal)) == 10
    assert not caplog.records


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
async def test_damage_in_the_middle_of_the_log_stops_every_start(place, share):
    """SQLite would drop acknowledged transactions without a word; a start does not."""
    wal = await left_by_a_crash(place, 20)
    change_byte(wal, 20 if not share else int(wal.stat().st_size * share))
    for _ in range(2):
        with pytest.raises(JournalCorruptError, match="--recover") as caught:
            await open_journal(place.url).start()
        assert "write-ahead log" in str(caught.value)
    recovered = await recover_journal(place.url)
    async with place.opened() as journal:
        assert journal.history_id == recovered.history_id
        pairs = await read_all(journal)
        assert len(pairs) == recovered.records_kept
        assert [number_of(record) for _, record in pairs] == list(range(len(pairs)))


def rows(place: SqlitePlace, statement: str, *values: object) -> list[tuple]:
    """Change a closed journal by hand."""
    db = sqlite3.connect(place.path)
    try:
        with db:
            return db.execute(statement, values).fetchall()
    finally:
        db.close()


async def filled(place: SqlitePlace) -> list[int]:
    """Twenty appends behind a snapshot of two batches; the revisions of the appends."""
    async with place.opened() as journal:
        (start,) = await journal.append([embedded(100)])
        await journal.save_snapshot(start, batches_of([embedded(101)], [embedded(102)]))
        return [(await journal.append([embedded(n, hashes=30)]))[0] for n in range(20)]


async def test_a_damaged_record_stops_the_start_with_the_place(place):
    """The message names the revision and the way out, and --recover keeps all the others."""
    given = await filled(place)
    ((frames,),) = rows(place, "SELECT frames FROM log WHERE last_revision = ?", given[7])
    damaged = bytearray(frames)
    damaged[100] ^= 1
    rows(place, "UPDATE log SET frames = ? WHERE last_revision = ?", bytes(damaged), given[7])
    async with place.opened() as journal:
        with pytest.raises(JournalCorruptError, match=rf"at revision {given[7]}.*--recover"):
            await load(journal)
    recovered = await recover_journal(place.url)
    assert (recovered.records_kept, recovered.records_lost) == (19, 1)
    async with place.opened() as journal:
        _, parts, rest = await load(journal)
        assert [number_of(part) for part in parts] == [101, 102]
        assert [number_of(record) for _, record in rest] == [*range(7), *range(8, 20)]


async def test_a_missing_record_stops_the_start_with_the_place(place):
    """A row that is gone is damage as well."""
    given = await filled(place)
    rows(place, "DELETE FROM log WHERE last_revision = ?", given[7])
    async with place.opened() as journal:
        with pytest.raises(JournalCorruptError, match=rf"at revision {given[7]}.*missing"):
            await load(journal)


async def test_a_record_count_that_is_wrong_stops_the_start(place):
    """A row that lost a whole frame is damage as well."""
    given = await filled(place)
    rows(place, "UPDATE log SET frames = x'' WHERE last_revision = ?", given[7])
    async with place.opened() as journal:
        with pytest.raises(JournalCorruptError, match="0 are left of 1"):
            await load(journal)


@pytest.mark.parametrize(
    "change", ["DELETE FROM part WHERE id = 2", "UPDATE part SET frames=x'00'"]
)
async def test_a_damaged_snapshot_stops_the_start(place, change):
    """A part that is gone or unreadable is named."""
    await filled(place)
    rows(place, change)
    async with place.opened() as journal:
        with pytest.raises(JournalCorruptError, match=r"snapshot's part \d"):
            await load(journal)


async def test_damaged_pages_stop_the_start(place):
    """What SQLite itself cannot read is damage with a way out, and the rest is recovered."""
    async with place.opened() as journal:
        for number in range(300):
            await journal.append([embedded(number, hashes=40)])
    size = place.path.stat().st_size
    with place.path.open("r+b") as file:
        file.seek(size // 2 // 16384 * 16384)
        file.write(b"\xff" * 16384)
    with pytest.raises(JournalCorruptError, match="--recover"):
        async with place.opened() as journal:
            await load(journal)
    recovered = await recover_journal(place.url)
    assert recovered.records_kept + recovered.records_lost == 300
    assert recovered.records_lost > 0
    async with place.opened() as journal:
        numbers = [number_of(record) for _, record in await read_all(journal)]
        assert numbers == sorted(numbers)
        assert len(numbers) == recovered.records_kept


async def test_a_file_that_is_no_journal_is_left_alone(place, tmp_path):
    """Another program's file is refused; so is what is no SQLite file at all."""
    db = sqlite3.connect(place.path)
    db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(JournalStartError, match="another program's"):
        await open_journal(place.url).start()
    other = tmp_path / "notes.txt"
    other.write_text("not a database\n" * 1000)
    with pytest.raises(JournalCorruptError, match="not a SQLite file"):
        await open_journal(f"sqlite:///{other}").start()
    assert other.read_text().startswith("not a database")


async def test_a_file_of_a_newer_release_is_refused(place):
    """A layout that is not known here is named, not guessed at."""
    await filled(place)
    rows(place, "PRAGMA user_version=99")
    with pytest.raises(JournalStartError, match="newer release"):
        await open_journal(place.url).start()


async def test_a_folder_that_is_not_there_is_named(tmp_path):
    """The message says what the path needs."""
    with pytest.raises(JournalStartError, match="folder must exist"):
        await open_journal(f"sqlite:///{tmp_path}/nowhere/warm.db").start()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:warm.db", "sqlite:///:memory:"])
def test_a_url_without_a_file_is_refused(url):
    """The path stands after the third slash."""
    with pytest.raises(InvalidError, match="third slash"):
        open_journal(url)


def test_the_path_is_what_follows_the_third_slash():
    """Relative, or absolute with a fourth slash."""
    assert path_of("sqlite:///warm.db") == Path("warm.db")
    assert path_of("sqlite:////var/lib/warm.db") == Path("/var/lib/warm.db")


# ---- recovering ------------------------------------------------------------------------


async def test_recovery_begins_a_new_history_above_the_old_one(place):
    """Whoever knew the old history can tell, and the damaged file is kept."""
    given = await filled(place)
    async with place.opened() as journal:
        old = journal.history_id
    recovered = await recover_journal(place.url)
    assert recovered.old_data in map(str, place.path.parent.iterdir())
    async with place.opened() as journal:
        assert journal.history_id == recovered.history_id != old
        revision, parts, rest = await load(journal)
        assert revision > given[-1]
        assert [number_of(part) for part in parts] == [101, 102]
        assert [number_of(record) for _, record in rest] == list(range(20))
        assert revisions(rest)[0] == revision + 1


async def test_a_file_of_which_nothing_is_left_is_recovered_too(place):
    """The new history is empty, and the old file is kept."""
    place.path.write_bytes(b"\0" * 100_000)
    recovered = await recover_journal(place.url)
    assert recovered.records_kept == 0
    async with place.opened() as journal:
        assert await load(journal) == (0, [], [])


async def test_recovery_needs_a_file_and_no_server(place):
    """Nothing is begun anew under a running server, or by a mistyped path."""
    with pytest.raises(JournalStartError, match="is not there"):
        await recover_journal(place.url)
    async with place.opened():
        with pytest.raises(JournalInUseError):
            await recover_journal(place.url)


async def test_what_an_interrupted_snapshot_left_is_removed(place):
    """Parts that no snapshot refers to take no room for ever."""
    await filled(place)
    rows(place, "INSERT INTO part VALUES (77, x'00')")
    async with place.opened() as journal:
        assert len((await load(journal))[1]) == 2
    assert rows(place, "SELECT count(*) FROM part") == [(2,)]
