"""LookupRoute over the wire: runs, reasons, tokens or blocks, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from support.bad_requests import BadRequest, assert_refused, bad_partitions
from support.messages import EVICTED, MODEL, event, key, partition, publish_request
from support.server import ServerHere, fault_of
from warmindex.event import PartitionKey, Tier
from warmindex.hashing import chain_hashes
from warmindex.index.route import Match
from warmindex.index.route import Reason as RouteReason
from warmindex.v1 import index_service_pb2 as pb

SCHEME = "xxh3-chain/16"
CHAIN = [key(number, 8) for number in range(1, 101)]
Answer = pb.LookupRouteResponse


async def hold(server: ServerHere, replica: str, hashes: Sequence[bytes], **fields: object) -> None:
    """Have a replica hold blocks."""
    for start in range(0, len(hashes), 4096):
        some = hashes[start : start + 4096]
        message = event(
            **{"replica_id": replica, "content_hashes": some, "hash_scheme": SCHEME, **fields}
        )
        await server.stub.PublishEvent(publish_request(message))


def request(
    blocks: Sequence[bytes] = (), scheme: str = SCHEME, adapter: str = "", **fields: object
) -> pb.LookupRouteRequest:
    return pb.LookupRouteRequest(
        partition=partition(adapter, hash_scheme=scheme), block_hashes=blocks, **fields
    )


def runs(answer: pb.LookupRouteResponse) -> list[tuple[str, int]]:
    return [(match.replica_id, match.matched_blocks) for match in answer.matches]


# ---- what is answered --------------------------------------------------------------------


async def test_the_longest_run_comes_first(server):
    """Ties go by nearer tier, then by name; a hole ends a run."""
    await hold(server, "short", CHAIN[:3])
    await hold(server, "b-long", CHAIN)
    await hold(server, "a-far", CHAIN, tier=2)
    await hold(server, "holed", [*CHAIN[:50], *CHAIN[51:]])
    await hold(server, "late", CHAIN[1:])
    answer = await server.stub.LookupRoute(request(CHAIN))
    assert runs(answer) == [("b-long", 100), ("a-far", 100), ("holed", 50), ("short", 3)]
    assert [match.matched_tokens for match in answer.matches] == [1600, 1600, 800, 48]
    assert answer.matches[1].tier == 2
    assert answer.reason == Answer.REASON_PREFIX_MATCH
    assert answer.replicas_in_scope == 5
    assert answer.revision == server.store.revision


async def test_more_tokens_than_the_field_can_say_are_the_most_it_can(server):
    """A run of absurdly large blocks is an answer, not an error."""
    scheme = "xxh3-chain/4294967295"
    await hold(server, "pod-0", CHAIN[:3], hash_scheme=scheme)
    (match,) = (await server.stub.LookupRoute(request(CHAIN[:3], scheme))).matches
    assert (match.matched_blocks, match.matched_tokens) == (3, 2**32 - 1)


async def test_tokens_are_hashed_here(server):
    """A prompt's tokens find what its blocks find; tokens short of a block are dropped."""
    tokens = list(range(70))
    await hold(server, "pod-1", chain_hashes(tokens, 16))
    for scheme in (SCHEME, ""):
        answer = await server.stub.LookupRoute(request(scheme=scheme, token_ids=tokens))
        assert runs(answer) == [("pod-1", 4)]
        assert answer.matches[0].matched_tokens == 64


async def test_without_a_scheme_every_block_size_is_looked_under(server):
    """The longest run in tokens counts, whatever its block size."""
    tokens = list(range(64))
    await hold(server, "fine", chain_hashes(tokens, 16)[:3])
    await hold(server, "coarse", chain_hashes(tokens, 32), hash_scheme="xxh3-chain/32")
    answer = await server.stub.LookupRoute(request(scheme="", token_ids=tokens))
    assert [(each.replica_id, each.matched_tokens) for each in answer.matches] == [
        ("coarse", 64),
        ("fine", 48),
    ]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 191, 192, 193, 4096])
async def test_every_length_of_run_is_seen(server, count: int):
    """At the edges of how the chain is walked, too."""
    chain = [key(number, 8) for number in range(5000)]
    await hold(server, "pod-1", chain[:count])
    assert runs(await server.stub.LookupRoute(request(chain))) == [("pod-1", count)]


async def test_limits_on_the_answer(server):
    """limit cuts the list; replica_ids leaves the others out, and names nobody knows."""
    for number in range(5):
        await hold(server, f"pod-{number}", CHAIN[: 10 + number])
    assert runs(await server.stub.LookupRoute(request(CHAIN, limit=2))) == [
        ("pod-4", 14),
        ("pod-3", 13),
    ]
    some = await server.stub.LookupRoute(request(CHAIN, replica_ids=["pod-1", "pod-9", "pod-1"]))
    assert runs(some) == [("pod-1", 11)]
    assert some.replicas_in_scope == 5


async def test_the_reason_tells_how_far_the_question_got(server):
    """From an unknown tenant to a match, an empty answer says why it is empty."""
    asked = request(CHAIN)
    found = []

    async def ask() -> None:
        answer = await server.stub.LookupRoute(asked)
        assert bool(answer.matches) == (answer.reason == Answer.REASON_PREFIX_MATCH)
        found.append(answer.reason)

    await ask()
    await hold(server, "pod-1", CHAIN, model_id="other")
    await ask()
    await hold(server, "pod-1", CHAIN, hash_scheme="vllm-native")
    await ask()
    await hold(server, "pod-1", CHAIN[5:])
    await ask()
    await hold(server, "pod-1", CHAIN[:1])
    await ask()
    assert found == [
        Answer.REASON_UNKNOWN_TENANT,
        Answer.REASON_UNKNOWN_MODEL,
        Answer.REASON_UNKNOWN_HASH_SCHEME,
        Answer.REASON_NO_MATCH,
        Answer.REASON_PREFIX_MATCH,
    ]


