"""WatchEvents over the wire: a snapshot, then every change, of what was asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from support.numbered import OWN, cleared, embedded, key, vectors
from support.questions import content
from support.server import ServerHere, fault_of
from support.watching import IDLE, LIVE, RESET, Watcher
from warmindex.event import CacheEvent, Cause, Document, EventType, Tier
from warmindex.index.selection import Selection
from warmindex.record import Lease
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb

if TYPE_CHECKING:
    pass

# ---- what a watch tells ------------------------------------------------------------------


async def test_a_watch_begins_with_what_there_is_and_goes_on_with_what_changes(server: ServerHere):
    """RESET, the snapshot, LIVE, then each change at its revision and with its cursor."""
    before = await server.store.publish(embedded(1, 2, documents=[Document("one"), Document()]))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE]
        assert {each.revision for each in watcher.responses} == {before.revision}
        assert [bool(each.cursor) for each in watcher.responses] == [False, False, True]
        applied = await server.store.publish(embedded(2, 3))
        response = await watcher.next()
        assert response is not None
        assert response.revision == applied.revision
        assert response.cursor
        assert list(response.event.content_hashes) == [key(3)]
        assert watcher.content() == content(server.store.index)


async def test_a_change_is_the_effect_and_not_the_message(server: ServerHere):
    """One response for each partition and tier; number, reach and what was so already go."""
    store = server.store
    await store.publish(embedded(1, 2, adapter_id="a"))
    await store.publish(embedded(1, tier=Tier.HOST))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        sweep = CacheEvent(
            type=EventType.EVICTED,
            replica_id="r",
            model_id="m",
            content_hashes=[key(1), key(9)],
            timestamp_us=77,
            epoch=1,
            sequence=1,
        )
        applied = await store.publish(sweep)
        await watcher.until(applied.revision)
        told = watcher.responses[-2:]
        assert [bool(each.cursor) for each in told] == [False, True]
        assert {(each.event.adapter_id, each.event.tier) for each in told} == {
            ("a", event_pb2.CACHE_TIER_DEVICE),
            ("", event_pb2.CACHE_TIER_HOST),
        }
        for each in told:
            assert list(each.event.content_hashes) == [key(1)]
            assert each.event.hash_scheme == OWN
            assert each.event.timestamp_us == 77
            assert each.revision == applied.revision
        assert watcher.content() == content(store.index)


async def test_what_a_server_does_by_itself_says_why(server: ServerHere):
    """The cause comes with the change."""
    await server.store.publish(embedded(1))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        await server.store.publish(cleared(cause=Cause.LEASE))
        await watcher.next()
        (event,) = watcher.events()[1:]
        assert event.type == event_pb2.CacheEvent.ALL_CLEARED
        assert event.cause == event_pb2.CacheEvent.CAUSE_LEASE
        assert watcher.content() == {}


async def test_what_changes_nothing_is_not_told_and_moves_the_cursor(server: ServerHere):
    """A record of a lease, or an event that was so already, takes a revision all the same."""
    server.server._service._watches.idle_s = 0.05
    await server.store.publish(embedded(1))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        await server.store.publish(embedded(1))
        last = await server.store.publish(Lease(replica_id="r", ttl_ms=1000))
        while (await watcher.bookmark(IDLE)).revision < last.revision:
            pass
        assert len(watcher.events()) == 1
        await watcher.disconnect()
        await watcher.connect()
        assert (await watcher.bookmark(LIVE)).revision == last.revision
        assert RESET not in watcher.kinds()[1:]


async def test_a_quiet_watch_says_so_now_and_then(server: ServerHere):
    """Also where much goes on that it does not watch; a change ends the silence too."""
    server.server._service._watches.idle_s = 0.1
    async with Watcher(server.address, adapter_ids=["mine"]) as watcher:
        await watcher.bookmark(LIVE)
        for number in range(30):
            await server.store.publish(embedded(number, adapter_id="other"))
            await asyncio.sleep(0.01)
        assert (await watcher.bookmark(IDLE)).revision > watcher.responses[0].revision
        await server.store.publish(embedded(100, adapter_id="mine"))
        while not watcher.events():
            await watcher.next()
        assert (await watcher.bookmark(IDLE)).cursor


# ---- filters -----------------------------------------------------------------------------


async def test_a_watch_is_limited_to_what_it_asks_for(server: ServerHere):
    """Tenant, model and adapters, in the snapshot and afterwards; a tenant is never crossed."""
    store = server.store

    async def everywhere(number: int) -> int:
        for tenant_id in ("", "blue"):
            for model_id in ("m", "n"):
                for adapter_id in ("", "a", "b"):
                    names = {"tenant_id": tenant_id, "model_id": model_id}
                    await store.publish(embedded(number, **names, adapter_id=adapter_id))
        return store.revision

    cases = {
        Selection(): {"": 12},
        Selection("blue"): {"tenant_id": "blue"},
        Selection("", "m"): {"model_id": "m"},
        Selection("", "m", frozenset(["a"])): {"model_id": "m", "adapter_ids": ["a"]},
        Selection("", "", frozenset(["", "b"])): {"adapter_ids": ["b", ""]},
        Selection("nobody"): {"tenant_id": "nobody"},
    }
    cases[Selection()] = {}
    await everywhere(1)
    for selection, fields in cases.items():
        async with Watcher(server.address, **fields) as watcher:
            await watcher.bookmark(LIVE)
            number = store.revision
            last = await everywhere(number)
            expected = {
                place: entry
                for place, entry in content(store.index).items()
                if selection.has_model(place.key.tenant_id, place.key.model_id)
                and selection.has_adapter(place.key.adapter_id)
            }
            while len(watcher.content()) < len(expected):
                await watcher.next()
            assert watcher.content() == expected
            assert last >= watcher.revision


async def test_a_clear_is_told_once_whatever_the_adapters(server: ServerHere):
    """To a watch of one adapter, of another, and of all."""
    store = server.store
    await store.publish(embedded(1, adapter_id="a"))
    await store.publish(embedded(1, adapter_id="b"))
    for adapters in (["a"], ["none"], []):
        await store.publish(embedded(1, adapter_id="a"))
        async with Watcher(server.address, adapter_ids=adapters) as watcher:
            await watcher.bookmark(LIVE)
            known = len(watcher.events())
            applied = await store.publish(cleared())
            await watcher.until(applied.revision)
            (event,) = watcher.events()[known:]
            assert event.type == event_pb2.CacheEvent.ALL_CLEARED
            assert not event.adapter_id


async def test_vectors_and_documents_are_left_out_on_request(server: ServerHere):
    """In the snapshot and in changes; the holds come all the same."""
    store = server.store
    full = {"embeddings": vectors(1), "documents": [Document("name", "text")]}
    await store.publish(embedded(1, **full))
    for vectors_out in (False, True):
        for documents_out in (False, True):
            fields = {"omit_embeddings": vectors_out, "omit_documents": documents_out}
            async with Watcher(server.address, **fields) as watcher:
                await watcher.bookmark(LIVE)
                applied = await store.publish(embedded(store.revision, **full))
                await watcher.until(applied.revision)
                events = watcher.events()
                assert len(events) > 1
                for event in events:
                    assert event.HasField("embeddings") != vectors_out
                    assert bool(event.documents) != documents_out


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"tenant_id": "t" * 129}, "tenant_id", "FIELD_TOO_LONG"),
        ({"model_id": "m" * 2049}, "model_id", "FIELD_TOO_LONG"),
        ({"adapter_ids": ["a" * 257]}, "adapter_ids", "FIELD_TOO_LONG"),
        ({"adapter_ids": ["a"] * 1025}, "adapter_ids", "TOO_MANY"),
    ],
)
async def test_a_watch_that_asks_for_too_much_is_refused(
    server: ServerHere, fields: dict[str, Any], field: str, reason: str
):
    """With the field at fault."""
    fault = await fault_of(server.stub.WatchEvents(pb.WatchEventsRequest(**fields)).read())
    assert fault.status == "INVALID_ARGUMENT"
    assert fault.field == field
    assert fault.reason == f"ERROR_REASON_{reason}"
