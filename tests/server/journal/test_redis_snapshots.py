"""Snapshots in Redis: one writer at a time, readers that are slow, damage, recovery."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from support.following import Follower
from support.journals import RedisPlace, batches_of, load, read_all, revisions
from support.records import embedded, number_of
from warmindex_server.journal.base import (
    JournalCorruptError,
    JournalMovedError,
    JournalStartError,
)
from warmindex_server.journal.redis import snapshots
from warmindex_server.journal.registry import recover_journal

pytestmark = pytest.mark.usefixtures("small_pieces")

_prefixes = map("snap{}".format, itertools.count())


@pytest.fixture
def place(redis_server):
    """A prefix of one's own in the Redis of all tests."""
    return RedisPlace(redis_server.url, next(_prefixes))


def keys(client, place: RedisPlace, pattern: str) -> list[bytes]:
    """The place's keys of that kind."""
    prefix = f"{{{place.options.redis_prefix}}}"
    return sorted(client.scan_iter(f"{prefix}:{pattern}"))


async def test_one_server_at_a_time_writes_a_snapshot(place):
    """The second one is told that it is not its turn, and the first one's is whole."""
    async with place.opened() as one, place.opened() as two:
        given = await one.append([embedded(number) for number in range(5)])
        entered, go_on = asyncio.Event(), asyncio.Event()

        async def slowly():
            yield [embedded(50)]
            entered.set()
            await go_on.wait()
            yield [embedded(51)]

        saving = asyncio.create_task(one.save_snapshot(given[4], slowly()))
        await entered.wait()
        assert not await two.save_snapshot(given[4], batches_of([embedded(60)]))
        go_on.set()
        assert await saving
        assert not await two.save_snapshot(given[4], batches_of([embedded(60)]))
        _, parts, _ = await load(two)
        assert [number_of(part) for part in parts] == [50, 51]


async def test_a_writer_that_lost_its_lock_changes_nothing(place, redis_server):
    """A server that stood still for too long finds that another one has taken over."""
    async with place.opened() as one, place.opened() as two:
        given = await one.append([embedded(number) for number in range(5)])

        async def slowly():
            yield [embedded(50)]
            with redis_server.client() as client:
                client.delete(*keys(client, place, "snapshot-lock"))
            assert await two.save_snapshot(given[3], batches_of([embedded(60)]))
            yield [embedded(51)]

        assert not await one.save_snapshot(given[2], slowly())
        revision, parts, rest = await load(one)
        assert (revision, [number_of(part) for part in parts]) == (given[3], [60])
        assert revisions(rest) == [given[4]]
        with redis_server.client() as client:
            assert len(keys(client, place, "snapshot:*")) == 1
            assert not keys(client, place, "snapshot-lock")


async def test_a_writer_that_died_leaves_nothing_for_ever(place, redis_server, monkeypatch):
    """Its lock and its list have an expiry, and the next one need not wait for the list."""
    monkeypatch.setattr(snapshots, "LOCK_MS", 200)
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        entered = asyncio.Event()

        async def dies():
            yield [embedded(50)]
            entered.set()
            await asyncio.Event().wait()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(snapshots, "UNLOCK", snapshots.PUT_PARTS)  # its last words are lost
            saving = asyncio.create_task(journal.save_snapshot(given[4], dies()))
            await entered.wait()
            with redis_server.client() as client:
                (lock,) = keys(client, place, "snapshot-lock")
                (unfinished,) = keys(client, place, "snapshot:*")
                assert 0 < client.pttl(lock) <= 200
                assert client.pttl(unfinished) > 0
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
        for _ in range(200):
            if await journal.save_snapshot(given[4], batches_of([embedded(60)])):
                break
            await asyncio.sleep(0.05)
        assert [number_of(part) for part in (await load(journal))[1]] == [60]


async def test_a_reader_of_the_snapshot_before_can_finish(place):
    """A newer snapshot does not take the older one from under a reader's hands."""
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[1], batches_of([embedded(50)], [embedded(51)]))
        snapshot = await journal.snapshot()
        first = await anext(snapshot.batches)
        assert await journal.save_snapshot(given[3], batches_of([embedded(60)]))
        rest = [part async for batch in snapshot.batches for part in batch]
        assert [number_of(part) for part in [*first, *rest]] == [50, 51]
        with pytest.raises(JournalMovedError):
            await read_all(journal, snapshot.revision)


async def test_a_snapshot_whose_reader_is_too_slow_has_moved(place, redis_server):
    """The old list is gone at last: load again, from the newer one."""
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[1], batches_of(*([embedded(n)] for n in range(9))))
        snapshot = await journal.snapshot()
        await anext(snapshot.batches)
        with redis_server.client() as client:
            (old,) = keys(client, place, "snapshot:*")
            assert await journal.save_snapshot(given[3], batches_of([embedded(60)]))
            client.delete(old)
        with pytest.raises(JournalMovedError):
            async for _ in snapshot.batches:
                pass


async def test_a_new_history_keeps_the_snapshot_out(place, redis_server):
    """What was begun in one history is not published into the next one."""
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])

        async def slowly():
            yield [embedded(50)]
            with redis_server.client() as client:
                client.delete(*keys(client, place, "*"))
            async with Follower(journal) as follower:
                await follower.until_moved()
            yield [embedded(51)]

        assert not await journal.save_snapshot(given[4], slowly())
        assert await load(journal) == (0, [], [])


