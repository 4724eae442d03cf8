"""What every journal keeps to: the promises of `Journal`, one test each."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from support.journals import batches_of, load, read_all, revisions
from support.records import embedded, number_of, same
from warmindex.errors import JournalUnavailableError
from warmindex.event import CacheEvent
from warmindex.record import Conditional, Lease, LeaseState, ProducerState, Report, UsedNumber
from warmindex_server.journal.base import JournalMovedError

US_PER_DAY = 24 * 3600 * 1_000_000

ONE_OF_EACH = (
    embedded(1, hashes=3, dimensions=4),
    UsedNumber(replica_id="pod-0", model_id="m", epoch=1, sequence=7),
    Lease(replica_id="pod-0", tenant_id="blue", ttl_ms=5000),
    Report(replica_id="pod-0", model_id="m", changes=(embedded(2), embedded(3))),
    Conditional(record=Lease(replica_id="pod-0", ttl_ms=0), lease_generation=12),
)


async def test_a_new_history_starts_at_the_unix_microseconds(place):
    """The first revision is the time of the beginning, so it is above any earlier history's."""
    async with place.opened() as journal:
        before = journal.revision
        (first,) = await journal.append([embedded(1)])
        assert first == before + 1
        assert abs(first - time.time_ns() // 1000) < US_PER_DAY
        assert re.fullmatch(r"[A-Za-z0-9-]{1,64}", journal.history_id)


async def test_nothing_is_in_a_new_history(place):
    """An empty journal reads as empty, from the beginning and from its end."""
    async with place.opened() as journal:
        assert await load(journal) == (0, [], [])
        assert await read_all(journal, journal.revision) == []


async def test_every_kind_of_record_is_read_as_it_was_appended(place):
    """Records come back in order, bit for bit, with revisions that rise by one."""
    async with place.opened() as journal:
        given = await journal.append(ONE_OF_EACH)
        assert list(given) == list(range(given[0], given[0] + len(ONE_OF_EACH)))
        pairs = await read_all(journal)
        assert revisions(pairs) == list(given)
        assert all(same(record, old) for (_, record), old in zip(pairs, ONE_OF_EACH, strict=True))
        assert journal.revision == given[-1]


async def test_no_records_are_no_change(place):
    """Appending nothing is allowed and takes no revision."""
    async with place.opened() as journal:
        before = journal.revision
        assert list(await journal.append([])) == []
        assert journal.revision == before


async def test_reading_starts_after_a_revision(place):
    """read(after) gives what lies behind, wherever appends began and ended."""
    async with place.opened() as journal:
        for start in (0, 3, 4):
            await journal.append([embedded(start + place) for place in range(3)])
        everything = await read_all(journal)
        assert len(everything) == 9
        for skipped, (revision, _) in enumerate(everything, 1):
            rest = await read_all(journal, revision)
            assert revisions(rest) == revisions(everything)[skipped:]


async def test_much_is_read_in_several_batches(place):
    """A long log comes in batches of bounded size, without a gap."""
    async with place.opened() as journal:
        for start in range(0, 600, 100):
            await journal.append(
                [embedded(start + place, hashes=10, dimensions=384) for place in range(100)]
            )
        sizes, numbers = [], []
        async for batch in journal.read(0):
            sizes.append(len(batch))
            numbers += [number_of(record) for _, record in batch]
        assert len(sizes) > 1
        assert numbers == list(range(600))


async def test_all_is_there_after_opening_again(lasting_place):
    """The history, the records and the next revision are as they were."""
    async with lasting_place.opened() as journal:
        history = journal.history_id
        given = await journal.append(ONE_OF_EACH)
    async with lasting_place.opened() as journal:
        assert journal.history_id == history
        pairs = await read_all(journal)
        assert all(same(record, old) for (_, record), old in zip(pairs, ONE_OF_EACH, strict=True))
        assert list(await journal.append([embedded(9)])) == [given[-1] + 1]


async def test_a_memory_journal_begins_anew(place):
    """What is not kept is not the same history either."""
    if place.keeps:
        pytest.skip("this journal keeps its history: test_all_is_there_after_opening_again")
    async with place.opened() as journal:
        history, revision = journal.history_id, journal.revision
    async with place.opened() as journal:
        assert journal.history_id != history
        assert journal.revision > revision


# ---- snapshots -------------------------------------------------------------------------

PARTS = (
    [embedded(1, hashes=4, dimensions=3), embedded(2)],
    [
        ProducerState(replica_id="pod-0", model_id="m", epoch=2, sequence=9, resync_required=True),
        LeaseState(replica_id="pod-0", ttl_ms=1000, generation=44),
    ],
)
ALL_PARTS = [part for batch in PARTS for part in batch]


async def test_a_snapshot_takes_the_place_of_the_log(place):
    """After a snapshot, its parts and what came later give the whole state."""
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[3], batches_of(*PARTS))
        revision, parts, rest = await load(journal)
        assert revision == given[3]
        assert all(map(same, parts, ALL_PARTS))
        assert len(parts) == len(ALL_PARTS)
        assert revisions(rest) == [given[4]]


