"""Claims of several servers on one Redis: each key is computed by one caller of all of them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import grpc
import pytest
from support.claiming import ask, publish, release, states
from support.server import ServerHere
from support.serving import embedded
from support.several import processes_on, servers_on, stubs_at, until
from warmindex.event import PartitionKey
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.claims.base import Claimant, Standing
from warmindex_server.claims.redis import RedisClaims, claims
from warmindex_server.claims.redis.claims import digest_of
from warmindex_server.journal.base import JournalOptions
from warmindex_server.journal.redis import RedisJournal

KEY = PartitionKey("", "m", "text-sha256", "")
EVICTED = 2


@pytest.fixture
async def two(redis_of_all, redis_prefix):
    async with servers_on(redis_of_all.url, redis_prefix) as servers:
        yield servers


def claims_of(server: ServerHere) -> RedisClaims:
    found = server.server._service._claims
    assert isinstance(found, RedisClaims)
    return found


def in_line(server: ServerHere) -> int:
    return sum(map(len, claims_of(server)._waiters._standing.values()))


async def waiting_at(server: ServerHere, *args: object, **fields: object) -> asyncio.Task:
    """A call that waits there for keys that others compute."""
    there = in_line(server)
    call = asyncio.create_task(states(server.stub, *args, **{"wait_s": 60.0, **fields}))
    await until(lambda: call.done() or in_line(server) > there)
    return call


def evicted(numbers: list[int]) -> pb.PublishEventRequest:
    event = embedded(numbers, vectors=False)
    event.type = EVICTED
    event.adapter_scoped = True
    return event


# ---- who gets what -----------------------------------------------------------------------


async def test_a_key_is_claimed_once_among_all_servers(two):
    """Also where it is only looked at; and its claimant renews it wherever it asks."""
    one, other = two
    assert await states(one.stub, [1, 2], "a") == ["CLAIMED", "CLAIMED"]
    assert await states(other.stub, [2, 3], "b") == ["PENDING", "CLAIMED"]
    assert await states(other.stub, [1, 2, 3, 4]) == ["PENDING"] * 3 + ["ABSENT"]
    assert await states(other.stub, [1, 2, 3], "a") == ["CLAIMED", "CLAIMED", "PENDING"]


async def test_a_claim_is_of_one_partition(two):
    """Neither tenant, model, scheme nor adapter of another partition are in its way."""
    one, other = two
    assert await states(one.stub, [1], "a") == ["CLAIMED"]
    for fields in ({"adapter_id": "x"}, {"tenant_id": "t"}, {"model_id": "n"}):
        partition = {"model_id": "m", **fields}
        assert await states(other.stub, [1], "b", partition=partition) == ["CLAIMED"]


async def test_only_its_claimant_releases_a_claim(two):
    """At any server; how many there were is told."""
    one, other = two
    assert await states(one.stub, [1, 2, 3], "a") == ["CLAIMED"] * 3
    assert await release(other.stub, [1, 2], "b") == 0
    assert await release(other.stub, [1, 2, 9], "a") == 2
    assert await release(one.stub, [1], "a") == 0
    assert await states(other.stub, [1, 2, 3], "b") == ["CLAIMED", "CLAIMED", "PENDING"]


async def test_a_claim_ends_by_time(two):
    """By the time that the last renewal gave it."""
    one, other = two
    assert await states(one.stub, [1, 2], "a", ttl_s=0.3) == ["CLAIMED"] * 2
    assert await states(other.stub, [2], "a", ttl_s=60.0) == ["CLAIMED"]
    await until_free(other, [1])
    assert await states(other.stub, [1, 2], "b") == ["CLAIMED", "PENDING"]
    assert await release(one.stub, [1], "a") == 0


async def until_free(server: ServerHere, numbers: list[int]) -> None:
    while "PENDING" in await states(server.stub, numbers):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.02)


async def test_the_limit_is_one_for_all(two):
    """Past it callers compute without a claim, and one that is over makes room."""
    one, other = two
    for server in two:
        claims_of(server)._table.claims_max = 3
    assert await states(one.stub, [1, 2], "a") == ["CLAIMED"] * 2
    assert await states(other.stub, [3, 4, 1], "b", ttl_s=0.2) == ["CLAIMED", "ABSENT", "PENDING"]
    await until_free(one, [3])
    assert await states(one.stub, [4, 5], "c") == ["CLAIMED", "ABSENT"]


async def test_the_largest_calls_fit_and_share(two):
    """4096 keys at once, some for each of two callers."""
    one, other = two
    numbers = list(range(4096))
    first = await states(one.stub, numbers, "a", max_claims=1500)
    assert first == ["CLAIMED"] * 1500 + ["ABSENT"] * 2596
    second = await states(other.stub, numbers, "b")
    assert second == ["PENDING"] * 1500 + ["CLAIMED"] * 2596
    assert await release(other.stub, numbers, "b") == 2596


# ---- waiting -----------------------------------------------------------------------------


async def test_a_vector_from_another_server_ends_a_wait(two):
    """The call goes on when the last of its keys has come through the journal."""
    one, other = two
    assert await states(one.stub, [1, 2], "a") == ["CLAIMED"] * 2
    call = await waiting_at(other, [1, 2], "b")
    await publish(one.stub, embedded([2]))
    await until(lambda: other.store.revision == one.store.revision)
    assert not call.done()
    await publish(one.stub, embedded([1]))
    assert await call == ["FOUND"] * 2


async def test_a_release_at_another_server_passes_a_claim_on(two):
    """To one of those who want it."""
    one, other = two
    assert await states(one.stub, [1], "a") == ["CLAIMED"]
    calls = [await waiting_at(other, [1], name) for name in ("b", "c")]
    assert await release(one.stub, [1], "a") == 1
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    (first,) = done
    assert first.result() == ["CLAIMED"]
    await publish(other.stub, embedded([1]))
    assert sorted(await asyncio.gather(*calls)) == [["CLAIMED"], ["FOUND"]]


async def test_a_claim_that_runs_out_falls_to_who_waits_elsewhere(two):
    """Nobody tells: the server looks when its time is over, and again where it was renewed."""
    one, other = two
    assert await states(one.stub, [1], "a", ttl_s=0.3) == ["CLAIMED"]
    call = await waiting_at(other, [1], "b")
    assert await states(one.stub, [1], "a", ttl_s=0.6) == ["CLAIMED"]
    began = time.monotonic()
    assert await call == ["CLAIMED"]
    assert time.monotonic() - began > 0.3
    assert await states(one.stub, [1], "a") == ["PENDING"]


async def test_a_release_between_looking_and_waiting_is_not_missed(two, monkeypatch):
    """The reader begins where the call has looked."""
    one, other = two
    assert await states(one.stub, [1], "a") == ["CLAIMED"]
    take = claims_of(other).take

    async def then_release(*args):
        taken = await take(*args)
        if taken.standings == [Standing.OTHERS]:
            assert await release(one.stub, [1], "a") == 1
        return taken

    monkeypatch.setattr(claims_of(other), "take", then_release)
    assert await states(other.stub, [1], "b", wait_s=60.0) == ["CLAIMED"]


async def test_calls_leave_nothing_behind(two):
    """Neither places in line, nor a reader of what is given up."""
    one, other = two
    assert await states(one.stub, [1], "a") == ["CLAIMED"]
    await asyncio.gather(*(states(other.stub, [1], str(n), wait_s=0.2) for n in range(20)))
    assert claims_of(other)._waiters.empty
    await until(lambda: claims_of(other)._freed._task is None)


# ---- vectors -----------------------------------------------------------------------------


async def test_nobody_computes_what_another_server_has_just_published(two, monkeypatch):
    """A server that is behind catches up before it answers, and gives the claim back."""
    one, other = two
    goes_on = asyncio.Event()
    apply = other.store.apply

    async def late(*args):
        await goes_on.wait()
        return await apply(*args)

    monkeypatch.setattr(other.store, "apply", late)
    await publish(one.stub, embedded([1]))
    call = asyncio.create_task(states(other.stub, [1, 2], "b"))
    while "PENDING" not in await states(one.stub, [1, 2]):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)
    assert not call.done()
    goes_on.set()
    assert await call == ["FOUND", "CLAIMED"]
    assert await release(other.stub, [1, 2], "b") == 1


async def test_a_server_that_does_not_catch_up_gives_no_claims(two, monkeypatch):
    """The caller computes without one, and nobody waits for it."""
    one, other = two
    goes_on = asyncio.Event()
    monkeypatch.setattr("warmindex.limits.MIN_REVISION_WAIT_S", 0.2)
    monkeypatch.setattr(other.store, "apply", lambda *_: goes_on.wait())
    await publish(one.stub, embedded([1]))
    assert await states(other.stub, [1, 2], "b") == ["ABSENT", "ABSENT"]
    assert await states(one.stub, [1, 2], "a") == ["FOUND", "CLAIMED"]


async def test_a_claim_that_a_vector_has_ended_does_not_come_back(two):
    """The entry is evicted at once; whoever asks at either server claims it."""
    one, other = two
    for server in (one, other) * 3:
        assert await states(one.stub, [1], "a") == ["CLAIMED"]
        await publish(other.stub, embedded([1]))
        await publish(other.stub, evicted([1]))
        await server.client.get_embeddings(KEY, [b"x" * 32], min_revision=other.store.revision)
        assert await states(server.stub, [1], "b") == ["CLAIMED"]
        assert await release(other.stub, [1], "b") == 1


async def test_a_claim_that_is_newer_than_a_vector_stays(redis_of_all, redis_prefix):
    """A server that tells late of a vector does not end what was claimed since."""
    journal = RedisJournal(redis_of_all.url, JournalOptions(redis_prefix=redis_prefix))
    await journal.start()
    table = RedisClaims(journal.link, journal.keys)
    try:
        (old,) = await journal.append([event_of(1)])
        claimant = Claimant("a", 60.0, 10)
        keys = [bytes(32), b"1" * 32]
        assert (await table.take(KEY, keys, claimant)).revision == old
        table.arrived(KEY, [keys[0]], old)
        (new,) = await journal.append([event_of(2)])
        table.arrived(KEY, [keys[1]], new)
        looked = await table.take(KEY, keys, None)
        assert looked.standings == [Standing.OTHERS, Standing.NOBODY]
    finally:
        table.close()
        await journal.close()


def event_of(number: int):
    from support.records import embedded as record

    return record(number)


async def test_all_partitions_have_different_digests():
    """Also where their names' ends and beginnings are moved."""
    names = [("a", "b"), ("ab", ""), ("", "ab"), ("a\0", "b")]
    keys = {PartitionKey("", "m", scheme, adapter) for scheme, adapter in names}
    assert len({digest_of(key) for key in keys}) == len(names)


