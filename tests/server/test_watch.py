"""The log that watchers read from: what it keeps, what it forgets, whom it wakes."""

from __future__ import annotations

import asyncio

import numpy as np
from warmindex.event import CacheEvent, EventType
from warmindex.index import Index
from warmindex_server.watch import EffectLog, Stream


class World:
    """An index and its log."""

    def __init__(self, kept_bytes: int = 10**6, held_bytes: int = 10**7) -> None:
        self.index = Index(100)
        self.log = EffectLog(100, kept_bytes, held_bytes)

    def publish(self, number: int, model_id: str = "m", **fields: object) -> int:
        event = CacheEvent(
            **{
                "type": EventType.EMBEDDED,
                "replica_id": "r",
                "model_id": model_id,
                "hash_scheme": "own",
                "content_hashes": [number.to_bytes(8, "big")],
                **fields,
            }
        )
        revision = self.index.revision + 1
        self.log.applied(event, self.index.apply(revision, event))
        return revision


def revisions(stream: Stream, after: int) -> list[int]:
    found = []
    while (effects := stream.after(after)) is not None:
        found.append(effects.revision)
        after = effects.revision
    return found


def test_a_stream_has_the_effects_of_its_model_and_a_tenants_those_of_all():
    """Each in the order of revisions; a record that changes nothing is in none."""
    world = World()
    with (
        world.log.followed("", "a") as only_a,
        world.log.followed("", "") as every,
        world.log.followed("blue", "") as blue,
    ):
        first = world.publish(1, "a")
        second = world.publish(2, "b")
        world.publish(2, "b")
        third = world.publish(3, "a")
        fourth = world.publish(3, "a", tenant_id="blue")
        assert revisions(only_a, 100) == [first, third]
        assert revisions(every, 100) == [first, second, third]
        assert revisions(every, first) == [second, third]
        assert revisions(every, second + 1) == [third]
        assert revisions(blue, 0) == [fourth]
        assert world.log.revision == fourth


def test_a_full_log_forgets_the_oldest_and_says_up_to_where():
    """A watcher of a quiet model is not cut off by a busy one."""
    world = World(kept_bytes=20_000)
    quiet = world.publish(0, "quiet")
    with world.log.followed("", "quiet") as followed:
        for number in range(100):
            world.publish(number, "busy")
        assert world.log.size_bytes <= 20_000
        with world.log.followed("", "busy") as busy:
            assert 100 < busy.cut_revision < world.log.revision
            assert revisions(busy, busy.cut_revision)[0] == busy.cut_revision + 1
            assert len(revisions(busy, 0)) < 30
        assert revisions(followed, 100) == []
        assert followed.cut_revision == quiet


def test_a_stream_that_comes_again_begins_where_the_log_begins():
    """What was in it before is forgotten, so nobody may stand before that."""
    world = World(kept_bytes=20_000)
    first = world.publish(0, "a")
    for number in range(100):
        world.publish(number, "busy")
    with world.log.followed("", "a") as stream:
        assert revisions(stream, 0) == []
        assert stream.cut_revision > first


def test_while_a_snapshot_is_sent_the_log_keeps_more():
    """And gives it back afterwards."""
    world = World(kept_bytes=20_000, held_bytes=10**6)
    with world.log.held():
        before = world.log.revision
        for number in range(100):
            world.publish(number)
        with world.log.followed("", "m") as stream:
            assert stream.cut_revision <= before
        assert world.log.size_bytes > 20_000
    assert world.log.size_bytes <= 20_000


def test_effects_larger_than_the_log_leave_it_empty():
    """Whoever followed begins anew; nothing hangs on to memory."""
    world = World(kept_bytes=20_000)
    with world.log.followed("", "m") as stream:
        world.publish(1)
        large = world.publish(2, embeddings=np.ones((1, 8000), np.float32))
        assert stream.cut_revision == large
        assert world.log.size_bytes == 0
        assert revisions(stream, 0) == []


def test_a_log_without_followers_keeps_no_empty_streams():
    """Streams are made by effects and followers, and go with the last of them."""
    world = World(kept_bytes=20_000)
    with world.log.followed("nobody", "nothing"):
        assert ("nobody", "nothing") in world.log._streams
    for number in range(100):
        world.publish(number, f"model {number}")
    assert len(world.log._streams) < 30


async def test_a_sleeper_wakes_for_its_own_stream_and_for_no_other():
    """Also when several effects come in one step: once."""
    world = World()
    woken: list[str] = []

    async def sleep(stream: Stream, name: str) -> None:
        while True:
            await stream.sleep(60)
            woken.append(name)

    with world.log.followed("", "a") as a, world.log.followed("", "b") as b:
        sleepers = [asyncio.create_task(sleep(a, "a")), asyncio.create_task(sleep(b, "b"))]
        await asyncio.sleep(0)
        world.publish(1, "a")
        world.publish(2, "a")
        for _ in range(5):
            await asyncio.sleep(0)
        assert woken == ["a"]
        world.log.wake_all()
        for _ in range(5):
            await asyncio.sleep(0)
        assert sorted(woken) == ["a", "a", "b"]
        for sleeper in sleepers:
            sleeper.cancel()
        await asyncio.gather(*sleepers, return_exceptions=True)
        assert not a._sleepers
        assert not b._sleepers


async def test_a_sleep_ends_by_itself():
    """When its time is up."""
    with World().log.followed("", "a") as stream:
        await stream.sleep(0.01)


async def test_another_log_takes_the_place_of_this_one():
    """All sleepers wake, and whoever follows again finds what the other one had."""
    world = World()
    with world.log.followed("", "m") as old:
        sleeper = asyncio.create_task(old.sleep(60))
        await asyncio.sleep(0)
        other = World()
        other.index = Index(500)
        other.log = world.log.anew(500)
        revision = other.publish(1)
        world.log.replace(other.log, 700)
        await sleeper
    assert world.log.generation == 1
    assert world.log.revision == 700
    with world.log.followed("", "m") as new:
        assert new is not old
        assert revisions(new, 500) == [revision]