async def test_a_snapshot_is_there_after_opening_again(lasting_place):
    """Snapshot, rest of the log and the next revision survive, also with an empty rest."""
    async with lasting_place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[-1], batches_of(*PARTS))
    async with lasting_place.opened() as journal:
        revision, parts, rest = await load(journal)
        assert (revision, rest) == (given[-1], [])
        assert all(map(same, parts, ALL_PARTS))
        assert list(await journal.append([embedded(9)])) == [given[-1] + 1]


async def test_a_snapshot_says_how_many_batches_it_has(place):
    """Whoever reads a snapshot can tell how far it is."""
    async with place.opened() as journal:
        (revision,) = await journal.append([embedded(1)])
        await journal.save_snapshot(revision, batches_of(*PARTS))
        snapshot = await journal.snapshot()
        assert snapshot is not None
        assert snapshot.batch_count == len([batch async for batch in snapshot.batches]) > 0


async def test_a_cut_log_does_not_read_from_the_beginning(place):
    """A reader whose records were cut is told to load again, not given a part."""
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[-1], batches_of(*PARTS))
        await journal.append([embedded(6)])
        with pytest.raises(JournalMovedError):
            await read_all(journal, 0)
        with pytest.raises(JournalMovedError):
            await read_all(journal, given[0])


async def test_a_cut_can_leave_records_for_readers(place):
    """keep_records leaves that much of the log before the snapshot."""
    async with place.opened() as journal:
        given = [(await journal.append([embedded(number)]))[0] for number in range(10)]
        assert await journal.save_snapshot(given[7], batches_of(*PARTS), keep_records=5)
        assert revisions(await read_all(journal, given[4])) == given[5:]
        revision, _, rest = await load(journal)
        assert (revision, revisions(rest)) == (given[7], given[8:])


async def test_an_empty_state_has_a_snapshot_too(place):
    """A snapshot without parts is a snapshot: everything was removed."""
    async with place.opened() as journal:
        (revision,) = await journal.append([embedded(1)])
        assert await journal.save_snapshot(revision, batches_of())
        assert await load(journal) == (revision, [], [])


async def test_the_snapshot_only_moves_forward(place):
    """An older snapshot does not take the place of a newer one."""
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[3], batches_of(*PARTS))
        assert not await journal.save_snapshot(given[1], batches_of([embedded(7)]))
        assert not await journal.save_snapshot(given[3], batches_of([embedded(7)]))
        assert (await load(journal))[0] == given[3]
        assert await journal.save_snapshot(given[4], batches_of([embedded(8)]))
        revision, parts, _ = await load(journal)
        assert revision == given[4]
        assert len(parts) == 1


