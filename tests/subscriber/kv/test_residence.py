"""What an engine says, and which holds begin and end."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from support.kv_payloads import (
    H1,
    H2,
    H3,
    H4,
    KEY,
    SCHEME,
    TOKENS,
    Engine,
    digest,
    encode,
    removed,
    signed,
    stored,
)
from warmindex.event import EventType, Tier
from warmindex.hashing import chain_hashes
from warmindex_subscriber.kv import residence as residence_module
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.decode import decode_batch

LORA = {"lora_name": "sql-lora", "extra_keys": [["sql-lora"]]}


@pytest.fixture
def engine() -> Engine:
    return Engine()


class TestChain:
    def test_a_run_of_blocks_has_the_keys_of_its_prompt(self, engine: Engine):
        """One event, three blocks, with their token count and scheme."""
        (event,) = engine.say(stored([1, 2, 3], list(range(12))))
        assert list(event.content_hashes) == chain_hashes(range(12), 4)
        assert (event.hash_scheme, event.token_count) == (SCHEME, 4)
        assert (event.type, event.tier) == (EventType.EMBEDDED, Tier.DEVICE)
        assert event.timestamp_us > 0

    @pytest.mark.parametrize("parent", [2, signed(H2), digest(2)])
    def test_a_suffix_goes_on_from_its_parent(self, engine: Engine, parent: Any):
        """Whatever form the parent's hash has now."""
        number = 2 if parent != signed(H2) else H2
        engine.say(stored([1, number], list(range(8))))
        engine.say(stored([3], list(range(8, 12)), parent_block_hash=parent))
        assert engine.keys() == set(chain_hashes(range(12), 4))

    def test_a_suffix_without_its_parent_is_not_a_root(self, engine: Engine):
        """Nor are its own children anything; sent again behind the parent they are."""
        orphan = stored([H2], parent_block_hash=H4)
        child = stored([H3], [5, 6, 7, 8], parent_block_hash=H2)
        assert engine.say(orphan) == []
        assert engine.say(child) == []
        assert (engine.counters.orphan, engine.counters.orphan_of_unindexed) == (1, 1)
        engine.say(stored([H4], [1, 2, 3, 4]), orphan, child)
        assert engine.keys() == set(chain_hashes([1, 2, 3, 4, *TOKENS, 5, 6, 7, 8], 4))

    def test_a_parent_that_was_evicted_is_no_parent(self, engine: Engine):
        """Its key is known no more."""
        engine.say(stored(), removed(H1))
        engine.say(stored([H2], parent_block_hash=H1))
        assert engine.keys() == set()
        assert engine.counters.orphan == 1

    def test_blocks_said_one_by_one_are_the_run_that_they_are(self, engine: Engine):
        """One event comes of them, with the same keys."""
        blocks = [
            stored([i + 1], list(range(4 * i, 4 * i + 4)), parent_block_hash=i or None)
            for i in range(5)
        ]
        (event,) = engine.say(*blocks)
        assert list(event.content_hashes) == chain_hashes(range(20), 4)
        assert engine.counters.stored == 5

    @pytest.mark.parametrize("tokens", [[1, -2, 3, 4], [1, 2**32, 3, 4], [1, "2", 3, 4], [0.5] * 4])
    def test_a_token_that_is_none_spoils_its_event_alone(self, engine: Engine, tokens: list[Any]):
        """Also in the middle of a run."""
        engine.say(
            stored([1], [1, 2, 3, 4]),
            stored([2], tokens, parent_block_hash=1),
            stored([3], [9, 9, 9, 9]),
        )
        assert engine.keys() == {
            chain_hashes([1, 2, 3, 4], 4)[0],
            chain_hashes([9, 9, 9, 9], 4)[0],
        }
        assert engine.counters.malformed == 1

    def test_block_sizes_are_schemes_of_their_own(self, engine: Engine):
        """A parent of another size is none."""
        engine.say(stored([1], list(range(4))), stored([2], list(range(8)), block_size=8))
        engine.say(stored([3], list(range(8)), block_size=8, parent_block_hash=1))
        assert engine.keys(scheme="xxh3-chain/8") == set(chain_hashes(range(8), 8))
        assert engine.counters.orphan == 1

    def test_one_hash_may_stand_for_blocks_of_two_sizes(self, engine: Engine):
        """A long block's number is that of its last short one: each goes by its own copy."""
        engine.say(
            stored([1, 2], list(range(8)), group_idx=0),
            stored([2], list(range(8)), block_size=8, group_idx=1),
        )
        assert engine.keys() == set(chain_hashes(range(8), 4))
        assert engine.keys(scheme="xxh3-chain/8") == set(chain_hashes(range(8), 8))
        engine.say(stored([3], list(range(8, 16)), block_size=8, parent_block_hash=2, group_idx=1))
        assert len(engine.keys(scheme="xxh3-chain/8")) == 2
        engine.say(removed(2, group_idx=1))
        assert engine.keys() == set(chain_hashes(range(8), 4))
        assert engine.keys(scheme="xxh3-chain/8") == {chain_hashes(range(16), 8)[1]}

    def test_a_hash_that_changes_its_meaning_keeps_the_last(self, engine: Engine):
        """What it meant before is claimed no more."""
        engine.say(stored([H1], TOKENS))
        engine.say(stored([H1], [9, 9, 9, 9]))
        assert engine.keys() == set(chain_hashes([9, 9, 9, 9], 4))
        engine.say(removed(H1))
        assert engine.keys() == set()

    def test_a_hash_twice_in_one_event_is_recorded_once(self, engine: Engine):
        """With the last of its contents."""
        engine.say(stored([H1, H1], list(range(8))))
        engine.say(removed(H1))
        assert engine.keys() == set()


