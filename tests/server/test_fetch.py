"""GetEmbeddings: bit for bit what was published, as much as fits, from one partition alone."""

from __future__ import annotations

import struct

import grpc
import numpy as np
import pytest
from google.protobuf.duration_pb2 import Duration
from support.bad_requests import BadRequest, assert_refused, bad_partitions
from support.messages import MODEL, block, block_of, event, key, partition, publish_request
from support.server import ServerHere, fault_of, running
from warmindex.answers import KeyState
from warmindex.event import PartitionKey
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub

FOUND = pb.GetEmbeddingsResponse.STATE_FOUND
ABSENT = pb.GetEmbeddingsResponse.STATE_ABSENT
DEFERRED = pb.GetEmbeddingsResponse.STATE_DEFERRED
HERE = PartitionKey("", MODEL, "text-sha256", "")


def request(*hashes: bytes, adapter: str = "", **fields: object) -> pb.GetEmbeddingsRequest:
    return pb.GetEmbeddingsRequest(partition=partition(adapter), content_hashes=hashes, **fields)


async def publish(server: ServerHere, **fields: object) -> pb.EventResult:
    return (await server.stub.PublishEvent(publish_request(event(**fields)))).result


# ---- what is answered --------------------------------------------------------------------


async def test_vectors_come_back_bit_for_bit(server):
    """Denormals, negative zeros and the largest numbers are not touched on the way."""
    rows = [[1e-45, -0.0, 3.4e38, 1 / 3], [-1e-45, 0.1, -3.4e38, 2**-126]]
    await publish(server, content_hashes=[key(1), key(2)], embeddings=block(*rows))
    answer = await server.stub.GetEmbeddings(request(key(2), key(1)))
    assert answer.embeddings.values == block(rows[1], rows[0]).values
    assert list(answer.states) == [FOUND, FOUND]


async def test_every_key_is_answered_in_its_place(server):
    """One held without a vector, or not held, is ABSENT; one asked twice is answered twice."""
    await publish(server, content_hashes=[key(1), key(2)], embeddings=block([1.0], [2.0]))
    await publish(server, content_hashes=[key(3)])
    answer = await server.stub.GetEmbeddings(request(*map(key, (2, 9, 1, 3, 2))))
    assert list(answer.states) == [FOUND, ABSENT, FOUND, ABSENT, FOUND]
    assert answer.embeddings == block([2.0], [1.0], [2.0])


async def test_nothing_asked_is_nothing_answered(server):
    """No keys, and keys of a partition that is not there, are fine."""
    empty = await server.stub.GetEmbeddings(request())
    assert list(empty.states) == []
    assert not empty.HasField("embeddings")
    absent = await server.stub.GetEmbeddings(request(key(1), adapter="nobody"))
    assert list(absent.states) == [ABSENT]
    assert not absent.HasField("embeddings")
    assert absent.history_id
    assert absent.revision == server.store.revision


@pytest.mark.parametrize(
    ("max_bytes", "rows"), [(0, 5), (1, 1), (16, 1), (31, 1), (32, 2), (79, 4), (80, 5)]
)
async def test_an_answer_that_is_full_defers_the_rest(server, max_bytes: int, rows: int):
    """As many rows as fit, one at least; the rest is there, and said to be."""
    keys = [key(number) for number in range(5)]
    await publish(server, content_hashes=keys, embeddings=block_of(5, 4))
    answer = await server.stub.GetEmbeddings(request(key(9), *keys, max_bytes=max_bytes))
    assert list(answer.states) == [ABSENT, *[FOUND] * rows, *[DEFERRED] * (5 - rows)]
    assert answer.embeddings.values == block_of(5, 4).values[: rows * 16]


