"""Faults that users of KV events have reported: the published payloads and their outcomes."""

from __future__ import annotations

import pytest
from support.kv_cases import fixture
from support.kv_payloads import KEY, SCHEME, Engine
from warmindex.event import EventType, Tier
from warmindex.hashing import chain_hashes
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.decode import decode_batch
from warmindex_subscriber.kv.ranks import replica_name

ONE_BLOCK = [
    "C01a_map_stored",
    "C01b_map16_header",
    "C01c_array_stored_v0230",
    "C01d_array_stored_v090",
    "C01e_array_future_tail",
    "C01g_map_batch",
]


@pytest.mark.parametrize("name", ONE_BLOCK)
def test_c01_every_encoding_indexes_the_same_block(name: str):
    """Maps, arrays of any length and a map as a batch come to the same one key."""
    engine = Engine()
    engine.send(fixture(name))
    assert engine.keys() == {KEY}
    assert engine.counters.malformed == engine.counters.batches_undecodable == 0


def test_c01_encodings_may_be_mixed_in_a_batch():
    """Stored, removed and cleared in two encodings are applied in order."""
    engine = Engine()
    events = engine.send(fixture("C01f_mixed_batch"))
    assert [event.type for event in events] == [EventType.EMBEDDED, EventType.ALL_CLEARED]
    assert engine.keys() == set()
    assert engine.counters.malformed == 0


def test_c01_a_nil_rank_clears_too():
    """A rank that is nil is no fault."""
    engine = Engine()
    engine.send(fixture("C01a_map_stored"))
    engine.send(fixture("C01h_rank_nil"))
    assert engine.keys() == set()
    assert engine.counters.batches_undecodable == 0


@pytest.mark.parametrize(
    ("name", "keys", "malformed", "unknown"),
    [
        ("C02a_bad_between_good", 2, 1, 0),
        ("C02b_unknown_type", 1, 0, 1),
        ("C02c_no_tag", 1, 1, 0),
        ("C02d_tag_not_string", 1, 1, 0),
    ],
)
def test_c02_a_bad_event_leaves_its_neighbours_alone(name, keys, malformed, unknown):
    """What cannot be read is counted, and what can be is indexed."""
    engine = Engine()
    engine.send(fixture(name))
    assert len(engine.keys()) == keys
    assert (engine.counters.malformed, engine.counters.unknown) == (malformed, unknown)


def test_c02_a_truncated_batch_is_counted_and_the_next_one_read():
    """Half a payload is nothing, and no reason to stop."""
    engine = Engine()
    engine.send(fixture("C02e_truncated"))
    assert engine.keys() == set()
    assert engine.counters.batches_undecodable == 1
    engine.send(fixture("C01a_map_stored"))
    assert engine.keys() == {KEY}


def test_c03_integers_their_signed_twins_and_digests_are_one_identity():
    """A removal finds its block whatever form the hash has."""
    keys = chain_hashes(range(8), 4)
    engine = Engine(native="vllm-native")
    engine.send(fixture("C03a_int_hashes"))
    assert engine.keys() == set(keys)
    engine.send(fixture("C03c_signed_removed"))
    assert engine.keys() == {keys[0]}
    assert engine.keys(scheme="vllm-native") == {(0x1111111111111111).to_bytes(8, "big")}
    digests = decode_batch(fixture("C03b_bytes_hashes")).events[0]
    assert digests.keys == [0x1111111111111111, 0xFFFFFFFFFFFFFFF0]


@pytest.mark.parametrize("name", ["C03d_nil_hash", "C03e_float_hash"])
def test_c03_what_is_no_hash_rejects_its_event(name: str):
    """A nil or a float among the hashes is no block."""
    engine = Engine()
    engine.send(fixture(name))
    assert engine.keys() == set()
    assert engine.counters.malformed == 1


def test_c04_the_name_of_an_adapter_counts_and_not_its_number():
    """Two engines that number one adapter differently file it in one partition."""
    for name in ("C04a_name_and_id", "C04c_other_replica_id"):
        engine = Engine(Adapters({1: "chat-lora", 2: "chat-lora"}))
        engine.send(fixture(name))
        assert engine.keys("sql-lora") == {KEY}
        assert len(engine.index.holds) == 1


def test_c04_a_number_without_a_name_needs_the_map(caplog):
    """An unmapped adapter is dropped, counted and warned of once, never the base model's."""
    engine = Engine()
    engine.send(fixture("C04b_id_only"))
    engine.send(fixture("C04b_id_only"))
    assert engine.index.holds == set()
    assert engine.counters.unmapped == 2
    assert len(caplog.records) == 1
    mapped = Engine(Adapters({1: "chat-lora"}))
    mapped.send(fixture("C04b_id_only"))
    assert mapped.keys("chat-lora") == {KEY}
    assert len(mapped.index.holds) == 1


def test_c04_a_number_that_is_none_rejects_its_event():
    """A list in the number's place is not the base model."""
    engine = Engine()
    engine.send(fixture("C04d_bad_id_type"))
    assert engine.index.holds == set()
    assert engine.counters.malformed == 1


