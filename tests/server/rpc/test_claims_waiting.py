"""Calls that wait: for a key that somebody else computes, or for a revision."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from support.claiming import Stub, ask, publish, release, states, waiting
from support.serving import embedded, reason_of, serving, state_names, stub_of
from warmindex_server.app import Server


@pytest.fixture(params=["memory", "redis"])
async def server(request: pytest.FixtureRequest, journal_settings) -> AsyncIterator[Server]:
    async with serving(**journal_settings(request.param)) as server:
        yield server


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Stub]:
    async with stub_of(server) as stub:
        yield stub


async def test_a_wait_ends_when_nothing_is_pending(server: Server, stub: Stub):
    """However the keys come; callers with and without claims are told the same."""
    assert await states(stub, [1, 2, 3], "a") == ["CLAIMED"] * 3
    calls = [
        asyncio.create_task(states(stub, [9, 1, 2, 3], claimant_id, wait_s=60))
        for claimant_id in ("", "")
    ]
    await waiting(server, 2)
    await publish(stub, embedded([2]))
    await publish(stub, embedded([1]))
    assert not any(call.done() for call in calls)
    await publish(stub, embedded([3]))
    assert await asyncio.gather(*calls) == [["ABSENT", "FOUND", "FOUND", "FOUND"]] * 2


async def test_a_wait_ends_when_a_key_falls_to_the_caller(server: Server, stub: Stub):
    """To the first in line, as many as it takes; the others wait on."""
    assert await states(stub, [1, 2, 3], "a") == ["CLAIMED"] * 3
    first = asyncio.create_task(states(stub, [1, 2, 3], "b", wait_s=60, max_claims=2))
    await waiting(server, 1)
    second = asyncio.create_task(states(stub, [1, 2, 3], "c", wait_s=60, max_claims=2))
    await waiting(server, 2)
    looking = asyncio.create_task(states(stub, [1, 2, 3], wait_s=60))
    await waiting(server, 3)
    assert await release(stub, [1, 2, 3], "a") == 3
    assert await first == ["CLAIMED", "CLAIMED", "ABSENT"]
    assert await second == ["PENDING", "PENDING", "CLAIMED"]
    await publish(stub, embedded([1, 2, 3]))
    assert await looking == ["FOUND"] * 3


async def test_a_wait_ends_by_time(stub: Stub):
    """Then the answer says what there is, and asking again is up to the caller."""
    assert await states(stub, [1, 2], "a") == ["CLAIMED", "CLAIMED"]
    await publish(stub, embedded([2]))
    assert await states(stub, [1, 2], "b", wait_s=0.05) == ["PENDING", "FOUND"]
    assert await states(stub, [1, 2], "b") == ["PENDING", "FOUND"]


async def test_who_has_something_to_do_does_not_wait(stub: Stub):
    """A claim of the caller's own, new or renewed, is answered at once."""
    assert await states(stub, [1], "a") == ["CLAIMED"]
    assert await states(stub, [1, 2], "b", wait_s=60) == ["PENDING", "CLAIMED"]
    assert await states(stub, [1, 2], "b", wait_s=60) == ["PENDING", "CLAIMED"]


async def test_calls_that_are_given_up_leave_nothing_behind(server: Server, stub: Stub):
    """The client goes away, or its deadline ends; a claim that it had lives on by its time."""
    claims = server._service._claims  # type: ignore[union-attr]
    assert await states(stub, [1], "a", ttl_s=0.5) == ["CLAIMED"]
    calls = [stub.GetEmbeddings(ask([1], "b", wait_s=60)) for _ in range(10)]
    async with stub_of(server) as other:
        calls.append(other.GetEmbeddings(ask([1], "c", wait_s=60)))
        await waiting(server, 11)
        for call in calls[:10]:
            call.cancel()
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.GetEmbeddings(ask([1], "d", wait_s=60), timeout=0.1)
    await waiting(server, 0)
    assert claims._waiters.empty
    assert await states(stub, [1], "e") == ["PENDING"]
    assert await states(stub, [1], "e", wait_s=30) == ["CLAIMED"]


