"""A sidecar on real sockets: from an engine's frames to a sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import zmq
import zmq.asyncio
from support.kv_payloads import H1, H2, KEY, SCHEME, cleared, encode, removed, stored
from support.kv_publisher import FakePublisher, RecordingSink, following
from warmindex.errors import InvalidError
from warmindex.hashing import chain_hashes
from warmindex_subscriber.kv import replay, sockets
from warmindex_subscriber.kv.ranks import publishers
from warmindex_subscriber.kv.sidecar import Sidecar, SidecarOptions

OTHER = [21, 22, 23, 24]
OTHER_KEY = chain_hashes(OTHER, 4)[0]


@pytest.fixture
async def fake() -> AsyncIterator[Callable[..., FakePublisher]]:
    """Makes publishers that are closed at the end."""
    made: list[FakePublisher] = []

    def make(**options: object) -> FakePublisher:
        made.append(FakePublisher(**options))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_what_is_published_live_is_indexed(fake):
    """A batch, a removal, a clear, in order, by the replica's name."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine) as sidecar:
        await engine.send(encode(stored(), rank=None))
        await engine.send(encode(stored([H2], OTHER)))
        await sink.until(lambda: sink.index.keys() == {KEY, OTHER_KEY})
        await engine.send(encode(removed(H1)))
        await sink.until(lambda: sink.index.keys() == {OTHER_KEY})
        await engine.send(encode(cleared()))
        await sink.until(lambda: not sink.index.holds)
        assert sidecar.counters.frames == 4
        assert (sidecar.counters.gaps, sidecar.counters.restarts) == (0, 0)


@pytest.mark.parametrize("topic_in_replay", [True, False])
@pytest.mark.parametrize("topic", [b"", b"kv"])
async def test_a_gap_is_filled_in_either_framing(fake, topic: bytes, topic_in_replay: bool):
    """Two frames ask, and what comes is read from the end, whatever is in front."""
    sink, engine = RecordingSink(), fake(topic=topic, topic_in_replay=topic_in_replay)
    async with following(sink, engine) as sidecar:
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
        await engine.send(encode(stored([H2], OTHER)), lost=True)
        await engine.send(encode(removed(H1)), lost=True)
        await engine.send(encode())
        await sink.until(lambda: sink.index.keys() == {OTHER_KEY})
        assert sidecar.counters.gaps_filled == 1
        assert sidecar.counters.restarts == sidecar.counters.clears == 0
        assert all(len(request) == 2 for request in engine.requests)
        assert [request[0] for request in engine.requests] == [b"", b""]
        assert engine.requests[-1][1] == (0).to_bytes(8, "big")


async def test_a_replay_that_never_answers_costs_what_was_known_and_no_more(fake):
    """Live batches flow on, and it is asked again later."""
    sink, engine = RecordingSink(), fake()
    engine.answering = False
    async with following(sink, engine) as sidecar:
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
        await engine.send(encode(removed(H1)), lost=True)
        await engine.send(encode(stored([H2], OTHER)))
        await sink.until(lambda: sink.index.keys() == {OTHER_KEY})
        engine.answering = True
        await engine.send(encode(stored([3], [1, 2, 3, 4])))
        await sink.until(lambda: len(sink.index.keys()) == 2)
        assert sidecar.counters.replays_failed >= 1
        await sink.until(lambda: len(engine.requests) >= 2)


async def test_a_sidecar_that_restarts_learns_all_from_the_replay(fake):
    """Reported in one step, and nothing is lost meanwhile."""
    engine = fake()
    await engine.send(encode(stored()))
    await engine.send(encode(stored([H2], OTHER)))
    await engine.send(encode(removed(H1)))
    sink = RecordingSink()
    async with following(sink, engine):
        await sink.until(lambda: sink.index.keys() == {OTHER_KEY})
    assert sink.reports == ["pod"]


