"""Watchers that come at any time, and records of every kind: each copy is the plain model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import world
from support.model import Entry, PlainIndex
from support.server import running
from support.watching import Watcher
from warmindex.event import CacheEvent, EventType
from warmindex.index import reports
from warmindex.index import snapshot as index_snapshot
from warmindex.index.selection import Selection
from warmindex.record import Lease, Record, Report

if TYPE_CHECKING:
    from support.model import Place

# A record to publish, or a watcher to open: what is published goes on meanwhile.
selections = st.builds(
    Selection,
    world.tenants,
    st.sampled_from(("", "m1", "m1")),
    st.sampled_from((frozenset(), frozenset([""]), frozenset(["sql-lora", "chat-lora"]))),
    st.booleans(),
    st.booleans(),
)


@st.composite
def reported(draw: st.DrawFn) -> Report:
    """A report with several events of one producer: applied in steps."""
    producer = {"tenant_id": draw(world.tenants), "model_id": "m1", "replica_id": "r1"}
    changes = draw(
        st.lists(world.embedded(**producer) | world.evicted(**producer), min_size=1, max_size=6)
    )
    return Report(**producer, changes=tuple(changes))


actions = st.lists(
    world.embedded()
    | world.embedded()
    | world.evicted()
    | world.cleared()
    | reported()
    | st.just(Lease(replica_id="r1", ttl_ms=60_000))
    | selections,
    min_size=1,
    max_size=25,
)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "HASHES_AT_ONCE", 1)
    monkeypatch.setattr(index_snapshot, "WINDOW", 2)
    monkeypatch.setattr(index_snapshot, "EVENT_HASHES", 3)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(actions)
def test_every_watcher_has_what_the_plain_model_has(some: list[Record | Selection]):
    """Whenever it came, whatever it asked for."""
    asyncio.run(play(some))


async def play(some: list[Record | Selection]) -> None:
    plain = PlainIndex()
    opened: list[tuple[Selection, asyncio.Task[Watcher]]] = []
    async with running(grace_s=0.2) as server:
        store = server.store
        store.give_way = lambda: asyncio.sleep(0)
        for action in some:
            if isinstance(action, Selection):
                task = asyncio.create_task(open_watcher(server.address, action))
                opened.append((action, task))
                await asyncio.sleep(0.002)
            else:
                applied = await store.publish(action)
                plain.apply(applied.revision, action)
        last = {}
        for tenant_id in world.TENANTS:
            for event in ending(tenant_id):
                last[tenant_id] = await store.publish(event)
        for selection, task in opened:
            watcher = await task
            await watcher.until(last[selection.tenant_id].revision)
            assert watcher.content() == selected(plain, selection)
            await watcher.disconnect()


async def open_watcher(address: str, selection: Selection) -> Watcher:
    watcher = Watcher(
        address,
        tenant_id=selection.tenant_id,
        model_id=selection.model_id,
        adapter_ids=selection.adapter_ids,
        omit_embeddings=not selection.embeddings,
        omit_documents=not selection.documents,
    )
    await watcher.connect()
    return watcher


def ending(tenant_id: str) -> list[CacheEvent]:
    """A change that every watcher of the tenant is told of, and that leaves nothing."""
    names = {"tenant_id": tenant_id, "model_id": "m1", "replica_id": "end"}
    held = CacheEvent(
        type=EventType.EMBEDDED, hash_scheme=world.OWN, content_hashes=[b"the end"], **names
    )
    return [held, CacheEvent(type=EventType.ALL_CLEARED, **names)]


def selected(plain: PlainIndex, selection: Selection) -> dict[Place, Entry]:
    return {
        place: entry._replace(
            vector=entry.vector if selection.embeddings else None,
            document=entry.document if selection.documents else None,
        )
        for place, entry in plain.entries.items()
        if selection.has_model(place.key.tenant_id, place.key.model_id)
        and selection.has_adapter(place.key.adapter_id)
    }