async def test_a_thousand_calls_wait(server: Server, stub: Stub):
    """All of them for the same 140 keys, and all are answered when these have come."""
    numbers = range(140)
    assert await states(stub, numbers, "a") == ["CLAIMED"] * 140
    calls = [stub.GetEmbeddings(ask(numbers, f"w{n}", wait_s=60)) for n in range(1000)]
    await waiting(server, 1000)
    for start in range(0, 140, 35):
        await publish(stub, embedded(numbers[start : start + 35]))
    answers = await asyncio.gather(*calls)
    assert {tuple(state_names(answer)) for answer in answers} == {("FOUND",) * 140}
    assert server._service._claims._waiters.empty  # type: ignore[union-attr]


async def test_a_server_that_drains_answers_who_waits():
    """With what there is at that time: nobody holds up the drain until the grace is over."""
    async with serving(grace_s=60) as server, stub_of(server) as stub:
        assert await states(stub, [1], "a") == ["CLAIMED"]
        call = asyncio.create_task(states(stub, [1], "b", wait_s=60))
        await waiting(server, 1)
        await server.stop()
        assert await call == ["PENDING"]


# ---- eight at once -----------------------------------------------------------------------


@pytest.mark.parametrize("max_claims", [0, 1, 16])
async def test_eight_builds_at_once_compute_each_text_once(server: Server, max_claims: int):
    """Each of 140 keys is claimed by one of them; one dies half-way, and the others finish."""
    numbers = list(range(140))
    computed: list[int] = []
    died = asyncio.Event()

    async def build(name: str) -> int:
        ttl_s = 0.5 if name == "0" else 60
        async with stub_of(server) as stub:
            shares = 0
            while True:
                answer = state_names(
                    await stub.GetEmbeddings(
                        ask(
                            numbers,
                            f"{name}{shares}",
                            ttl_s=ttl_s,
                            wait_s=20,
                            max_claims=max_claims,
                        )
                    )
                )
                mine = [n for n, state in zip(numbers, answer, strict=True) if state == "CLAIMED"]
                if answer == ["FOUND"] * 140:
                    return shares
                if mine and name == "0":
                    died.set()
                    return shares
                shares += bool(mine)
                for start in range(0, len(mine), 10):
                    part = mine[start : start + 10]
                    computed.extend(part)
                    await publish(stub, embedded(part))

    shares = await asyncio.gather(*(build(str(number)) for number in range(8)))
    assert sorted(computed) == numbers
    assert died.is_set() or max_claims == 0
    assert sum(shares) >= 1


# ---- for a revision ---------------------------------------------------------------------


async def test_min_revision_waits_for_wait(stub: Stub):
    """Where it is not reached in that time the call is UNAVAILABLE, and nothing is claimed."""
    revision = (await publish(stub, embedded([1]))).revision
    assert await states(stub, [1], min_revision=revision) == ["FOUND"]
    for wait_s in (0, 0.05):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetEmbeddings(ask([2], "a", wait_s=wait_s, min_revision=revision + 2))
        assert reason_of(caught.value) == "REVISION_NOT_REACHED"
    call = asyncio.create_task(states(stub, [2, 3], "b", wait_s=60, min_revision=revision + 1))
    await asyncio.sleep(0.01)
    await publish(stub, embedded([2]))
    assert await call == ["FOUND", "CLAIMED"]


async def test_who_waits_for_a_revision_leaves_nothing_behind():
    """By its time, by going away, or by the server's end, which it is told of."""
    async with serving(grace_s=60) as server, stub_of(server) as stub:
        store = server._store
        assert store is not None
        far = store.revision + 1000
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetEmbeddings(ask([1], wait_s=0.05, min_revision=far))
        assert store._waiting == []
        given_up = stub.GetEmbeddings(ask([1], wait_s=60, min_revision=far))
        call = asyncio.ensure_future(stub.GetEmbeddings(ask([1], wait_s=60, min_revision=far)))
        while len(store._waiting) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        given_up.cancel()
        while len(store._waiting) > 1:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.001)
        await server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert reason_of(caught.value) == "SHUTTING_DOWN"