async def test_without_a_replay_endpoint_it_reports_what_it_learns(fake):
    """At first that is nothing; a resync says all that has come since."""
    engine = fake()
    sink = RecordingSink()
    async with following(sink, engine, replay=False) as sidecar:
        await engine.send(encode(stored()), sequence=7)
        await sink.until(lambda: sink.index.keys() == {KEY})
        assert sink.reports == ["pod"]
        sink.index.holds.clear()
        sidecar.resync("pod")
        await sink.until(lambda: sink.index.keys() == {KEY})
        assert sink.reports == ["pod", "pod"]


async def test_an_engine_that_restarts_holds_nothing_of_its_last_life(fake):
    """Cleared first; then what the new life says."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine) as sidecar:
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
        await engine.restart()
        await engine.subscribed()
        await engine.send(encode(stored([H2], OTHER)))
        await sink.until(lambda: sink.index.keys() == {OTHER_KEY})
        assert sidecar.counters.restarts >= 1


async def test_an_engine_that_restarts_unseen_is_found_out(fake):
    """Its numbers went on above the last ones while nobody listened."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine):
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
        await engine.restart()
        await engine.send(encode(stored([H2], OTHER)), lost=True)
        await engine.send(encode(), lost=True)
        await engine.subscribed()
        await engine.send(encode())
        await sink.until(lambda: sink.index.keys() == {OTHER_KEY})


async def test_ranks_do_not_touch_each_other(fake):
    """Numbers, holders and clears are each rank's own; a rank that goes takes its own along."""
    sink, first, second = RecordingSink(), fake(), fake()
    async with following(sink, first, second) as sidecar:
        for _ in range(2):
            await first.send(encode(stored(), rank=0))
            await second.send(encode(stored([H2]), rank=1))
        await sink.until(lambda: sidecar.counters.frames == 4)
        await sink.until(lambda: len(sink.index.holds) == 2)
        assert sink.index.keys(replica="pod/dp0") == sink.index.keys(replica="pod/dp1") == {KEY}
        assert sidecar.counters.gaps == sidecar.counters.restarts == 0
        await second.send(encode(cleared(), rank=1))
        await sink.until(lambda: not sink.index.keys(replica="pod/dp1"))
        assert sink.index.keys(replica="pod/dp0") == {KEY}
        await second.send(encode(stored([H2]), rank=1))
        await sink.until(lambda: bool(sink.index.keys(replica="pod/dp1")))
        sidecar.unregister(1)
        await sink.until(lambda: not sink.index.keys(replica="pod/dp1"))
        assert sink.index.keys(replica="pod/dp0") == {KEY}


async def test_a_rank_in_the_batches_of_one_publisher_names_the_replica(fake):
    """An engine of several that each have their own pod says which one it is."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine):
        await engine.send(encode(stored(), rank=3))
        await sink.until(lambda: sink.index.keys(replica="pod/dp3") == {KEY})


async def test_another_topic_is_not_ours(fake):
    """ZMQ compares prefixes: what begins like our topic comes, and is passed over."""
    sink, engine = RecordingSink(), fake(topic=b"kv")
    async with following(sink, engine, topic="kv") as sidecar:
        await engine.send_raw(b"kv-other", (0).to_bytes(8, "big"), encode(stored([H2], OTHER)))
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
        assert sidecar.counters.frames_other_topic == 1
        assert sidecar.counters.gaps == 0


async def test_what_is_no_batch_is_counted_and_passed_over(fake):
    """Too few frames, a number that is none, half a payload: the next batch counts."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine) as sidecar:
        await engine.send_raw(b"alone")
        await engine.send_raw(b"", b"short", b"payload")
        await engine.send(encode(stored())[:20])
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
        assert sidecar.counters.frames_malformed == 2
        assert sidecar.counters.batches_undecodable == 1
        assert sidecar.counters.gaps == 0


async def test_a_slow_sink_slows_the_sidecar_down_and_loses_nothing(fake):
    """Back-pressure: what cannot be handed on waits, in order."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine) as sidecar:
        sink.room.clear()
        for i in range(300):
            await engine.send(encode(stored([i + 1], [i, 2, 3, 4])))
        await engine.send(encode(removed(1)))
        await asyncio.sleep(0.2)
        sink.room.set()
        await sink.until(lambda: len(sink.index.keys()) == 299)
        assert sidecar.counters.gaps == 0


async def test_an_end_can_publish_that_nothing_is_held(fake):
    """Where the sidecar takes the engine down with it."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine, clear_at_end=True):
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
    assert sink.index.holds == set()


