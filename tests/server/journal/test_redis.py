"""The Redis journal: several servers, lost data, outages, and everything that Redis can do."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from support.following import Follower
from support.journals import RedisPlace, batches_of, load, read_all, revisions
from support.proxy import Proxy
from support.records import embedded, number_of, same
from warmindex.errors import InvalidError, JournalUnavailableError
from warmindex_server.journal.base import JournalMovedError, JournalOptions, JournalStartError
from warmindex_server.journal.redis import appending
from warmindex_server.journal.registry import open_journal

_prefixes = map("own{}".format, itertools.count())


@pytest.fixture
def shared(redis_server):
    """A prefix of one's own in the Redis of all tests."""
    return RedisPlace(redis_server.url, next(_prefixes))


@pytest.fixture
def place(own_redis):
    """A prefix in a Redis of one's own."""
    return RedisPlace(own_redis.url, "warm")


# ---- several servers -------------------------------------------------------------------


async def test_the_tail_yields_what_anyone_appends(shared):
    """Both servers see all records in one order; one's own come back as the same objects."""
    mine = [embedded(number) for number in range(5)]
    async with (
        shared.opened() as one,
        shared.opened() as two,
        Follower(one) as left,
        Follower(two) as right,
    ):
        await one.append(mine)
        await two.append([embedded(10), embedded(11)])
        await left.until_count(7)
        await right.until_count(7)
        assert revisions(left.pairs) == revisions(right.pairs)
        assert all(record is own for (_, record), own in zip(left.pairs, mine, strict=False))
        assert all(same(a, b) for (_, a), (_, b) in zip(left.pairs, right.pairs, strict=True))


async def test_servers_that_append_at_once_get_different_revisions(shared):
    """Four writers at once: every revision is given once, and none is missing."""
    journals = [open_journal(shared.url, shared.options) for _ in range(4)]
    for journal in journals:
        await journal.start()

    async def write(writer: int) -> list[int]:
        given: list[int] = []
        for number in range(20):
            records = [embedded(1000 * writer + number)] * (1 + number % 3)
            given += await journals[writer].append(records)
        return given

    given = await asyncio.gather(*map(write, range(4)))
    pairs = await read_all(journals[0])
    assert sorted(itertools.chain(*given)) == revisions(pairs)
    assert revisions(pairs) == list(range(pairs[0][0], pairs[-1][0] + 1))
    for journal in journals:
        await journal.close()


async def test_servers_that_start_at_once_agree_on_the_history(shared):
    """Whoever comes first begins it; everyone else takes it over."""
    journals = [open_journal(shared.url, shared.options) for _ in range(6)]
    await asyncio.gather(*(journal.start() for journal in journals))
    assert len({journal.history_id for journal in journals}) == 1
    for journal in journals:
        await journal.close()


async def test_a_tail_from_the_past_yields_what_came_since(shared):
    """A reader may begin anywhere in the log."""
    async with shared.opened() as journal:
        given = await journal.append([embedded(number) for number in range(10)])
        async with Follower(journal, given[3]) as follower:
            await follower.until_count(6)
            assert revisions(follower.pairs) == list(given[4:])
        async with Follower(journal, 0) as follower:
            await follower.until_count(10)
            assert revisions(follower.pairs) == list(given)


async def test_large_appends_are_split_over_scripts(shared, monkeypatch):
    """Records of one append keep their order over several scripts."""
    monkeypatch.setattr(appending, "SCRIPT_BYTES_MAX", 2000)
    async with shared.opened() as journal, Follower(journal) as follower:
        given = await journal.append([embedded(n, hashes=10) for n in range(40)])
        assert list(given) == list(range(given[0], given[0] + 40))
        await follower.until_count(40)
        assert [number_of(record) for _, record in follower.pairs] == list(range(40))