async def test_a_snapshot_that_fails_half_way_is_absent(place):
    """The snapshot before it, and the log behind that, stay as they were."""

    async def broken():
        yield PARTS[0]
        raise RuntimeError("the index had to stop")

    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[1], batches_of(*PARTS))
        with pytest.raises(RuntimeError, match="had to stop"):
            await journal.save_snapshot(given[3], broken())
        revision, parts, rest = await load(journal)
        assert revision == given[1]
        assert all(map(same, parts, ALL_PARTS))
        assert revisions(rest) == list(given[2:])
        assert await journal.save_snapshot(given[4], batches_of(*PARTS))


async def test_appends_go_on_while_a_snapshot_is_saved(place):
    """Records appended between a snapshot's batches come after it, in order."""
    async with place.opened() as journal:
        given = list(await journal.append([embedded(number) for number in range(3)]))
        snapshot_revision = given[-1]

        async def slowly():
            for batch in PARTS:
                given.extend(await journal.append([embedded(len(given))]))
                yield batch

        assert await journal.save_snapshot(snapshot_revision, slowly())
        revision, parts, rest = await load(journal)
        assert revision == snapshot_revision
        assert len(parts) == len(ALL_PARTS)
        assert revisions(rest) == given[3:]


async def test_one_snapshot_at_a_time(place):
    """A second one that starts meanwhile is turned away, or waits its turn and is whole."""
    async with place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])
        entered = asyncio.Event()
        go_on = asyncio.Event()

        async def first():
            yield PARTS[0]
            entered.set()
            await go_on.wait()
            yield PARTS[1]

        saving = asyncio.create_task(journal.save_snapshot(given[4], first()))
        await entered.wait()
        second = await journal.save_snapshot(given[3], batches_of([embedded(7)]))
        go_on.set()
        assert await saving
        revision, parts, _ = await load(journal)
        assert revision == given[4]
        assert all(map(same, parts, ALL_PARTS))
        assert second is False or place.keeps is False


# ---- closing ---------------------------------------------------------------------------


async def test_closing_twice_is_harmless(place):
    """close() may be called by whoever comes last."""
    async with place.opened() as journal:
        await journal.append([embedded(1)])
        await journal.close()
        await journal.close()


async def test_a_closed_journal_takes_nothing(lasting_place):
    """After close() an append is refused, not lost."""
    async with lasting_place.opened() as journal:
        await journal.close()
        with pytest.raises(JournalUnavailableError):
            await journal.append([embedded(1)])


async def test_a_closed_journal_still_says_what_it_was(place):
    """Whoever answers a last call on the way out can name history and revision."""
    async with place.opened() as journal:
        (revision,) = await journal.append([embedded(1)])
        history = journal.history_id
        await journal.close()
        assert (journal.history_id, journal.revision) == (history, revision)


async def test_closing_ends_a_snapshot_that_is_being_saved(lasting_place):
    """It is absent then, and nothing else has changed."""
    async with lasting_place.opened() as journal:
        given = await journal.append([embedded(number) for number in range(5)])

        async def closing():
            yield PARTS[0]
            await journal.close()
            yield PARTS[1]

        with pytest.raises(JournalUnavailableError):
            await journal.save_snapshot(given[4], closing())
    async with lasting_place.opened() as journal:
        revision, parts, rest = await load(journal)
        assert (revision, parts, revisions(rest)) == (0, [], list(given))


async def test_random_records_survive(lasting_place):
    """Many odd events with vectors come back from the disk as they were."""
    events = [embedded(n, hashes=1 + n % 7, dimensions=n % 5) for n in range(200)]
    async with lasting_place.opened() as journal:
        for start in range(0, 200, 13):
            await journal.append(events[start : start + 13])
    async with lasting_place.opened() as journal:
        pairs = await read_all(journal)
        assert len(pairs) == 200
        for (_, record), event in zip(pairs, events, strict=True):
            assert isinstance(record, CacheEvent)
            assert same(record, event)