async def test_an_end_leaves_what_is_held_to_the_lease(fake):
    """A sidecar that is replaced costs nothing."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine):
        await engine.send(encode(stored()))
        await sink.until(lambda: sink.index.keys() == {KEY})
    assert sink.index.keys() == {KEY}


async def test_the_engines_own_hashes_are_a_scheme_beside_the_chain(fake):
    """By choice, and for all blocks."""
    sink, engine = RecordingSink(), fake()
    async with following(sink, engine, native_scheme="vllm-native"):
        await engine.send(encode(stored(), stored([H2], extra_keys=[["salt"]])))
        await sink.until(lambda: len(sink.index.holds) == 3)
        assert sink.index.keys(scheme=SCHEME) == {KEY}
        assert len(sink.index.keys(scheme="vllm-native")) == 2


async def test_an_engine_may_connect_to_the_sidecar():
    """Where it does not bind, the sidecar does."""
    context, sink = zmq.asyncio.Context(), RecordingSink()
    engine = context.socket(zmq.XPUB)
    probe = context.socket(zmq.PUB)
    port = probe.bind_to_random_port("tcp://127.0.0.1")
    probe.close(linger=0)
    await asyncio.sleep(0.1)
    where = publishers([0], [f"tcp://127.0.0.1:{port}"], bind=True)
    sidecar = Sidecar(SidecarOptions(replica_id="pod", model_id="m", publishers=where), sink)
    running = asyncio.ensure_future(sidecar.run())
    try:
        engine.connect(f"tcp://127.0.0.1:{port}")
        await asyncio.wait_for(engine.recv(), 10)
        await engine.send_multipart([b"", (0).to_bytes(8, "big"), encode(stored())])
        await sink.until(lambda: sink.index.keys() == {KEY})
        sidecar.stop()
        await running
    finally:
        running.cancel()
        context.destroy(linger=0)


async def test_an_error_of_the_sink_ends_it(fake):
    """Nothing is dropped silently: a sink that is fenced ends the sidecar."""

    class Fenced(RecordingSink):
        async def publish(self, *_: object) -> None:
            raise InvalidError("fenced")

    engine = fake()
    sidecar = Sidecar(
        SidecarOptions(
            replica_id="pod", model_id="m", publishers=publishers([0], [engine.endpoint])
        ),
        Fenced(),
    )
    running = asyncio.ensure_future(sidecar.run())
    await engine.subscribed()
    await engine.send(encode(stored()))
    with pytest.raises(InvalidError, match="fenced"):
        await asyncio.wait_for(running, 10)


async def test_a_name_that_the_index_would_refuse_is_refused_at_once():
    """With the field's name, before any socket is opened."""
    with pytest.raises(InvalidError, match=r"kv\.model_id"):
        Sidecar(
            SidecarOptions(
                replica_id="pod", model_id="", publishers=publishers([0], ["tcp://h:1"])
            ),
            RecordingSink(),
        )


async def test_what_overflows_while_the_sink_is_slow_is_replayed(
    fake, monkeypatch: pytest.MonkeyPatch
):
    """The engine drops what nobody takes, here its last batches: it is asked for them."""
    monkeypatch.setattr(sockets, "RECEIVE_FRAMES_MAX", 10)
    monkeypatch.setattr(replay, "AUDIT_S", 1.0)
    sink, engine = RecordingSink(), fake()
    frames, blocks, size = 5000, 10, 128
    async with following(sink, engine) as sidecar:
        await engine.send(encode())
        await sink.until(lambda: sidecar.counters.frames == 1)
        sink.room.clear()
        for i in range(frames):
            hashes = list(range(i * blocks + 1, (i + 1) * blocks + 1))
            tokens = list(range(i, i + blocks * size))
            await engine.send(encode(stored(hashes, tokens, block_size=size)))
        sink.room.set()
        await sink.until(lambda: len(sink.index.holds) == frames * blocks)
        assert sidecar.counters.frames < frames
        assert sidecar.counters.clears == 0