async def test_a_long_log_is_cut_in_steps(place, monkeypatch, redis_server):
    """Every entry before the snapshot goes, few at a time."""
    monkeypatch.setattr(snapshots, "CUT_ENTRIES", 100)
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(3000)])
        assert await journal.save_snapshot(given[2900], batches_of([embedded(50)]))
        with redis_server.client() as client:
            (log,) = keys(client, place, "log:*")
            assert client.xlen(log) == 99
        assert revisions((await load(journal))[2]) == list(given[2901:])


# ---- damage ----------------------------------------------------------------------------


async def filled(place: RedisPlace) -> list[int]:
    """Twenty records behind a snapshot of two batches."""
    async with place.opened() as journal:
        (start,) = await journal.append([embedded(100)])
        assert await journal.save_snapshot(start, batches_of([embedded(101)], [embedded(102)]))
        return list(await journal.append([embedded(number) for number in range(20)]))


async def test_a_missing_record_stops_the_start_and_is_recovered_around(place, redis_server):
    """The message names the revision and the way out, and --recover keeps all the others."""
    given = await filled(place)
    with redis_server.client() as client:
        (log,) = keys(client, place, "log:*")
        client.xdel(log, f"{given[7]}-0")
    async with place.opened() as journal:
        old = journal.history_id
        with pytest.raises(JournalCorruptError, match=rf"at revision {given[7]}.*--recover"):
            await load(journal)
    recovered = await recover_journal(place.url, place.options)
    assert (recovered.records_kept, recovered.records_lost) == (19, 1)
    async with place.opened() as journal:
        assert journal.history_id == recovered.history_id != old
        revision, parts, rest = await load(journal)
        assert revision > given[-1]
        assert [number_of(part) for part in parts] == [101, 102]
        assert [number_of(record) for _, record in rest] == [*range(7), *range(8, 20)]
        async with Follower(journal) as follower:
            await journal.append([embedded(30)])
            await follower.until_count(1)


async def test_a_damaged_record_stops_the_start(place, redis_server):
    """A frame whose checksum does not fit is named by its revision."""
    given = await filled(place)
    with redis_server.client() as client:
        (log,) = keys(client, place, "log:*")
        entries = client.xrange(log)
        client.delete(log)
        for name, fields in entries:
            if name == f"{given[7]}-0".encode():
                fields[b"r"] = fields[b"r"][:-1] + b"\xff"
            client.xadd(log, fields, id=name)
    async with place.opened() as journal:
        with pytest.raises(JournalCorruptError, match=rf"at revision {given[7]}.*checksum"):
            await load(journal)
    recovered = await recover_journal(place.url, place.options)
    assert (recovered.records_kept, recovered.records_lost) == (19, 1)


async def test_an_entry_of_somebody_else_stops_the_start(place, redis_server):
    """Another program that writes to the stream is not read as records."""
    given = await filled(place)
    with redis_server.client() as client:
        (log,) = keys(client, place, "log:*")
        client.xadd(log, {"hello": "world"}, id=f"{given[-1]}-5")
    async with place.opened() as journal:
        await journal.append([embedded(30)])
        with pytest.raises(JournalCorruptError, match="not written by a journal"):
            await load(journal)


@pytest.mark.parametrize("lost", ["all", "one"])
async def test_a_missing_snapshot_stops_the_start(place, redis_server, lost):
    """A list that was deleted, or shortened, is not taken for a snapshot."""
    await filled(place)
    with redis_server.client() as client:
        (stored,) = keys(client, place, "snapshot:*")
        if lost == "all":
            client.delete(stored)
        else:
            client.lpop(stored)
    async with place.opened() as journal:
        with pytest.raises(JournalCorruptError, match=r"of 2 batches are left.*--recover"):
            await load(journal)
    recovered = await recover_journal(place.url, place.options)
    assert recovered.part_batches_lost == (2 if lost == "all" else 1)
    assert recovered.records_kept == 20
    async with place.opened() as journal:
        assert len((await load(journal))[2]) == 20


async def test_a_damaged_batch_of_the_snapshot_stops_the_start(place, redis_server):
    """A batch whose checksum does not fit is named."""
    await filled(place)
    with redis_server.client() as client:
        (stored,) = keys(client, place, "snapshot:*")
        client.lset(stored, 1, b"x" * 100)
    async with place.opened() as journal:
        with pytest.raises(JournalCorruptError, match="batch 1"):
            await load(journal)


async def test_recovery_needs_a_journal(place):
    """A mistyped prefix does not begin a history."""
    with pytest.raises(JournalStartError, match="no journal"):
        await recover_journal(place.url, place.options)


async def test_servers_that_run_while_it_is_recovered_load_again(place):
    """Recovery is a new history, which whoever follows is told of."""
    async with place.opened() as journal:
        await journal.append([embedded(1)])
        async with Follower(journal) as follower:
            recovered = await recover_journal(place.url, place.options)
            assert (await follower.until_moved()).new_history
        assert journal.history_id == recovered.history_id
        assert [number_of(record) for _, record in await read_all(journal)] == [1]