async def test_three_thousand_wide_vectors_fit_a_default_client():
    """3 MiB of rows, the rest deferred, and asking on gets them all: under 4 MiB a message."""
    async with running() as server:
        keys = [key(number) for number in range(3000)]
        wide = np.random.default_rng(1).normal(size=(3000, 1024)).astype(np.float32)
        for start in range(0, 3000, 700):
            some = slice(start, start + 700)
            values = event_pb2.EmbeddingBlock(dimensions=1024, values=wide[some].tobytes())
            await publish(server, content_hashes=keys[some], embeddings=values)
        async with grpc.aio.insecure_channel(server.address) as channel:
            stub = IndexServiceStub(channel)
            left, got, calls = keys, [], 0
            while left:
                answer = await stub.GetEmbeddings(request(*left))
                calls += 1
                assert list(answer.states[:768]) == [FOUND] * min(768, len(left))
                assert set(answer.states[768:]) <= {DEFERRED}
                got.append(answer.embeddings.values)
                left = left[len(got[-1]) // 4096 :]
        assert calls == 4
        assert b"".join(got) == wide.tobytes()


async def test_a_client_that_takes_more_may_ask_for_more(server):
    """15 MiB is the most there is, and fits the message limit."""
    keys = [key(number) for number in range(4096)]
    for start in range(0, 4096, 512):
        some = keys[start : start + 512]
        await publish(server, content_hashes=some, embeddings=block_of(512, 1024))
    answer = await server.stub.GetEmbeddings(request(*keys, max_bytes=15 * 2**20))
    assert list(answer.states) == [FOUND] * 3840 + [DEFERRED] * 256


async def test_a_vector_goes_with_its_last_hold(server):
    """It stays while anybody holds it, and is ABSENT, not stale, from then on."""
    for replica in ("pod-1", "pod-2"):
        await publish(server, replica_id=replica, embeddings=block([1.0]))
    states = []
    for replica in ("pod-1", "pod-2"):
        evicted = event_pb2.CacheEvent.EVICTED
        await publish(server, type=evicted, replica_id=replica, adapter_scoped=True)
        states += (await server.stub.GetEmbeddings(request(key(1)))).states
    assert states == [FOUND, ABSENT]


async def test_the_client_speaks_numpy(server):
    """States and a float32 matrix, one row per FOUND key, in the order asked for."""
    await publish(server, content_hashes=[key(1), key(2)], embeddings=block([1.0, 2.0], [3.0, 4.0]))
    found = await server.client.get_embeddings(HERE, [key(2), key(5), key(1)])
    assert found.states == [KeyState.FOUND, KeyState.ABSENT, KeyState.FOUND]
    assert found.vectors.dtype == np.float32
    assert found.vectors.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    nothing = await server.client.get_embeddings(HERE, [key(5)])
    assert nothing.vectors.shape == (0, 0)


async def test_a_revision_that_is_there_is_not_waited_for(server):
    """min_revision of what was just acknowledged is answered at once."""
    result = await publish(server, embeddings=block([1.0]))
    answer = await server.stub.GetEmbeddings(request(key(1), min_revision=result.revision))
    assert list(answer.states) == [FOUND]


async def test_a_revision_that_comes_in_time_is_waited_for(server):
    """A read that is ahead of its write sees it as soon as it is there."""
    ahead = server.store.revision + 1
    call = server.stub.GetEmbeddings(request(key(1), min_revision=ahead))
    await publish(server, embeddings=block([1.0]))
    assert list((await call).states) == [FOUND]


async def test_a_revision_that_never_comes_is_unavailable(server):
    """After the wait it is told to try again, and how far the server is."""
    asked = request(key(1), min_revision=2**64 - 1, wait=Duration(nanos=50_000_000))
    fault = await fault_of(server.stub.GetEmbeddings(asked))
    assert (fault.status, fault.reason, fault.field) == (
        "UNAVAILABLE",
        "ERROR_REASON_REVISION_NOT_REACHED",
        "min_revision",
    )
    assert fault.retry_after_s
    assert str(server.store.revision) in fault.message


# ---- what is refused ---------------------------------------------------------------------


BAD = [
    *bad_partitions(
        lambda place: pb.GetEmbeddingsRequest(partition=place, content_hashes=[key(1)])
    ),
    BadRequest(
        "too many hashes",
        request(*map(key, range(4097))),
        "TOO_MANY",
        "content_hashes",
        ("4096", "split it"),
    ),
    *(
        BadRequest(
            f"a hash of {length} bytes", request(key(1), bytes(length)), "HASH_LENGTH",
            "content_hashes", says,
        )
        for length, says in ((0, ()), (31, ("[1] has 31 bytes",)), (48, ("base64",)), (64, ()))
    ),
    BadRequest(
        "too many bytes", request(max_bytes=15 * 2**20 + 1), "OUT_OF_RANGE", "max_bytes",
        ("15728640",),
    ),
    *(
        BadRequest(f"wait of {value!r}", request(wait=value), "OUT_OF_RANGE", "wait", ("60 s",))
        for value in (
            Duration(seconds=-1),
            Duration(nanos=-1),
            Duration(seconds=60, nanos=1),
            Duration(seconds=2**63 - 1),
            Duration(seconds=1, nanos=-1),
            Duration(nanos=10**9),
            Duration(seconds=-1, nanos=1),
        )
    ),
    *(
        BadRequest(
            f"claim_ttl of {value!r}",
            request(claimant_id="me", claim_ttl=value),
            "OUT_OF_RANGE",
            "claim_ttl",
            ("600 s",),
        )
        for value in (Duration(), Duration(seconds=-1), Duration(seconds=600, nanos=1))
    ),
    BadRequest(
        "a long claimant", request(claimant_id="é" * 128 + "x"), "FIELD_TOO_LONG", "claimant_id",
        ("256",),
    ),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=str)
async def test_a_bad_request_is_refused(server, bad: BadRequest):
    """It is told what is wrong, where, and what to do."""
    await publish(server, embeddings=block([1.0, 2.0]))
    await assert_refused(server, "GetEmbeddings", bad)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_bytes": 15 * 2**20},
        {"wait": Duration(seconds=60)},
        {"wait": Duration()},
        {"claim_ttl": Duration()},
        {"claimant_id": "é" * 128},
        {"claimant_id": "me", "claim_ttl": Duration(seconds=600)},
        {"claimant_id": "me", "claim_ttl": Duration(nanos=1)},
    ],
    ids=str,
)
async def test_a_limit_itself_is_allowed(server, fields):
    """And claim_ttl means nothing without a claimant."""
    await publish(server, embeddings=block([1.0]))
    answer = await server.stub.GetEmbeddings(request(key(1), **fields))
    assert list(answer.states) == [FOUND]


async def test_as_many_keys_as_may_be(server):
    """4096 keys are one call's."""
    answer = await server.stub.GetEmbeddings(request(*map(key, range(4096))))
    assert list(answer.states) == [ABSENT] * 4096


def test_rows_are_little_endian():
    """What the tests send is what the contract says, on every machine."""
    assert block([1.0]).values == struct.pack("<f", 1.0)