async def test_an_eviction_shortens_the_run(server):
    """What a replica drops ends its run there, in every tier it was dropped from."""
    await hold(server, "pod-1", CHAIN)
    await hold(server, "pod-1", CHAIN[10:20], tier=2)
    drop = {"type": EVICTED, "adapter_scoped": True}
    await hold(server, "pod-1", CHAIN[10:30], **drop, tier=1)
    answer = await server.stub.LookupRoute(request(CHAIN))
    assert runs(answer) == [("pod-1", 20)]
    assert answer.matches[0].tier == 2


async def test_token_counts_add_up(server):
    """Where the scheme does not say how long a block is, its token_count does."""
    own = {"hash_scheme": "vllm-native"}
    await hold(server, "pod-1", CHAIN[:2], **own, token_count=16)
    await hold(server, "pod-1", CHAIN[2:3], **own, token_count=5)
    await hold(server, "pod-1", CHAIN[3:4], **own)
    answer = await server.stub.LookupRoute(request(CHAIN[:4], scheme="vllm-native"))
    assert answer.matches[0].matched_tokens == 37


async def test_the_client_speaks_in_values(server):
    """Matches with their tier, and the reason as an enum."""
    await hold(server, "pod-1", CHAIN)
    here = PartitionKey("", MODEL, SCHEME, "")
    answer = await server.client.lookup_route(here, block_hashes=CHAIN)
    assert list(answer.matches) == [Match("pod-1", 100, 1600, Tier.DEVICE)]
    assert answer.reason is RouteReason.PREFIX_MATCH
    assert answer.replicas_in_scope == 1
    nobody = await server.client.lookup_route(here, token_ids=[1] * 16, limit=3)
    assert (list(nobody.matches), nobody.reason) == ([], RouteReason.NO_MATCH)


# ---- what is refused ---------------------------------------------------------------------


def _with_scheme(place):
    if place is not None:
        place.hash_scheme = place.hash_scheme or SCHEME
    return place


BAD = [
    *bad_partitions(
        lambda place: pb.LookupRouteRequest(
            partition=_with_scheme(place), block_hashes=[key(1, 8)]
        ),
        scheme_matters=False,
    ),
    BadRequest("no prompt", request(), "FIELD_REQUIRED", "block_hashes", ("token_ids",)),
    BadRequest("both", request(CHAIN, token_ids=[1]), "CONFLICT", "block_hashes", ("one form",)),
    BadRequest(
        "too many blocks", request([CHAIN[0]] * 65537), "TOO_MANY", "block_hashes", ("65536",)
    ),
    BadRequest(
        "too many tokens", request(token_ids=[1] * 1048577), "TOO_MANY", "token_ids", ("1048576",)
    ),
    BadRequest(
        "too many replicas", request(CHAIN, replica_ids=["a"] * 4097), "TOO_MANY", "replica_ids",
        ("4096",),
    ),
    BadRequest(
        "tokens under a scheme of one's own",
        request(scheme="vllm-native", token_ids=[1] * 16),
        "CONFLICT",
        "partition.hash_scheme",
        ("token_ids cannot be", "xxh3-chain/N"),
    ),
    BadRequest(
        "tokens as a text", request(scheme="text-sha256", token_ids=[1] * 16), "CONFLICT",
        "partition.hash_scheme",
    ),
    *(
        BadRequest(f"{scheme or 'no scheme'}, a block of {length} bytes",
                   request([bytes(good), bytes(length)], scheme=scheme), "HASH_LENGTH",
                   "block_hashes", (f"[1] has {length} bytes", *says))
        for scheme, good, length, says in (
            (SCHEME, 8, 16, ("hex digits",)),
            (SCHEME, 8, 0, ()),
            ("", 32, 8, ("text-sha256 has 32",)),
            ("", 32, 48, ("base64",)),
            ("own", 5, 65, ()),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=str)
async def test_a_bad_request_is_refused(server, bad: BadRequest):
    """It is told what is wrong, where, and what to do."""
    await hold(server, "pod-1", CHAIN)
    await assert_refused(server, "LookupRoute", bad)


async def test_as_much_as_may_be(server):
    """65536 blocks, a million tokens and 4096 names are taken."""
    await hold(server, "pod-1", CHAIN)
    blocks = [*CHAIN, *(key(number, 8) for number in range(101, 65537))]
    assert runs(await server.stub.LookupRoute(request(blocks))) == [("pod-1", 100)]
    names = [f"pod-{number}" for number in range(4096)]
    named = await server.stub.LookupRoute(request(CHAIN, replica_ids=names))
    assert runs(named) == [("pod-1", 100)]
    tokens = await server.stub.LookupRoute(request(token_ids=range(1048576)))
    assert tokens.reason == Answer.REASON_NO_MATCH


async def test_a_revision_that_never_comes_is_unavailable(server, monkeypatch):
    """A lookup that is ahead of the server is told to try again."""
    monkeypatch.setattr("warmindex.limits.MIN_REVISION_WAIT_S", 0.02)
    fault = await fault_of(server.stub.LookupRoute(request(CHAIN, min_revision=2**63)))
    assert (fault.status, fault.reason) == ("UNAVAILABLE", "ERROR_REASON_REVISION_NOT_REACHED")
