"""The longest prefix: runs, holes, tiers, tokens, ranks and reasons."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.history import DEVICE, HOST, KEY, REMOTE, A, B, History, cleared, embedded, evicted
from support.model import PlainIndex
from support.questions import same_route
from warmindex.event import PartitionKey, Tier
from warmindex.index.route import SLICE_BLOCKS_FIRST, Match, Reason, lookup

CHAIN = "xxh3-chain/16"
CHAIN_KEY = KEY._replace(hash_scheme=CHAIN)
BLOCKS = [number.to_bytes(8, "big") for number in range(400)]


def held(replica: str, *blocks: int | slice, **fields: object) -> object:
    """An event by which a replica holds some blocks of the chain."""
    hashes = [
        content_hash
        for block in blocks
        for content_hash in (BLOCKS[block] if isinstance(block, slice) else [BLOCKS[block]])
    ]
    return embedded(*hashes, replica_id=replica, **{"hash_scheme": CHAIN, **fields})


def matches(history: History, blocks: int = 8, **options: object) -> list[Match]:
    return list(lookup(history.index, CHAIN_KEY, {CHAIN: BLOCKS[:blocks]}, **options).matches)


def test_a_run_ends_at_the_first_block_that_is_not_held():
    """A hole ends it whatever lies behind, and who lacks the first block has no run."""
    history = History(
        held("whole", slice(0, 8)),
        held("hole", 0, 1, 3, 4, 5, 6, 7),
        held("late", slice(1, 8)),
        held("first", 0),
    )
    assert matches(history) == [
        Match("whole", 8, 128, DEVICE),
        Match("hole", 2, 32, DEVICE),
        Match("first", 1, 16, DEVICE),
    ]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 191, 192, 193, 400])
def test_a_run_is_exact_across_slices(length: int):
    """Wherever the chain is cut while it is looked up, the run is as long as it is."""
    assert SLICE_BLOCKS_FIRST == 64, "the lengths above are around its multiples"
    history = History(held("a", slice(0, length)), held("b", slice(0, 400)))
    history.apply(evicted(BLOCKS[length - 1], replica_id="b", hash_scheme=CHAIN))
    found = {match.replica_id: match.blocks for match in matches(history, 400)}
    assert found == {"a": length, "b": length - 1} if length > 1 else {"a": 1}


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([{DEVICE}, {DEVICE}], DEVICE),
        ([{DEVICE}, {HOST}], HOST),
        ([{REMOTE}, {DEVICE}], REMOTE),
        ([{DEVICE, HOST}, {HOST, REMOTE}], HOST),
        ([{HOST, REMOTE}, {DEVICE, REMOTE}], HOST),
        ([{DEVICE}, {DEVICE}, set(), {REMOTE}], DEVICE),
    ],
)
def test_a_runs_tier_is_the_farthest_of_each_blocks_nearest(tiers: list[set[Tier]], expected: Tier):
    """What it costs to load the whole run is decided by its worst block."""
    history = History(
        *(held("r1", block, tier=tier) for block, some in enumerate(tiers) for tier in some)
    )
    (match,) = matches(history)
    assert match.tier is expected


def test_a_run_goes_on_from_tier_to_tier():
    """A block in any tier is a block: the run does not end where the tier changes."""
    history = History(held("r1", 0, 1, tier=HOST), held("r1", 2, 3), held("r1", 4, tier=REMOTE))
    assert matches(history) == [Match("r1", 5, 80, REMOTE)]


def test_ranks_go_by_length_then_tier_then_name():
    """So that the same question has the same answer, in the same order."""
    history = History(
        held("far", slice(0, 3), tier=REMOTE),
        held("b", slice(0, 3)),
        held("short", slice(0, 2)),
        held("a", slice(0, 3)),
        held("host", slice(0, 3), tier=HOST),
    )
    ranked = ["a", "b", "host", "far", "short"]
    assert [match.replica_id for match in matches(history)] == ranked
    for limit in range(1, 6):
        assert [match.replica_id for match in matches(history, limit=limit)] == ranked[:limit]
    assert [match.replica_id for match in matches(history, limit=99)] == ranked


def test_replica_ids_limit_the_answer_and_not_the_scope():
    """Those who hold nothing are passed over; the replicas in scope are counted all the same."""
    history = History(held("a", slice(0, 3)), held("b", slice(0, 2)), held("c", 7))
    route = lookup(history.index, CHAIN_KEY, {CHAIN: BLOCKS}, replica_ids=["b", "c", "nobody"])
    assert [match.replica_id for match in route.matches] == ["b"]
    assert (route.reason, route.replicas_in_scope) == (Reason.PREFIX_MATCH, 3)
    route = lookup(history.index, CHAIN_KEY, {CHAIN: BLOCKS}, replica_ids=["nobody"])
    assert (list(route.matches), route.reason) == ([], Reason.NO_MATCH)


def test_the_same_block_twice_in_a_chain_counts_twice():
    """A chain is a sequence; whether its keys repeat is its maker's affair."""
    history = History(held("r1", 0, 1))
    chain = [BLOCKS[0], BLOCKS[0], BLOCKS[1], BLOCKS[2]]
    (match,) = lookup(history.index, CHAIN_KEY, {CHAIN: chain}).matches
    assert match.blocks == 3


