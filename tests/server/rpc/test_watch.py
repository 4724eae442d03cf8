"""WatchEvents over the wire: a snapshot, every change, cursors that never jump."""

from __future__ import annotations

import asyncio
import base64
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from support.questions import content
from support.server import ServerHere, fault_of, running
from support.watching import CLOSING, IDLE, LIVE, RESET, Watcher
from warmindex import limits
from warmindex.event import CacheEvent, Cause, Document, EventType, PartitionKey, Tier
from warmindex.index.selection import Selection
from warmindex.record import Lease
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub
from warmindex_server.journal.memory import MemoryJournal
from warmindex_server.rpc.cursors import CursorScope
from warmindex_server.watch import EffectLog

if TYPE_CHECKING:
    from pathlib import Path

    from warmindex_server.store import Store

OWN = "own"


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


def embedded(*numbers: int, **fields: Any) -> CacheEvent:
    return CacheEvent(
        **{
            "type": EventType.EMBEDDED,
            "replica_id": "r",
            "model_id": "m",
            "hash_scheme": OWN,
            "content_hashes": [key(number) for number in numbers],
            **fields,
        }
    )


def evicted(*numbers: int, **fields: Any) -> CacheEvent:
    return embedded(*numbers, **{"type": EventType.EVICTED, **fields})


def cleared(**fields: Any) -> CacheEvent:
    return embedded(**{"type": EventType.ALL_CLEARED, **fields})


def vectors(count: int, dimensions: int = 2) -> np.ndarray[Any, np.dtype[np.float32]]:
    matrix = np.ones((count, dimensions), np.float32)
    matrix[:, 0] = np.arange(count)
    return matrix


def keep_little(server: ServerHere, kept_bytes: int = 20_000) -> None:
    """Let the server forget soon what it did."""
    store = server.store
    store.log.replace(EffectLog(store.revision, kept_bytes, kept_bytes), store.revision)
    store.log._kept_bytes = store.log._held_bytes = kept_bytes


def followers_of(store: Store) -> int:
    return sum(stream.followers for stream in store.log._streams.values())


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


# ---- cursors -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
async def test_a_watch_resumes_without_loss_and_without_repeat(server: ServerHere, seed: int):
    """However often the connection breaks, and whatever happens meanwhile."""
    chance = random.Random(seed)
    store = server.store
    async with Watcher(server.address, adapter_ids=["", "a"]) as watcher:
        for _ in range(60):
            some = [chance.randrange(12) for _ in range(3)]
            names = {
                "replica_id": chance.choice("rst"),
                "adapter_id": chance.choice(("", "a", "b")),
            }
            make = chance.choice((embedded, embedded, evicted))
            await store.publish(make(*some, **names, tier=chance.choice((Tier.DEVICE, Tier.HOST))))
            if chance.random() < 0.1:
                await store.publish(cleared(replica_id=chance.choice("rst")))
            if chance.random() < 0.3:
                sweep = {"hash_scheme": "", "tier": Tier.UNSPECIFIED, "replica_id": "r"}
                await store.publish(evicted(*some, **sweep))
            for _ in range(chance.randrange(3)):
                with suppress(TimeoutError):
                    await watcher.next(0.05)
            if chance.random() < 0.3:
                await watcher.disconnect()
                await watcher.connect()
        await store.publish(embedded(99))
        await watcher.until(store.revision)
        assert watcher.content() == {
            place: entry
            for place, entry in content(store.index).items()
            if place.key.adapter_id in ("", "a")
        }
        assert watcher.kinds().count(RESET) <= watcher.begun


