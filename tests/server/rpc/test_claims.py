"""Claims over the wire: who computes what, and what ends a claim."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from support.claiming import M, Stub, ask, publish, release, states
from support.serving import embedded, field_of, reason_of, rows, serving, state_names, stub_of
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.app import Server


@pytest.fixture(params=["memory", "redis"])
async def server(request: pytest.FixtureRequest, journal_settings) -> AsyncIterator[Server]:
    async with serving(**journal_settings(request.param)) as server:
        yield server


@pytest.fixture
async def stub(server: Server) -> AsyncIterator[Stub]:
    async with stub_of(server) as stub:
        yield stub


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
    monkeypatch.setattr(server._service._claims._table, "claims_max", 2)  # type: ignore[union-attr]
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