class TestNotIndexed:
    @pytest.mark.parametrize(
        ("event", "counter"),
        [
            (stored([7], [], block_size=0, medium="CPU"), "placeholder"),
            (stored([7], [], block_size=4), "unaligned"),
            (stored([7], [1, 2, 3, 4], block_size=0), "unaligned"),
            (stored([7], list(range(12)), parent_block_hash=H1), "unaligned"),
            (stored([7, 8], [1, 2, 3, 4]), "unaligned"),
            (stored([], [1, 2, 3, 4]), "unaligned"),
            (stored([7], [1, 2], block_size=2, parent_block_hash=H1), "partial"),
            (stored([7], [1, 2], block_size=2), "partial"),
            (stored([7], [[1, 2], [2, 3]], block_size=2), "bigram"),
            (stored([7], cache_salt="s"), "salted"),
            (stored([7], extra_keys=[["s"]]), "salted"),
            (stored([7], extra_keys=[[["image", 0]]]), "multimodal"),
            (stored([7], extra_keys=[[b"digest"]]), "prompt_embeddings"),
            (stored([7], extra_keys=[[1.5]]), "extra_keys_unknown"),
            (stored([7], lora_id=1), "unmapped"),
        ],
    )
    def test_it_is_counted_and_nothing_else_happens(
        self, engine: Engine, event: dict[str, Any], counter: str
    ):
        """No key, no touch of what is there, and a quiet removal."""
        engine.say(stored())
        before = engine.counters.as_dict()
        assert engine.say(event) == []
        after = engine.counters.as_dict()
        changed = {name for name in after if after[name] != before[name]}
        assert changed == {"stored", counter}
        assert engine.say(removed(*event["block_hashes"], medium=event["medium"])) == []
        assert engine.keys() == {KEY}

    def test_plain_blocks_in_front_of_a_tainted_one_are_indexed(self, engine: Engine):
        """From it on nothing is, and its children are no orphans of a loss."""
        engine.say(stored([1, 2, 3], list(range(12)), extra_keys=[None, [["image", 5]], None]))
        assert engine.keys() == set(chain_hashes(range(4), 4))
        engine.say(stored([4], list(range(4)), parent_block_hash=3))
        assert (engine.counters.orphan, engine.counters.orphan_of_unindexed) == (0, 1)

    def test_a_removal_of_what_was_not_indexed_forgets_it(self, engine: Engine):
        """A child that comes later has lost its parent."""
        engine.say(stored([1], cache_salt="s"), removed(1))
        engine.say(stored([2], parent_block_hash=1))
        assert engine.counters.orphan == 1

    def test_what_is_remembered_of_it_is_bounded(
        self, engine: Engine, monkeypatch: pytest.MonkeyPatch
    ):
        """It only names a counter."""
        monkeypatch.setattr(residence_module, "UNINDEXED_MAX", 10)
        for i in range(30):
            engine.say(stored([i], cache_salt="s"))
        assert len(engine.residence._unindexed) == 10

    def test_the_engines_own_hashes_index_all_that_has_one(self):
        """Salted, partial, orphaned and pairs; not what has no adapter or no size."""
        engine = Engine(native="vllm-native")
        engine.say(
            stored([1], cache_salt="s"),
            stored([2], [1, 2], block_size=2),
            stored([3], parent_block_hash=H4),
            stored([4], [[1, 2], [2, 3]], block_size=2),
            stored([5], [], block_size=0),
            stored([6], lora_id=1),
        )
        native = {number.to_bytes(8, "big") for number in (1, 2, 3, 4)}
        assert engine.keys(scheme="vllm-native") == native
        engine.say(removed(1, 2, 3, 4))
        assert engine.keys(scheme="vllm-native") == set()