async def test_a_cursor_means_what_it_meant(server: ServerHere):
    """Whoever hands one back gets exactly the responses that came after it, again and again."""
    store = server.store
    async with Watcher(server.address) as first:
        await first.bookmark(LIVE)
        for number in range(20):
            await store.publish(embedded(number, number + 1, adapter_id=str(number % 3)))
        sweep = embedded(5, type=EventType.EVICTED, hash_scheme="", replica_id="r")
        await store.publish(sweep)
        await store.publish(embedded(99))
        await first.until(store.revision)
    told = first.responses
    for position, response in enumerate(told):
        if not response.cursor:
            continue
        again = server.stub.WatchEvents(pb.WatchEventsRequest(cursor=response.cursor))
        live = await again.read()
        assert live.bookmark.kind == LIVE
        assert (live.cursor, live.revision) == (response.cursor, response.revision)
        rest = [await again.read() for _ in told[position + 1 :]]
        again.cancel()
        assert rest == told[position + 1 :]


def foreign_cursors(server: ServerHere) -> dict[str, str]:
    store = server.store
    scope = CursorScope(store.history_id, Selection())
    return {
        "none": "",
        "no base64": "%%%",
        "not ASCII": "é",
        "too short": base64.urlsafe_b64encode(b"short").decode(),
        "random": base64.urlsafe_b64encode(bytes(24)).decode(),
        "another history": CursorScope("other", Selection()).cursor(store.revision),
        "another request": CursorScope(store.history_id, Selection("blue")).cursor(store.revision),
        "beyond the end": scope.cursor(store.revision + 1),
        "far beyond": scope.cursor(2**64 - 1),
        "long": "x" * 100_000,
    }


async def test_a_cursor_that_cannot_be_followed_gets_a_reset_and_a_snapshot(server: ServerHere):
    """Whatever is the matter with it: never an error, never a silent jump."""
    await server.store.publish(embedded(1))
    for name, cursor in foreign_cursors(server).items():
        async with Watcher(server.address, cursor=cursor) as watcher:
            await watcher.bookmark(LIVE)
            assert watcher.kinds() == [RESET, LIVE], name
            assert watcher.content() == content(server.store.index), name


@pytest.mark.parametrize(
    "changed",
    [
        {"tenant_id": "blue"},
        {"model_id": "m"},
        {"adapter_ids": ["a"]},
        {"adapter_ids": ["a", "b", "c"]},
        {"omit_embeddings": True},
        {"omit_documents": True},
    ],
    ids=str,
)
async def test_a_cursor_is_bound_to_the_request(server: ServerHere, changed: dict[str, Any]):
    """With another filter it is as good as none; the order of adapters is no other filter."""
    async with Watcher(server.address, adapter_ids=["a", "b"]) as watcher:
        cursor = (await watcher.bookmark(LIVE)).cursor
    async with Watcher(server.address, adapter_ids=["b", "a", "b"], cursor=cursor) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [LIVE]
    fields = {"adapter_ids": ["a", "b"], "cursor": cursor, **changed}
    async with Watcher(server.address, **fields) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE]


async def test_a_cursor_older_than_what_is_kept_gets_a_reset(server: ServerHere):
    """And one that is not that old does not."""
    keep_little(server)
    async with Watcher(server.address) as watcher:
        old = (await watcher.bookmark(LIVE)).cursor
        for number in range(100):
            await server.store.publish(embedded(number))
        await watcher.until(server.store.revision)
        recent = watcher.cursor
    async with Watcher(server.address, cursor=old) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE]
        assert watcher.content() == content(server.store.index)
    async with Watcher(server.address, cursor=recent) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [LIVE]


async def test_a_watch_resumes_after_a_restart_of_the_server(tmp_path: Path):
    """What is replayed fills the log, so that a watcher goes on where it stood."""
    journal = f"sqlite:///{tmp_path}/journal"
    async with running(journal=journal) as server:
        await server.store.publish(embedded(1))
        watcher = Watcher(server.address)
        await watcher.connect()
        await watcher.bookmark(LIVE)
        await watcher.disconnect()
        await server.store.publish(embedded(2))
    async with running(journal=journal) as server:
        await watcher.connect(server.address)
        last = await server.store.publish(embedded(3))
        await watcher.until(last.revision)
        assert watcher.kinds() == [RESET, LIVE, LIVE]
        assert watcher.content() == content(server.store.index)
        await watcher.disconnect()