async def test_prefixes_and_databases_are_journals_of_their_own(own_redis):
    """Two prefixes, and two logical databases, share nothing."""
    places = [
        RedisPlace(own_redis.url, "one"),
        RedisPlace(own_redis.url, "two"),
        RedisPlace(f"{own_redis.url}/3", "one"),
        RedisPlace(own_redis.url, "app:{one}"),
    ]
    histories = set()
    for number, place in enumerate(places):
        async with place.opened() as journal:
            histories.add(journal.history_id)
            await journal.append([embedded(number)])
    for number, place in enumerate(places):
        async with place.opened() as journal:
            assert [number_of(record) for _, record in await read_all(journal)] == [number]
    assert len(histories) == len(places)
    with own_redis.client() as client:
        assert all(b"{one}:" in key or b"{two}:" in key for key in client.scan_iter())


@pytest.mark.parametrize("prefix", ["", "a{b", "{}", "{a}{b}", "x" * 201])
def test_a_prefix_that_is_none_is_refused(redis_server, prefix):
    """Braces may only stand around one hash tag."""
    with pytest.raises(InvalidError, match="redis_prefix"):
        open_journal(redis_server.url, JournalOptions(redis_prefix=prefix))


# ---- lost data -------------------------------------------------------------------------


async def check_all_agree_on_a_new_history(place: RedisPlace, old: str, above: int) -> None:
    """A server that starts now is in another history, above the old one, and takes records."""
    async with place.opened() as journal:
        assert journal.history_id != old
        (revision,) = await journal.append([embedded(99)])
        assert revision > above
        assert (await load(journal))[2][-1][0] == revision


async def test_flushall_is_noticed_by_all_who_follow(place, own_redis):
    """An idle tail notices, both servers end up in the same new history, and it is empty."""
    async with place.opened() as one, place.opened() as two:
        old = one.history_id
        given = await one.append([embedded(number) for number in range(5)])
        async with Follower(one) as left, Follower(two) as right:
            await right.until_count(5)
            with own_redis.client() as client:
                client.flushall()
            assert (await left.until_moved()).new_history
            assert (await right.until_moved()).new_history
        assert one.history_id == two.history_id != old
        assert await load(one) == (0, [], [])
        (revision,) = await one.append([embedded(7)])
        assert revision > given[-1]
        assert revisions((await load(two))[2]) == [revision]


async def test_nothing_is_acknowledged_into_lost_data(place, own_redis):
    """An append after FLUSHALL fails; it does not begin a stream that lacks what came before."""
    async with place.opened() as journal:
        await journal.append([embedded(1)])
        with own_redis.client() as client:
            client.flushall()
        with pytest.raises(JournalUnavailableError, match="another history"):
            await journal.append([embedded(2)])
        async with Follower(journal) as follower:
            assert (await follower.until_moved()).new_history
        await journal.append([embedded(3)])
        assert [number_of(record) for _, record in await read_all(journal)] == [3]


async def test_a_log_that_was_deleted_alone_is_a_new_history(place, own_redis):
    """The snapshot is still there, and the new history begins upon it."""
    async with place.opened() as journal:
        old = journal.history_id
        given = await journal.append([embedded(number) for number in range(5)])
        assert await journal.save_snapshot(given[2], batches_of([embedded(50)]))
        async with Follower(journal) as follower:
            with own_redis.client() as client:
                client.delete(f"{{warm}}:log:{old}")
            assert (await follower.until_moved()).new_history
        revision, parts, rest = await load(journal)
        assert (revision, [number_of(part) for part in parts], rest) == (given[2], [50], [])
        assert (await journal.append([embedded(6)]))[0] > given[-1]
        assert len((await load(journal))[2]) == 1
    await check_all_agree_on_a_new_history(place, old, given[-1])


async def test_a_restart_without_data_is_a_new_history(place, own_redis):
    """Redis is back, and empty: whoever follows loads again."""
    async with place.opened() as journal:
        old, given = journal.history_id, await journal.append([embedded(1)])
        async with Follower(journal) as follower:
            own_redis.kill()
            await follower.until_step("away")
            own_redis.forget()
            own_redis.start()
            assert (await follower.until_moved()).new_history
        assert await load(journal) == (0, [], [])
    await check_all_agree_on_a_new_history(place, old, given[-1])