class TestAdapters:
    def test_base_and_adapter_blocks_of_the_same_tokens_do_not_touch(self, engine: Engine):
        """One key in two partitions, under two hashes of the engine."""
        engine.say(stored([1]), stored([2], **LORA))
        assert engine.keys("") == engine.keys("sql-lora") == {KEY}
        (event,) = engine.say(removed(1))
        assert (event.adapter_id, event.adapter_scoped) == ("", True)
        assert (engine.keys(""), engine.keys("sql-lora")) == (set(), {KEY})
        (event,) = engine.say(removed(2))
        assert (event.adapter_id, event.adapter_scoped) == ("sql-lora", True)
        assert engine.index.holds == set()

    def test_names_are_opaque(self, engine: Engine):
        """Case and white space make another adapter."""
        names = ["SQL-lora", "sql-lora ", "sql-lora"]
        for i, name in enumerate(names):
            engine.say(stored([i + 1], lora_name=name))
        assert {hold[1] for hold in engine.index.holds} == set(names)

    def test_an_engine_that_leaves_the_adapter_out_of_its_hashes(self, engine: Engine):
        """One hash in two partitions: a removal says not which, and both go."""
        engine.say(stored([1]), stored([1], lora_name="sql-lora"))
        assert engine.keys("") == engine.keys("sql-lora") == {KEY}
        engine.say(stored([2], [5, 6, 7, 8], parent_block_hash=1, lora_name="sql-lora"))
        assert engine.keys("sql-lora") == set(chain_hashes([*TOKENS, 5, 6, 7, 8], 4))
        engine.say(removed(1))
        assert engine.keys("") == set()
        assert KEY not in engine.keys("sql-lora")

    def test_a_version_is_part_of_the_id(self):
        """What is stored after a reload goes elsewhere, and is evicted where it went."""
        adapters = Adapters(version_of_name={"sql-lora": "7"})
        engine = Engine(adapters)
        engine.say(stored([1], **LORA))
        adapters.set_versions({"sql-lora": "8"})
        engine.say(stored([2], **LORA))
        assert engine.keys("sql-lora@7") == engine.keys("sql-lora@8") == {KEY}
        engine.say(removed(1))
        assert (engine.keys("sql-lora@7"), engine.keys("sql-lora@8")) == (set(), {KEY})


def test_a_million_blocks_are_an_ordinary_engine():
    """What is kept of a block stays near 130 bytes, and goes when it goes."""
    import tracemalloc

    engine = Engine()
    count, numbers = 20_000, itertools.count(2**63)
    payloads = [
        encode(stored([next(numbers) for _ in range(50)], [i * 50 + j for j in range(50)], **small))
        for i, small in enumerate([{"block_size": 1, "group_idx": None}] * (count // 50))
    ]
    tracemalloc.start()
    for payload in payloads:
        engine.residence.apply(decode_batch(payload).events, _Nowhere())
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(engine.residence) == count
    assert kept / count < 200


class _Nowhere:
    def began(self, *_: object) -> None: ...
    def ended(self, *_: object) -> None: ...
    def cleared(self) -> None: ...