# ---- Redis is away -----------------------------------------------------------------------


async def test_while_redis_is_away_reads_go_on_and_callers_compute(own_redis):
    """Found is found, absent is absent; those who wait are told too; then claims are back."""
    async with servers_on(own_redis.url) as (one, other):
        await publish(one.stub, embedded([1]))
        assert await states(one.stub, [2], "a") == ["CLAIMED"]
        await until(lambda: other.store.revision == one.store.revision)
        call = await waiting_at(other, [1, 2], "b")
        own_redis.kill()
        assert await call == ["FOUND", "ABSENT"]
        assert await states(other.stub, [1, 3], "c") == ["FOUND", "ABSENT"]
        assert await states(one.stub, [1, 3]) == ["FOUND", "ABSENT"]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await release(one.stub, [2], "a")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        own_redis.start()
        await until(lambda: not one.store.problem and not other.store.problem)
        assert await states(other.stub, [1, 2, 3], "c") == ["FOUND", "PENDING", "CLAIMED"]


@pytest.mark.slow
async def test_a_redis_that_hangs_delays_nobody_for_long(own_redis, monkeypatch):
    """A call for claims gives up in time; once the server knows, it does not even ask."""
    monkeypatch.setattr(claims, "TAKE_S_MAX", 0.3)
    async with servers_on(own_redis.url, count=1) as (one,):
        await publish(one.stub, embedded([1]))
        own_redis.pause()
        try:
            calls = [states(one.stub, [1, 2], str(number)) for number in range(100)]
            assert await asyncio.gather(*calls) == [["FOUND", "ABSENT"]] * 100
            await until(lambda: one.store.problem)
        finally:
            own_redis.go_on()
        await until(lambda: not one.store.problem)
        assert await states(one.stub, [1, 2], "a") == ["FOUND", "CLAIMED"]