async def test_older_data_in_its_place_is_a_new_history(place, own_redis, tmp_path):
    """A failover that lost records: what is there is kept, and nobody takes it for all."""
    async with place.opened() as journal:
        first = await journal.append([embedded(1)])
    own_redis.kill()
    own_redis.save_data(tmp_path / "older")
    own_redis.start()
    async with place.opened() as journal:
        old, given = journal.history_id, await journal.append([embedded(2), embedded(3)])
        async with Follower(journal) as follower:
            own_redis.kill()
            own_redis.take_data(tmp_path / "older")
            own_redis.start()
            assert (await follower.until_moved()).new_history
        assert [number_of(record) for _, record in await read_all(journal)] == [1]
        assert revisions(await read_all(journal)) == list(first)
    await check_all_agree_on_a_new_history(place, old, given[-1])


@pytest.mark.parametrize("overtaken", [False, True])
async def test_other_records_under_the_same_revisions_are_a_new_history(
    place, own_redis, tmp_path, overtaken
):
    """Somebody appended after such a failover: the links between records give it away."""
    async with place.opened() as journal:
        await journal.append([embedded(1)])
    own_redis.kill()
    own_redis.save_data(tmp_path / "older")
    own_redis.start()
    async with place.opened() as journal:
        old, given = journal.history_id, await journal.append([embedded(2), embedded(3)])
        async with Follower(journal, given[0]) as follower:
            await follower.until_count(1)
            own_redis.kill()
            own_redis.take_data(tmp_path / "older")
            own_redis.start()
            other = open_journal(place.url, place.options)
            await other.start()
            with_others = [embedded(number) for number in range(20, 25 if overtaken else 22)]
            await other.append(with_others)
            await other.close()
            assert (await follower.until_moved()).new_history
        numbers = [number_of(record) for _, record in await read_all(journal)]
        assert numbers == [1, *map(number_of, with_others)]
    await check_all_agree_on_a_new_history(place, old, given[-1])


async def test_a_reader_that_was_cut_past_loads_again(shared):
    """The log no longer reaches back to the reader: same history, from the snapshot."""
    async with shared.opened() as journal, shared.opened() as late:
        given = await journal.append([embedded(number) for number in range(50)])
        assert await journal.save_snapshot(given[40], batches_of([embedded(70)]))
        async with Follower(late, given[3]) as follower:
            moved = await follower.until_moved()
            assert not moved.new_history
        with pytest.raises(JournalMovedError):
            await read_all(late, given[3])
        revision, parts, rest = await load(late)
        assert (revision, len(parts), revisions(rest)) == (given[40], 1, list(given[41:]))
        async with Follower(late, given[-1]) as follower:
            await journal.append([embedded(60)])
            await follower.until_count(1)


# ---- outages ---------------------------------------------------------------------------


async def test_kill_9_of_redis_is_an_outage_and_no_loss(place, own_redis):
    """Appends fail while it is away; the tail says so, comes back and misses nothing."""
    async with place.opened() as journal, Follower(journal) as follower:
        first = await journal.append([embedded(1)])
        await follower.until_count(1)
        own_redis.kill()
        await follower.until_step("away")
        with pytest.raises(JournalUnavailableError, match="reads go on"):
            await journal.append([embedded(2)])
        own_redis.start()
        await follower.until_step("back")
        second = await journal.append([embedded(3)])
        await follower.until_count(2)
        assert revisions(follower.pairs) == [*first, *second]
        assert second[0] == first[0] + 1


