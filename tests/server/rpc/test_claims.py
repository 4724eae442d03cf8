"""Claims over the wire: who computes what, who waits, and what ends a claim."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from support.serving import (
    embedded,
    field_of,
    reason_of,
    rows,
    serving,
    state_names,
    stub_of,
    text_key,
)
from warmindex.v1 import event_pb2, index_service_pb2_grpc
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server

Stub = index_service_pb2_grpc.IndexServiceStub
M = event_pb2.PartitionKey(model_id="m")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as server:
        yield server


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Stub]:
    async with stub_of(server) as stub:
        yield stub


def seconds(value: float) -> Duration:
    duration = Duration()
    duration.FromMicroseconds(round(value * 1e6))
    return duration


def ask(
    numbers: Sequence[int],
    claimant_id: str = "",
    *,
    ttl_s: float | None = None,
    wait_s: float | None = None,
    **fields: object,
) -> pb.GetEmbeddingsRequest:
    return pb.GetEmbeddingsRequest(
        content_hashes=[text_key(number) for number in numbers],
        claimant_id=claimant_id,
        claim_ttl=None if ttl_s is None else seconds(ttl_s),
        wait=None if wait_s is None else seconds(wait_s),
        **{"partition": M, **fields},  # type: ignore[arg-type]
    )


async def states(stub: Stub, *args: object, **kwargs: object) -> list[str]:
    return state_names(await stub.GetEmbeddings(ask(*args, **kwargs)))  # type: ignore[arg-type]


async def publish(stub: Stub, event: event_pb2.CacheEvent) -> pb.EventResult:
    return (await stub.PublishEvent(pb.PublishEventRequest(event=event))).result


async def release(stub: Stub, numbers: Sequence[int], claimant_id: str) -> int:
    request = pb.ReleaseClaimsRequest(
        partition=M,
        claimant_id=claimant_id,
        content_hashes=[text_key(number) for number in numbers],
    )
    return (await stub.ReleaseClaims(request)).released


async def waiting(server: Server, calls: int) -> None:
    """Until so many calls stand in line for a key that another one computes."""
    waiters = server._service._claims._waiters  # type: ignore[union-attr]
    while sum(map(len, waiters._standing.values())) != calls:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)


# ---- who gets what -----------------------------------------------------------------------


async def test_each_key_is_claimed_once(stub: Stub):
    """The first to ask computes it, others wait, and one who only looks is told so."""
    assert await states(stub, [1, 2], "a") == ["CLAIMED", "CLAIMED"]
    assert await states(stub, [2, 3], "b") == ["PENDING", "CLAIMED"]
    assert await states(stub, [1, 2, 3, 4]) == ["PENDING", "PENDING", "PENDING", "ABSENT"]


async def test_a_key_asked_twice_is_answered_twice(stub: Stub):
    """It is one claim all the same, and one release."""
    assert await states(stub, [1, 1, 2], "a", max_claims=1) == ["CLAIMED", "CLAIMED", "ABSENT"]
    assert await release(stub, [1, 1], "a") == 1
    await publish(stub, embedded([1]))
    response = await stub.GetEmbeddings(ask([1, 1]))
    assert state_names(response) == ["FOUND", "FOUND"]
    assert response.embeddings.values == rows([1, 1]).values


async def test_max_claims_leaves_the_rest_to_others(stub: Stub):
    """What a caller holds already is renewed beside what it claims anew."""
    assert await states(stub, [1, 2, 3], "a", max_claims=1) == ["CLAIMED", "ABSENT", "ABSENT"]
    assert await states(stub, [1, 2, 3], "b", max_claims=1) == ["PENDING", "CLAIMED", "ABSENT"]
    assert await states(stub, [1, 2, 3], "a", max_claims=1) == ["CLAIMED", "PENDING", "CLAIMED"]


async def test_claims_are_of_one_partition(stub: Stub):
    """Neither adapter, model, tenant nor scheme shares a claim with another."""
    assert await states(stub, [1], "a") == ["CLAIMED"]
    for other in (
        event_pb2.PartitionKey(model_id="m", adapter_id="lora"),
        event_pb2.PartitionKey(model_id="m2"),
        event_pb2.PartitionKey(model_id="m", tenant_id="t"),
        event_pb2.PartitionKey(model_id="m", hash_scheme="own"),
    ):
        assert await states(stub, [1], "b", partition=other) == ["CLAIMED"]
        await publish(
            stub,
            embedded(
                [1],
                model_id=other.model_id,
                tenant_id=other.tenant_id,
                hash_scheme=other.hash_scheme,
                adapter_id=other.adapter_id,
            ),
        )
        assert await states(stub, [1], "c", partition=other) == ["FOUND"]
    assert await states(stub, [1]) == ["PENDING"]


async def test_past_the_limit_no_claim_is_given(
    server: Server, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    """Then callers are told to compute without one."""
    monkeypatch.setattr(server._service._claims._table, "_claims_max", 2)  # type: ignore[union-attr]
    assert await states(stub, [1, 2, 3], "a") == ["CLAIMED", "CLAIMED", "ABSENT"]
    assert await release(stub, [1], "a") == 1
    assert await states(stub, [3], "b") == ["CLAIMED"]


async def test_what_is_there_is_never_claimed(stub: Stub):
    """Rows that do not fit are deferred, beside claims on what is absent."""
    await publish(stub, embedded([1, 2]))
    found = await states(stub, [1, 9, 2], "a", max_bytes=16)
    assert found == ["FOUND", "CLAIMED", "DEFERRED"]
    assert await states(stub, [2, 9], "b", wait_s=0) == ["FOUND", "PENDING"]


# ---- what ends a claim -------------------------------------------------------------------


async def test_a_vector_ends_the_claim_whoever_publishes_it(stub: Stub):
    """An entry without a vector does not; nor does a vector that was refused."""
    await publish(stub, embedded([7]))
    assert await states(stub, [1], "a") == ["CLAIMED"]
    await publish(stub, embedded([1], vectors=False))
    assert await states(stub, [1], "b") == ["PENDING"]
    wide = embedded([1], vectors=False)
    wide.embeddings.CopyFrom(rows([1], dimensions=8))
    with pytest.raises(grpc.aio.AioRpcError):
        await publish(stub, wide)
    assert await states(stub, [1], "b") == ["PENDING"]
    await publish(stub, embedded([1], replica_id="somebody else"))
    assert await states(stub, [1], "b") == ["FOUND"]
    await publish(stub, event_pb2.CacheEvent(type=4, replica_id="somebody else", model_id="m"))
    await publish(stub, event_pb2.CacheEvent(type=4, replica_id="catalogue", model_id="m"))
    assert await states(stub, [1], "b") == ["CLAIMED"]


async def test_only_its_claimant_releases_a_claim(stub: Stub):
    """A release by anybody else, or of what is not claimed, counts nothing."""
    assert await states(stub, [1, 2], "a") == ["CLAIMED", "CLAIMED"]
    assert await release(stub, [1, 2], "b") == 0
    assert await release(stub, [1, 3], "a") == 1
    assert await states(stub, [1, 2], "b") == ["CLAIMED", "PENDING"]


async def test_a_claim_ends_by_time_and_asking_renews_it(stub: Stub):
    """Time is counted from the last answer to its claimant."""
    assert await states(stub, [1, 2], "a", ttl_s=0.2) == ["CLAIMED", "CLAIMED"]
    assert await states(stub, [1], "a", ttl_s=600) == ["CLAIMED"]
    assert await states(stub, [1, 2], "b", wait_s=30) == ["PENDING", "CLAIMED"]


async def test_a_late_publish_applies_like_any_other(stub: Stub):
    """The claim had gone to another one meanwhile; both publishes are good."""
    assert await states(stub, [1], "a", ttl_s=0.05) == ["CLAIMED"]
    assert await states(stub, [1], "b", wait_s=30) == ["CLAIMED"]
    result = await publish(stub, embedded([1], replica_id="a"))
    assert result.outcome == pb.EventResult.OUTCOME_APPLIED
    result = await publish(stub, embedded([1], replica_id="b"))
    assert result.outcome == pb.EventResult.OUTCOME_APPLIED


# ---- waiting -----------------------------------------------------------------------------


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


# ---- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"claimant_id": "x" * 257}, "claimant_id", "FIELD_TOO_LONG"),
        ({"claimant_id": "a", "ttl_s": 0}, "claim_ttl", "OUT_OF_RANGE"),
        ({"claimant_id": "a", "ttl_s": -1}, "claim_ttl", "OUT_OF_RANGE"),
        ({"claimant_id": "a", "ttl_s": 600.001}, "claim_ttl", "OUT_OF_RANGE"),
        ({"wait_s": -0.001}, "wait", "OUT_OF_RANGE"),
        ({"wait_s": 60.001}, "wait", "OUT_OF_RANGE"),
        ({"max_bytes": 15 * 2**20 + 1}, "max_bytes", "OUT_OF_RANGE"),
        ({"numbers": range(4097)}, "content_hashes", "TOO_MANY"),
    ],
)
async def test_what_is_outside_the_contract_is_refused(
    stub: Stub, fields: dict[str, object], field: str, reason: str
):
    """With the field at fault; nothing is claimed."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.GetEmbeddings(ask(**{"numbers": [1], **fields}))  # type: ignore[arg-type]
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert (field_of(caught.value), reason_of(caught.value)) == (field, reason)


async def test_what_concerns_claims_is_ignored_without_a_claimant(stub: Stub):
    """A lifetime of nothing is no fault of a caller that asks for no claim."""
    assert await states(stub, [1], ttl_s=-1, max_claims=3) == ["ABSENT"]


async def test_a_release_names_its_claimant(stub: Stub):
    """Without one, with too many keys, or with keys of another length, it is refused."""
    for numbers, claimant_id, field in (([1], "", "claimant_id"), (range(4097), "a", None)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await release(stub, numbers, claimant_id)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert field_of(caught.value) == (field or "content_hashes")
    request = pb.ReleaseClaimsRequest(partition=M, claimant_id="a", content_hashes=[b"x" * 48])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ReleaseClaims(request)
    assert reason_of(caught.value) == "HASH_LENGTH"


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
