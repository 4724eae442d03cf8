"""Several servers on one Redis are one index: same records, same order, same state."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal

import grpc
import pytest
from support.claiming import ask
from support.messages import ALL_CLEARED, EVICTED
from support.questions import same_answers, sound
from support.server import fault
from support.serving import embedded, state_names
from support.several import plain_of, processes_on, servers_on, stub_at, stubs_at, until
from support.watching import LIVE, RESET, Watcher
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb

APPLIED = pb.EventResult.OUTCOME_APPLIED


def an_event(dice: random.Random, replica_id: str, sequence: int = 0) -> event_pb2.CacheEvent:
    """One of few keys, so that publishers get in each other's way."""
    numbers = dice.sample(range(12), dice.randint(1, 6))
    event = embedded(numbers, vectors=dice.random() < 0.5, replica_id=replica_id)
    event.adapter_id = dice.choice(["", "lora"])
    kind = dice.random()
    if kind > 0.6:
        event.type = EVICTED if kind < 0.95 else ALL_CLEARED
        event.adapter_scoped = dice.random() < 0.5
        event.ClearField("embeddings")
    if sequence:
        event.epoch, event.sequence = 1, sequence
    return event


async def publish_a_lot(stub, seed: int, messages: int = 30) -> int:
    """A producer of its own: numbered, with a gap and a duplicate now and then."""
    dice = random.Random(seed)
    replica_id, sequence, revision = f"pod-{seed}", 0, 0
    call = stub.PublishEvents()
    for _ in range(messages):
        events = []
        for _ in range(dice.randint(1, 5)):
            sequence += dice.choice([0, 1, 1, 1, 1, 1, 2])
            events.append(an_event(dice, replica_id, sequence))
        await call.write(pb.PublishEventsRequest(events=events))
        answer = await call.read()
        assert len(answer.results) == len(events)
        revision = answer.results[-1].revision
    await call.done_writing()
    return revision


async def test_publishing_to_all_at_once_leaves_all_the_same(redis_of_all, redis_prefix):
    """Every server's index answers everything as the plain model of the journal does."""
    async with servers_on(redis_of_all.url, redis_prefix, 3) as servers:
        publishers = [
            publish_a_lot(server.stub, seed)
            for seed, server in enumerate(server for server in servers for _ in range(3))
        ]
        last = max(await asyncio.gather(*publishers))
        plain = await plain_of(redis_of_all.url, redis_prefix)
        assert plain.revision == last
        for server in servers:
            await until(lambda server=server: server.store.revision == last)
            same_answers(server.store.index, plain)
            sound(server.store.index)


async def test_what_was_acknowledged_here_is_read_there(redis_of_all, redis_prefix):
    """With min_revision, at any server, at once and every time."""
    async with servers_on(redis_of_all.url, redis_prefix, 3) as servers:
        for number in range(60):
            here, there = servers[number % 3], servers[(number + 1) % 3]
            request = pb.PublishEventRequest(event=embedded([number]))
            revision = (await here.stub.PublishEvent(request)).result.revision
            answer = await there.stub.GetEmbeddings(ask([number], min_revision=revision))
            assert state_names(answer) == ["FOUND"]
            assert answer.revision >= revision


async def test_a_revision_that_is_not_reached_is_unavailable(redis_of_all, redis_prefix):
    """After the time that the caller gives it."""
    async with servers_on(redis_of_all.url, redis_prefix, 1) as (server,):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stub.GetEmbeddings(ask([1], wait_s=0.1, min_revision=2**62))
        assert fault(caught.value).reason == "ERROR_REASON_REVISION_NOT_REACHED"


@pytest.mark.slow
async def test_processes_agree_and_watches_go_on_anywhere(redis_of_all, redis_prefix):
    """Three processes, publishers at each, watchers that move on from one to the next."""
    with processes_on(redis_of_all.url, redis_prefix, 3) as processes:
        addresses = [process.address for process in processes]

        async def wander(watcher: Watcher, turns: int) -> None:
            for turn in range(turns):
                for _ in range(20):
                    try:
                        await watcher.next(0.2)
                    except TimeoutError:
                        break
                await watcher.disconnect()
                await watcher.connect(addresses[turn % 3])

        async with stubs_at(*processes) as stubs, Watcher(addresses[0]) as watcher:
            await watcher.bookmark(LIVE)
            publishers = [publish_a_lot(stub, seed, 60) for seed, stub in enumerate(stubs)]
            *revisions, _ = await asyncio.gather(*publishers, wander(watcher, 9))
            plain = await plain_of(redis_of_all.url, redis_prefix)
            await watcher.until(max(revisions))
            assert watcher.kinds().count(RESET) == 1
            assert watcher.content() == plain.entries
            for address in addresses:
                async with Watcher(address) as fresh:
                    await fresh.until(max(revisions))
                    assert fresh.content() == plain.entries


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
async def test_a_server_that_ends_in_the_middle_loses_nothing_acknowledged(
    redis_of_all, redis_prefix, number
):
    """What it has answered is at the others; what it has not may come again, and harms nobody."""
    acknowledged: dict[int, int] = {}

    async def publish(stub, sequence: int) -> None:
        event = embedded([sequence], replica_id="pod", epoch=1, sequence=sequence)
        request = pb.PublishEventRequest(event=event)
        result = (await stub.PublishEvent(request, timeout=5)).result
        assert result.outcome in (APPLIED, pb.EventResult.OUTCOME_DUPLICATE)
        acknowledged[sequence] = result.revision

    with processes_on(redis_of_all.url, redis_prefix, 2) as (doomed, other):
        async with stub_at(doomed.address) as first, stub_at(other.address) as second:
            for sequence in itertools.count(1):
                if sequence == 100:
                    doomed.signal(number)
                try:
                    await publish(first, sequence)
                except grpc.aio.AioRpcError:
                    break
            last = sequence + 100
            for again in range(sequence, last + 1):
                await publish(second, again)
        if number is signal.SIGSTOP:
            doomed.signal(signal.SIGCONT)
        plain = await plain_of(redis_of_all.url, redis_prefix)
        producer = plain.producers["", "m", "pod"]
        assert (producer.sequence, producer.resync_required) == (last, False)
        assert len(plain.entries) == last
        assert sorted(acknowledged) == list(range(1, last + 1))
        left = [other] if number is not signal.SIGSTOP else [other, doomed]
        for process in left:
            async with Watcher(process.address) as watcher:
                await watcher.until(acknowledged[last])
                assert watcher.content() == plain.entries