async def test_a_redis_that_stands_still_is_away(place, own_redis):
    """SIGSTOP: connections stay open and nothing answers; afterwards nothing is missing."""
    async with place.opened() as journal, Follower(journal) as follower:
        await journal.append([embedded(1)])
        own_redis.pause()
        try:
            with pytest.raises(JournalUnavailableError):
                await journal.append([embedded(2)])
            await follower.until_step("away")
        finally:
            own_redis.go_on()
        await follower.until_step("back")
        (last,) = await journal.append([embedded(3)])
        await follower.until(lambda: bool(follower.pairs) and follower.pairs[-1][0] == last)
        numbers = [number_of(record) for _, record in follower.pairs]
        assert numbers in ([1, 3], [1, 2, 3])
        assert numbers == [number_of(record) for _, record in await read_all(journal)]


async def test_a_long_script_of_others_is_waited_for(place, own_redis):
    """Redis busy with something else is slow, not away."""
    busy_script = "local n = 0 for i = 1, 3e7 do n = n + i end return n"
    async with place.opened() as journal:
        with own_redis.client() as client:
            busy = asyncio.create_task(asyncio.to_thread(client.eval, busy_script, 0))
            await asyncio.sleep(0.02)
            await journal.append([embedded(1)])
            await busy
        assert len(await read_all(journal)) == 1


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_lost_answer_does_not_store_twice(place, own_redis, lost):
    """The connection breaks after Redis has stored the records: they are there once."""
    async with Proxy(own_redis.port) as proxy:
        through = RedisPlace(f"redis://127.0.0.1:{proxy.port}", "warm")
        async with through.opened() as journal, place.opened() as other:
            await journal.append([embedded(1)])
            await other.append([embedded(2)])
            proxy.lose_answers = lost
            given = await journal.append([embedded(3), embedded(4)])
            await other.append([embedded(5)])
            pairs = await read_all(other)
            assert [number_of(record) for _, record in pairs] == [1, 2, 3, 4, 5]
            assert revisions(pairs)[2:4] == list(given)


async def test_cut_connections_are_made_again(place, own_redis):
    """Between two appends every connection is cut: the next append does not notice."""
    async with Proxy(own_redis.port) as proxy:
        through = RedisPlace(f"redis://127.0.0.1:{proxy.port}", "warm")
        async with through.opened() as journal, Follower(journal) as follower:
            for number in range(5):
                await journal.append([embedded(number)])
                proxy.cut()
            await follower.until_count(5)
            assert [number_of(record) for _, record in follower.pairs] == list(range(5))


async def test_a_redis_without_its_scripts_is_given_them_again(shared, redis_server):
    """SCRIPT FLUSH, or a failover, forgets scripts."""
    async with shared.opened() as journal:
        await journal.append([embedded(1)])
        with redis_server.client() as client:
            client.script_flush()
        await journal.append([embedded(2)])
        assert len(await read_all(journal)) == 2


async def test_a_full_redis_is_an_outage_and_loses_nothing(place, own_redis):
    """At maxmemory with noeviction appends fail as a whole, and work again with room."""
    async with place.opened() as journal:
        await journal.append([embedded(1)])
        with own_redis.client() as client:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(JournalUnavailableError, match="not stored"):
                await journal.append([embedded(number, hashes=100) for number in range(2, 40)])
            client.config_set("maxmemory", "0")
        await journal.append([embedded(3)])
        assert [number_of(record) for _, record in await read_all(journal)] == [1, 3]


async def test_no_redis_at_the_start_is_unavailable(own_redis, place):
    """It may be back in a moment: start() can be called again."""
    own_redis.kill()
    journal = open_journal(place.url, place.options)
    with pytest.raises(JournalUnavailableError, match="does not answer"):
        await journal.start()
    own_redis.start()
    await journal.start()
    await journal.append([embedded(1)])
    await journal.close()


async def test_a_policy_that_evicts_stops_the_start(place, own_redis):
    """The message names the policy and what to set instead."""
    with own_redis.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(JournalStartError, match=r"allkeys-lru.*noeviction"):
            await open_journal(place.url, place.options).start()
        client.config_set("maxmemory-policy", "volatile-lru")
    async with place.opened() as journal:
        await journal.append([embedded(1)])