# ---- tokens --------------------------------------------------------------------------------


def test_tokens_of_a_chain_scheme_are_its_block_size():
    """Whatever token_count says."""
    history = History(held("r1", slice(0, 4), token_count=3))
    assert matches(history)[0].tokens == 64


@pytest.mark.parametrize(
    ("counts", "tokens"), [([16, 16, 16], 48), ([16, 7, 9], 32), ([0, 0, 0], 0), ([16, 0, 5], 21)]
)
def test_tokens_of_another_scheme_are_the_blocks_own(counts: list[int], tokens: int):
    """They are the sum over the run, and an unknown one adds nothing."""
    history = History(
        *(
            embedded(BLOCKS[block], replica_id="r1", token_count=count)
            for block, count in enumerate(counts)
        ),
        embedded(BLOCKS[0], replica_id="r2"),
    )
    found = lookup(history.index, KEY, {"own": BLOCKS}).matches
    assert [(match.replica_id, match.tokens) for match in found] == [
        ("r1", tokens),
        ("r2", counts[0]),
    ]


# ---- several schemes -----------------------------------------------------------------------


def test_of_several_schemes_the_longest_run_counts():
    """In tokens: 3 blocks of 16 are more than 1 of 32, and less than 2 of them."""
    coarse = [bytes([9, number] * 4) for number in range(4)]
    history = History(
        held("a", slice(0, 3)),
        embedded(coarse[0], replica_id="a", hash_scheme="xxh3-chain/32"),
        held("b", slice(0, 3)),
        embedded(*coarse[:2], replica_id="b", hash_scheme="xxh3-chain/32"),
        embedded(*coarse[:1], replica_id="c", hash_scheme="xxh3-chain/32"),
    )
    route = lookup(history.index, KEY, {CHAIN: BLOCKS, "xxh3-chain/32": coarse, "none": BLOCKS})
    assert list(route.matches) == [
        Match("b", 2, 64, DEVICE),
        Match("a", 3, 48, DEVICE),
        Match("c", 1, 32, DEVICE),
    ]
    assert route.replicas_in_scope == 3


# ---- reasons -------------------------------------------------------------------------------

CLEARED = [held("r1", 0), cleared()]