async def test_a_new_history_wakes_who_waits(own_redis):
    """The claims are gone with the rest: the call that waits may compute the key."""
    async with servers_on(own_redis.url) as (one, other):
        assert await states(one.stub, [1], "a") == ["CLAIMED"]
        call = await waiting_at(other, [1], "b")
        with own_redis.client() as client:
            client.flushall()
        assert await call in (["CLAIMED"], ["ABSENT"])
        await until(lambda: not other.store.problem)
        assert await states(other.stub, [2], "b") == ["CLAIMED"]


# ---- a fleet -----------------------------------------------------------------------------


@pytest.mark.slow
async def test_eight_builders_over_two_servers_compute_each_key_once(redis_of_all, redis_prefix):
    """Real processes, everybody wants everything, and each key is computed by one of them."""
    numbers = list(range(140))
    computed: Counter[int] = Counter()

    async def build(name: str, stub: object) -> None:
        while True:
            answer = await stub.GetEmbeddings(ask(numbers, name, wait_s=30.0, max_claims=16))
            mine = [n for n, state in zip(numbers, answer.states, strict=True) if state == 3]
            if not mine:
                assert set(answer.states) == {1}
                return
            computed.update(mine)
            await asyncio.sleep(0.01)
            await publish(stub, embedded(mine))

    with processes_on(redis_of_all.url, redis_prefix) as servers:
        async with stubs_at(*servers) as stubs:
            await asyncio.gather(*(build(f"b{n}", stubs[n % 2]) for n in range(8)))
    assert computed == Counter(numbers)
