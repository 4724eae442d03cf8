"""What an EVICTED or ALL_CLEARED reaches, over the wire, from new and from old producers."""

from __future__ import annotations

import pytest
from support.messages import (
    ALL_CLEARED,
    EMBEDDED,
    EVICTED,
    MODEL,
    block,
    event,
    key,
    partition,
    publish_request,
    raw_field,
)
from support.server import ServerHere
from warmindex.v1 import index_service_pb2 as pb

ADAPTERS = ("", "a", "b")
FOUND = pb.GetEmbeddingsResponse.STATE_FOUND


async def publish(server: ServerHere, **fields: object) -> pb.EventResult:
    return (await server.stub.PublishEvent(publish_request(event(**fields)))).result


async def fill(server: ServerHere) -> None:
    """One key in three partitions, held by two replicas, with vectors."""
    for adapter in ADAPTERS:
        await publish(server, adapter_id=adapter, embeddings=block([1.0]))
        await publish(server, adapter_id=adapter, replica_id="pod-2", content_hashes=[key(2)])


async def survivors(server: ServerHere, replica: str = "pod-1") -> list[str]:
    """The adapters in which a replica still holds anything, as GetEntry and GetEmbeddings say."""
    held = []
    for content_hash in (key(1), key(2)):
        answer = await server.stub.GetEntry(pb.GetEntryRequest(content_hash=content_hash))
        held += [
            entry.partition.adapter_id
            for entry in answer.entries
            if replica in {hold.replica_id for hold in entry.holds}
        ]
    if replica == "pod-1":
        found = []
        for adapter in ADAPTERS:
            request = pb.GetEmbeddingsRequest(partition=partition(adapter), content_hashes=[key(1)])
            answer = await server.stub.GetEmbeddings(request)
            found += [adapter] * (list(answer.states) == [FOUND])
        assert found == held
    return held


ROWS = [
    (EVICTED, "", False, []),
    (EVICTED, "", True, ["a", "b"]),
    (EVICTED, "a", False, ["", "b"]),
    (EVICTED, "a", True, ["", "b"]),
    (EVICTED, "zzz", True, ["", "a", "b"]),
    (EVICTED, "zzz", False, ["", "a", "b"]),
    (ALL_CLEARED, "a", True, []),
    (ALL_CLEARED, "", False, []),
]


@pytest.mark.parametrize(("kind", "adapter", "scoped", "left"), ROWS)
async def test_the_removal_table(server, kind: int, adapter: str, scoped: bool, left: list[str]):
    """Each row takes from exactly its partitions, and from no other replica."""
    await fill(server)
    result = await publish(server, type=kind, adapter_id=adapter, adapter_scoped=scoped)
    assert await survivors(server) == left
    assert result.holds_changed == len(ADAPTERS) - len(left)
    assert await survivors(server, "pod-2") == list(ADAPTERS)
    applied, unchanged = pb.EventResult.OUTCOME_APPLIED, pb.EventResult.OUTCOME_UNCHANGED
    assert result.outcome == (applied if result.holds_changed else unchanged)


OLD_PRODUCERS = [
    ([], []),
    ([(7, b"a")], ["", "b"]),
    ([(7, b"zzz")], ["", "a", "b"]),
]


@pytest.mark.parametrize(("more", "left"), OLD_PRODUCERS, ids=["base", "adapter", "unknown"])
async def test_a_producer_older_than_the_flag(server, more, left: list[str]):
    """Bytes without the newer fields mean what they always meant."""
    await fill(server)
    fields = [(1, EVICTED), (2, b"pod-1"), (3, MODEL.encode()), (5, key(1)), *more]
    message = b"".join(raw_field(number, value) for number, value in fields)
    call = server.channel.unary_unary("/warmindex.v1.IndexService/PublishEvent")
    await call(raw_field(1, message))
    assert await survivors(server) == left
    assert await survivors(server, "pod-2") == list(ADAPTERS)


async def test_a_producer_older_than_adapters_embeds_for_the_base(server):
    """Without the adapter's field an EMBEDDED is for the base model alone."""
    fields = [(1, EMBEDDED), (2, b"pod-1"), (3, MODEL.encode()), (5, key(1))]
    message = b"".join(raw_field(number, value) for number, value in fields)
    call = server.channel.unary_unary("/warmindex.v1.IndexService/PublishEvent")
    await call(raw_field(1, message))
    answer = await server.stub.GetEntry(pb.GetEntryRequest(content_hash=key(1)))
    assert [entry.partition.adapter_id for entry in answer.entries] == [""]


async def test_evicting_the_base_leaves_adapters_alone(server):
    """A base block and an adapter's may share a key: the scoped eviction knows them apart."""
    blocks = {"hash_scheme": "xxh3-chain/16", "content_hashes": [key(1, 8)]}
    await publish(server, **blocks)
    await publish(server, **blocks, adapter_id="sql-lora")
    await publish(server, **blocks, type=EVICTED, adapter_scoped=True)
    matches = []
    for adapter in ("", "sql-lora"):
        request = pb.LookupRouteRequest(
            partition=partition(adapter, hash_scheme="xxh3-chain/16"), block_hashes=[key(1, 8)]
        )
        answer = await server.stub.LookupRoute(request)
        matches.append([match.replica_id for match in answer.matches])
    assert matches == [[], ["pod-1"]]


async def test_a_scheme_is_part_of_the_reach(server):
    """Within its scheme; every scheme where a producer names neither scheme nor adapter."""
    both = ("one", "two")

    async def schemes(**eviction: object) -> list[str]:
        for scheme in both:
            await publish(server, hash_scheme=scheme)
        await publish(server, type=EVICTED, **eviction)
        answer = await server.stub.GetEntry(pb.GetEntryRequest(content_hash=key(1)))
        return [entry.partition.hash_scheme for entry in answer.entries]

    assert await schemes(hash_scheme="one") == ["two"]
    assert await schemes(hash_scheme="one", adapter_scoped=True) == ["two"]
    # Scoped and without a scheme is text-sha256, in which there is nothing.
    assert await schemes(adapter_scoped=True) == ["one", "two"]
    assert await schemes() == []


async def test_a_tier_is_part_of_the_reach(server):
    """One tier where it is named, every tier where it is not."""
    for tier in (1, 2):
        await publish(server, tier=tier, embeddings=block([1.0]))
    gone = {"type": EVICTED, "adapter_scoped": True}
    first = await publish(server, **gone, tier=1)
    (entry,) = (await server.stub.GetEntry(pb.GetEntryRequest(content_hash=key(1)))).entries
    assert [hold.tier for hold in entry.holds] == [2]
    assert entry.dimensions == 1
    again = await publish(server, **gone, tier=1)
    rest = await publish(server, **gone)
    assert [each.holds_changed for each in (first, again, rest)] == [1, 0, 1]


async def test_clearing_an_empty_replica_again_and_again(server):
    """A clear of nothing is UNCHANGED, and leaves nothing behind."""
    await fill(server)
    results = [await publish(server, type=ALL_CLEARED) for _ in range(50)]
    assert [each.holds_changed for each in results] == [3] + [0] * 49
    assert {each.outcome for each in results[1:]} == {pb.EventResult.OUTCOME_UNCHANGED}
    assert await survivors(server, "pod-2") == list(ADAPTERS)
