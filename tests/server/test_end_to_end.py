"""Any events through real gRPC: the server answers as the plain model does, to every question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from support import questions, world
from support.model import PlainIndex, Verdict
from support.server import ServerHere, running
from warmindex.answers import KeyState, PublishResult
from warmindex.event import CacheEvent, Cause, PartitionKey
from warmindex.index import Outcome
from warmindex.index.listing import EntryInfo, ReplicaInfo


@st.composite
def events(draw: st.DrawFn) -> CacheEvent:
    """Events of every kind, some with numbers: new ones, used ones, left out ones, old lives."""
    event = draw(
        st.one_of(
            world.embedded(), world.embedded(), world.evicted(), world.cleared(cause=Cause.NONE)
        )
    )
    if draw(st.booleans()):
        return event
    return replace(event, epoch=draw(st.integers(1, 2)), sequence=draw(st.integers(1, 5)))


@settings(max_examples=40, deadline=None)
@given(st.lists(events(), max_size=25), st.booleans())
def test_the_server_is_the_plain_model(sent: list[CacheEvent], one_by_one: bool):
    """Every verdict, and then every list, vector, entry and route, over the wire."""
    asyncio.run(check(sent, one_by_one))


async def check(sent: Sequence[CacheEvent], one_by_one: bool) -> None:
    async with running(grace_s=0) as server:
        plain = PlainIndex()
        if one_by_one:
            results = [(await server.client.publish_all([event]))[0] for event in sent]
        else:
            results = await server.client.publish_all(sent)
        for event, result in zip(sent, results, strict=True):
            same_verdict(result, plain.apply(result.revision, event))
        revisions = [result.revision for result in results]
        assert revisions == sorted(set(revisions))
        await same_lists(server, plain)
        for key in {place.key for place in plain.entries}:
            await same_partition(server, plain, key)


def same_verdict(result: PublishResult, verdict: Verdict) -> None:
    """What the producer is told is what the model says."""
    assert result.outcome == verdict.outcome
    assert result.resync_required == verdict.resync_required
    assert result.holds_changed == verdict.holds_added + verdict.holds_removed
    assert result.current_epoch == verdict.current_epoch
    assert bool(result.error) == (result.outcome in (Outcome.REFUSED, Outcome.FENCED))


async def same_lists(server: ServerHere, plain: PlainIndex) -> None:
    """Partitions, replicas and entries of every tenant."""
    for tenant in world.TENANTS:
        partitions = await server.client.partitions(tenant)
        assert [each[:5] for each in partitions] == questions.partitions(plain, tenant)
        replicas = await server.client.replicas(tenant)
        assert [ReplicaInfo(*each[:6]) for each in replicas] == questions.replicas(plain, tenant)
        for content_hash in world.EVERY_HASH:
            entries = await server.client.entries(content_hash, tenant)
            shown = [EntryInfo(*each) for each in entries]
            assert shown == questions.entries(plain, tenant, content_hash)
    assert (await server.client.server_info()).entries == questions.entries_total(plain)


async def same_partition(server: ServerHere, plain: PlainIndex, key: PartitionKey) -> None:
    """Vectors bit for bit, and who holds the longest prefix."""
    hashes = world.HASHES[key.hash_scheme]
    found = await server.client.get_embeddings(key, hashes)
    expected = questions.vectors(plain, key, hashes)
    assert [state is KeyState.FOUND for state in found.states] == [v is not None for v in expected]
    assert found.vectors.tobytes() == b"".join(vector for vector in expected if vector)
    for chain in (hashes, hashes[1:]):
        answer = await server.client.lookup_route(key, block_hashes=chain)
        route = questions.route(plain, key, {key.hash_scheme: chain})
        shown = (list(answer.matches), answer.reason, answer.replicas_in_scope)
        assert shown == (list(route.matches), *route[1:])