@pytest.mark.parametrize(
    ("events", "reason", "in_scope"),
    [
        ([], Reason.UNKNOWN_TENANT, 0),
        (CLEARED, Reason.UNKNOWN_TENANT, 0),
        ([held("r1", 0, tenant_id="blue")], Reason.UNKNOWN_TENANT, 0),
        ([held("r1", 0, model_id="other")], Reason.UNKNOWN_MODEL, 0),
        ([*CLEARED, held("r1", 0, model_id="other")], Reason.UNKNOWN_MODEL, 0),
        ([embedded(A)], Reason.UNKNOWN_HASH_SCHEME, 0),
        ([*CLEARED, embedded(A)], Reason.UNKNOWN_HASH_SCHEME, 0),
        ([held("r1", 0), evicted(BLOCKS[0], hash_scheme=CHAIN), embedded(A)], 5, 0),
        ([held("r1", 3)], Reason.NO_MATCH, 1),
        ([held("r1", 0, adapter_id="a"), held("r2", 1)], Reason.NO_MATCH, 2),
        ([*CLEARED, held("r2", 3)], Reason.NO_MATCH, 1),
        ([held("r1", 0), held("r2", 3)], Reason.PREFIX_MATCH, 2),
    ],
)
def test_the_reason_says_what_is_missing(events: list[object], reason: Reason, in_scope: int):
    """Tenant, model, scheme or block; what a clear has retired is not there."""
    route = lookup(History(*events).index, CHAIN_KEY, {CHAIN: BLOCKS[:2]})
    assert (route.reason, route.replicas_in_scope) == (reason, in_scope)
    assert bool(route.matches) is (reason is Reason.PREFIX_MATCH)


@pytest.mark.parametrize("chains", [{}, {CHAIN: []}])
def test_an_empty_chain_matches_nobody(chains: dict[str, list[bytes]]):
    """And is no error."""
    assert list(lookup(History(held("r1", 0)).index, CHAIN_KEY, chains).matches) == []


@pytest.mark.parametrize(
    "other", [{"tenant_id": "blue"}, {"model_id": "other"}, {"adapter_id": "a"}]
)
def test_nothing_is_routed_from_another_partition(other: dict[str, str]):
    """The same blocks elsewhere are somebody else's."""
    history = History(held("r1", slice(0, 2)), held("r2", slice(0, 9), **other))
    assert [match.replica_id for match in matches(history)] == ["r1"]
    elsewhere = lookup(history.index, CHAIN_KEY._replace(**other), {CHAIN: BLOCKS})
    assert [match.replica_id for match in elsewhere.matches] == ["r2"]


def test_a_cleared_replicas_bit_in_other_hands_routes_to_nobody_else():
    """Blocks that one replica held before its clear are not the next one's, at any moment."""
    history = History(
        held("old", slice(0, 6)), held("other", slice(0, 4)), cleared(replica_id="old")
    )
    while True:
        history.apply(held("new", 0))
        found = {match.replica_id: match.blocks for match in matches(history)}
        assert found == {"other": 4, "new": 1}
        history.apply(evicted(BLOCKS[0], replica_id="new", hash_scheme=CHAIN))
        if not history.index.reclaim_step():
            break
    history.apply(held("new", 0))
    assert {match.replica_id for match in matches(history)} == {"other", "new"}


holdings = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([DEVICE, HOST, REMOTE]),
        st.integers(0, 150),
        st.integers(1, 150),
        st.sampled_from([0, 16, 16, 5]),
    ),
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(holdings, holdings, st.integers(0, 200), st.sets(st.sampled_from(["a", "b"])))
def test_any_runs_are_those_of_the_plain_model(
    holds: list[tuple[str, Tier, int, int, int]],
    removals: list[tuple[str, Tier, int, int, int]],
    length: int,
    replica_ids: set[str],
):
    """Whatever stretches of a chain are held and dropped, the answer is block by block right."""
    plain, history = PlainIndex(), History()
    for make, some in ((embedded, holds), (evicted, removals)):
        for replica, tier, start, count, tokens in some:
            chain = BLOCKS[start : start + count]
            event = make(*chain, replica_id=replica, tier=tier, token_count=tokens)
            history.apply(event)
            plain.apply(history.index.revision, event)
    same_route(history.index, plain, KEY, {"own": BLOCKS[:length]}, replica_ids=replica_ids)


def test_a_partition_key_names_the_partition_and_not_the_scheme():
    """The schemes are those of the chains; the key's own counts for nothing."""
    history = History(held("r1", slice(0, 2)))
    key = PartitionKey("", "m", "whatever", "")
    assert lookup(history.index, key, {CHAIN: BLOCKS}).reason is Reason.PREFIX_MATCH
    assert B not in BLOCKS[:1]