# ---- falling behind, other histories, the end ----------------------------------------------


async def test_a_watcher_that_falls_behind_begins_anew(server: ServerHere):
    """It is told to forget, and gets a snapshot; nothing it saw in between is wrong."""
    keep_little(server, 2_000_000)
    store = server.store
    row = np.ones((1, 8192), np.float32)
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        for number in range(2_000):
            await store.publish(embedded(number % 300, embeddings=row * (number + 1)))
        await store.publish(embedded(1000))
        while watcher.content() != content(store.index):
            assert await watcher.next() is not None
        assert watcher.kinds().count(RESET) > 1


async def test_a_watcher_that_does_not_read_costs_no_memory(server: ServerHere):
    """The log keeps what it keeps, and the snapshot that was open is given up."""
    keep_little(server, 2_000_000)
    store = server.store
    for number in range(300):
        await store.publish(embedded(number, embeddings=np.ones((1, 8192), np.float32)))
    async with Watcher(server.address) as watcher:
        await watcher.next()
        assert store.index.versions.layer is not None
        for number in range(1_000):
            row = np.full((1, 8192), number + 2, np.float32)
            await store.publish(embedded(number % 300, embeddings=row))
        assert store.log.size_bytes <= 2_000_000
        while not watcher.live or watcher.content() != content(store.index):
            assert await watcher.next() is not None
        assert watcher.kinds().count(RESET) > 1
    assert store.index.versions.layer is None


async def test_a_new_history_resets_every_watch(server: ServerHere):
    """What a watcher has is of another history: it forgets it."""
    store = server.store
    await store.publish(embedded(1))
    async with Watcher(server.address) as live, Watcher(server.address, tenant_id="t") as other:
        old = (await live.bookmark(LIVE)).cursor
        await other.bookmark(LIVE)
        store.journal = MemoryJournal()
        await store.load()
        for watcher in (live, other):
            await watcher.bookmark(LIVE)
            assert watcher.kinds() == [RESET, LIVE, RESET, LIVE]
        assert live.content() == {}
    async with Watcher(server.address, cursor=old) as watcher:
        await watcher.bookmark(LIVE)
        assert watcher.kinds() == [RESET, LIVE]


async def test_an_index_that_is_loaded_again_in_the_same_history_disturbs_no_watch(
    tmp_path: Path,
):
    """The log that was replayed reaches back to where the watcher stands."""
    async with running(journal=f"sqlite:///{tmp_path}/journal") as server:
        store = server.store
        await store.publish(embedded(1))
        async with Watcher(server.address) as watcher:
            await watcher.bookmark(LIVE)
            await store.load()
            applied = await store.publish(embedded(2))
            await watcher.until(applied.revision)
            assert watcher.kinds() == [RESET, LIVE]
            assert watcher.content() == content(store.index)


async def test_a_server_that_goes_away_says_so(tmp_path: Path):
    """KIND_CLOSING with a cursor, then the end; within the grace, however quiet the watch."""
    async with running(journal=f"sqlite:///{tmp_path}/journal", grace_s=10) as server:
        await server.store.publish(embedded(1))
        async with Watcher(server.address) as watcher:
            await watcher.bookmark(LIVE)
            applied = await server.store.publish(embedded(2))
            await watcher.until(applied.revision)
            stopping = asyncio.create_task(server.server.stop())
            closing = await watcher.next()
            assert closing is not None
            assert closing.bookmark.kind == CLOSING
            assert closing.cursor == watcher.responses[-2].cursor
            assert closing.revision == applied.revision
            assert await watcher.next() is None
            assert await watcher._call.code() is grpc.StatusCode.OK
            await stopping