def test_c05_evicting_the_base_block_leaves_the_adapters_alone():
    """Same tokens, same key, two partitions: a removal reaches one."""
    engine = Engine()
    engine.send(fixture("C05a_base_stored"))
    engine.send(fixture("C05b_lora_stored"))
    (event,) = engine.send(fixture("C05c_base_removed"))
    assert (event.type, event.adapter_id, event.adapter_scoped) == (EventType.EVICTED, "", True)
    assert engine.keys("") == set()
    assert engine.keys("sql-lora") == {KEY}


@pytest.mark.parametrize(
    ("name", "counter"),
    [
        ("C07a_placeholder", "placeholder"),
        ("C07b_sparse", "unaligned"),
        ("C07c_empty_hashes", "unaligned"),
        ("C07d_partial", "partial"),
    ],
)
def test_c07_tokens_that_do_not_match_make_no_key(name: str, counter: str):
    """Nothing is indexed, nothing that is indexed is touched, and a removal is quiet."""
    engine = Engine()
    engine.send(fixture("C01a_map_stored"))
    assert engine.send(fixture(name)) == []
    assert engine.counters.as_dict()[counter] == 1
    assert engine.keys() == {KEY}
    assert engine.index.tiers(KEY) == {Tier.DEVICE}


def test_c07_a_partial_block_is_stored_under_the_engines_own_hash():
    """The chain has full blocks only; the engine's own scheme has every block."""
    engine = Engine(native="vllm-native")
    engine.send(fixture("C01a_map_stored"))
    engine.send(fixture("C07d_partial"))
    assert engine.keys(scheme="vllm-native") >= {(7).to_bytes(8, "big")}


def test_c08_a_removal_from_the_device_leaves_the_copy_on_the_host():
    """The block is still found, farther away."""
    engine = Engine()
    engine.send(fixture("C08a_gpu_and_cpu"))
    assert engine.index.tiers(KEY) == {Tier.HOST}


def test_c08_no_medium_is_the_device():
    """Stored without a medium, removed from the GPU: gone."""
    engine = Engine()
    engine.send(fixture("C08b_medium_absent"))
    assert engine.index.holds == set()


def test_c08_one_group_of_two_is_enough():
    """The window group's eviction leaves what full attention has."""
    engine = Engine()
    engine.send(fixture("C08c_groups"))
    assert engine.index.tiers(KEY) == {Tier.DEVICE}


def test_c10_an_unknown_parent_is_not_a_root():
    """A suffix is indexed only behind a parent that was seen."""
    engine = Engine()
    engine.send(fixture("C10a_orphan"))
    assert engine.index.holds == set()
    assert engine.counters.orphan == 1


def test_c15_a_clear_is_of_one_rank():
    """The batch names the rank, and the rank names the replica."""
    batch = decode_batch(fixture("C15_cleared"))
    assert replica_name("pod", batch.rank, several=True) == "pod/dp1"
    engine = Engine()
    engine.send(fixture("C08a_gpu_and_cpu"))
    engine.send(fixture("C05b_lora_stored"))
    engine.send(fixture("C15_cleared"))
    assert engine.index.holds == set()
    assert all(engine.send(fixture("C15_cleared")) == [] for _ in range(1000))


def test_c16_sglangs_map_is_read_and_its_salt_heeded():
    """Rank, adapter and tier are read; what is salted has no key of the chain."""
    batch = decode_batch(fixture("C16a_sglang_map"))
    assert replica_name("pod", batch.rank, several=False) == "pod/dp3"
    engine = Engine(native="sglang-native")
    engine.send(fixture("C16a_sglang_map"))
    assert engine.keys("chat-lora", "xxh3-chain/2") == set()
    assert engine.keys("chat-lora", "sglang-native") == {(2**64 - 5).to_bytes(8, "big")}
    assert {hold[3] for hold in engine.index.holds} == {Tier.HOST}
    assert engine.counters.salted == 1


def test_c16_pairs_are_not_tokens():
    """Bigram pages have no key of the chain, and hurt nobody."""
    engine = Engine()
    engine.send(fixture("C16b_sglang_bigram"))
    assert engine.index.holds == set()
    assert (engine.counters.bigram, engine.counters.malformed) == (1, 0)


def test_c16_one_removal_names_all_hashes_of_a_node():
    """All three go."""
    engine = Engine(native="sglang-native")
    for name in ("C16a_sglang_map", "C16b_sglang_bigram"):
        engine.send(fixture(name))
    engine.send(fixture("C16c_sglang_multi_remove"))
    assert {hold[3] for hold in engine.index.holds} == {Tier.HOST}
    assert engine.keys("", "sglang-native") == set()


def test_c16_a_map_where_others_have_a_name_is_no_name():
    """The adapter is the base model, and the salt in the map is heeded."""
    engine = Engine(native="sglang-native")
    engine.send(fixture("C16d_sglang_array_meta"))
    assert engine.keys("", "sglang-native") == {(9).to_bytes(8, "big")}
    assert engine.keys("", SCHEME) == set()
    assert engine.counters.salted == 1