async def test_a_watch_that_is_hung_up_leaves_nothing_behind(server: ServerHere):
    """Neither a follower nor an open snapshot."""
    store = server.store
    for number in range(300):
        await store.publish(embedded(number, embeddings=np.ones((1, 8192), np.float32)))
    for responses in (1, 2, 400):
        async with Watcher(server.address, tenant_id="") as watcher:
            for _ in range(responses):
                if not watcher.live:
                    await watcher.next()
        async with asyncio.timeout(10):
            while store.index.versions.layer or followers_of(store):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        assert not store.log._snapshots


# ---- sizes and sharing -----------------------------------------------------------------------


async def test_a_large_snapshot_comes_in_pages_of_one_revision(server: ServerHere):
    """3000 x 1024 float32 to a client with default limits, while others publish."""
    store = server.store
    for start in range(0, 3000, 500):
        matrix = vectors(500, 1024) + start
        await store.publish(embedded(*range(start, start + 500), embeddings=matrix))
    expected = content(store.index)
    async with Watcher(server.address) as watcher:
        first = await watcher.next()
        assert first is not None
        for start in range(0, 3000, 100):
            await store.publish(evicted(*range(start, start + 50)))
            await store.publish(embedded(start + 7, embeddings=vectors(1, 1024) - 9))
        await watcher.bookmark(LIVE)
        assert {response.revision for response in watcher.responses} == {first.revision}
        assert watcher.content() == expected
        await watcher.until(store.revision)
        assert watcher.content() == content(store.index)


async def test_an_effect_too_large_for_a_message_is_split(server: ServerHere):
    """Only the last part has the cursor, and together they are the effect."""
    event = embedded(*range(4096), embeddings=vectors(4096, 384))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        applied = await server.store.publish(event)
        await watcher.until(applied.revision)
        told = watcher.responses[2:]
        assert len(told) > 1
        assert [bool(response.cursor) for response in told] == [*[False] * (len(told) - 1), True]
        assert all(each.event.ByteSize() <= limits.EVENT_BYTES_MAX for each in told)
        assert watcher.content() == content(server.store.index)


async def test_many_watchers_of_the_same_cost_one_encoding(server: ServerHere):
    """Each change is encoded once for all of them; watchers of others are not even woken."""
    encoder = server.server._service._watches.encoder
    watchers = [Watcher(server.address, model_id="m") for _ in range(20)]
    for watcher in watchers:
        await watcher.connect()
        await watcher.bookmark(LIVE)
    async with Watcher(server.address, model_id="other") as other:
        await other.bookmark(LIVE)
        before = encoder.encoded
        for number in range(50):
            await server.store.publish(embedded(number))
        for watcher in watchers:
            await watcher.until(server.store.revision)
            assert watcher.content() == content(server.store.index)
        assert encoder.encoded - before == 50
        assert not other.events()
    for watcher in watchers:
        await watcher.disconnect()


async def test_one_snapshot_page_names_a_partition_and_its_holders(server: ServerHere):
    """What a copy needs to answer as the server does."""
    await server.store.publish(embedded(1, adapter_id="a", tier=Tier.HOST, token_count=16))
    async with Watcher(server.address) as watcher:
        await watcher.bookmark(LIVE)
        partition = watcher.copy.partition(PartitionKey("", "m", OWN, "a"))
        assert partition is not None
        assert partition.tokens.get(key(1)) == 16


@pytest.mark.slow
async def test_a_quiet_watch_survives_a_client_that_pings():
    """Pings every ten seconds on an idle stream, for 90 s, are no reason to hang up."""
    options = (
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    )
    async with (
        running() as server,
        grpc.aio.insecure_channel(server.address, options) as channel,
    ):
        server.server._service._watches.idle_s = 1000
        call = IndexServiceStub(channel).WatchEvents(pb.WatchEventsRequest())
        assert [(await call.read()).bookmark.kind for _ in range(2)] == [RESET, LIVE]
        await asyncio.sleep(90)
        await server.store.publish(embedded(1))
        assert list((await call.read()).event.content_hashes) == [key(1)]
        call.cancel()
