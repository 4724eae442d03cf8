"""Copies of a block in tiers and groups, and clears: when a hold ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kv_payloads import H1, H3, KEY, SCHEME, Engine, cleared, removed, stored, without
from warmindex.event import EventType, Tier
from warmindex.hashing import chain_hashes
from warmindex_subscriber.kv.copies import COPIES_MAX

LORA = {"lora_name": "sql-lora", "extra_keys": [["sql-lora"]]}


@pytest.fixture
def engine() -> Engine:
    return Engine()


class TestCopies:
    @pytest.mark.parametrize(
        ("medium", "tier"),
        [
            (None, Tier.DEVICE),
            ("", Tier.DEVICE),
            ("gpu", Tier.DEVICE),
            ("CPU", Tier.HOST),
            ("cpu_pinned", Tier.HOST),
            ("DISK", Tier.HOST),
            ("Fs", Tier.HOST),
            ("STORAGE", Tier.REMOTE),
            ("obj", Tier.REMOTE),
            ("EXTERNAL", Tier.REMOTE),
        ],
    )
    def test_mediums_are_tiers(self, engine: Engine, medium: str | None, tier: Tier):
        """Case aside."""
        engine.say(stored(medium=medium))
        assert engine.index.tiers(KEY) == {tier}
        assert engine.counters.medium_unknown == 0

    def test_an_unknown_medium_is_remote_and_counted(self, engine: Engine):
        """Farther than it is costs less than nearer than it is."""
        engine.say(stored(medium="TAPE"))
        assert engine.index.tiers(KEY) == {Tier.REMOTE}
        assert engine.counters.medium_unknown == 1

    def test_a_remote_locality_is_remote_whatever_the_medium(self, engine: Engine):
        """And a removal that does not say where takes it too."""
        engine.say(stored(medium="CPU", locality="remote"))
        assert engine.index.tiers(KEY) == {Tier.REMOTE}
        assert engine.say(removed(H1, medium="CPU", locality="LOCAL")) == []
        engine.say(removed(H1, medium="CPU"))
        assert engine.index.holds == set()

    def test_a_hold_goes_with_its_last_copy_in_the_tier(self, engine: Engine):
        """Two mediums of one tier, two groups, and a tier beside them."""
        engine.say(stored(medium="CPU"), stored(medium="DISK"), stored(), stored(group_idx=1))
        assert engine.index.tiers(KEY) == {Tier.DEVICE, Tier.HOST}
        assert engine.say(removed(H1, medium="CPU")) == []
        assert engine.say(removed(H1, group_idx=1)) == []
        engine.say(removed(H1))
        assert engine.index.tiers(KEY) == {Tier.HOST}
        (event,) = engine.say(removed(H1, medium="disk"))
        assert (event.type, event.tier) == (EventType.EVICTED, Tier.HOST)

    def test_a_removal_without_a_group_takes_all_groups(self, engine: Engine):
        """And one with a group takes what was stored without."""
        engine.say(stored(group_idx=0), stored(group_idx=1))
        engine.say(without(removed(H1), "group_idx"))
        assert engine.index.holds == set()
        engine.say(without(stored(), "group_idx"), removed(H1, group_idx=3))
        assert engine.index.holds == set()

    def test_what_is_said_again_is_not_published_again(self, engine: Engine):
        """An engine may announce a block with every request that uses it."""
        assert len(engine.say(stored())) == 1
        assert engine.say(stored(), stored()) == []
        assert engine.say(stored(group_idx=1)) == []
        engine.say(removed(H1), removed(H1, group_idx=1))
        assert engine.index.holds == set()

    def test_a_removal_of_what_is_not_there_is_quiet(self, engine: Engine):
        """Never stored, or stored elsewhere."""
        engine.say(stored())
        assert engine.say(removed(H3), removed(H1, medium="CPU"), removed(H1, group_idx=9)) == []

    def test_more_mediums_than_an_engine_has_are_not_recorded(self, engine: Engine):
        """The record of a block stays small whatever is sent."""
        for i in range(COPIES_MAX + 5):
            engine.say(stored(medium=f"M{i}"))
        assert engine.counters.copies_exhausted == 5
        engine.say(removed(H1, medium=f"M{COPIES_MAX + 1}"))
        assert engine.index.tiers(KEY) == {Tier.REMOTE}


class TestClears:
    def test_a_clear_takes_everything_in_one_event(self):
        """Every adapter, tier, group and scheme."""
        engine = Engine(native="vllm-native")
        engine.say(stored(), stored(medium="CPU", group_idx=1), stored([2], **LORA))
        (event,) = engine.say(cleared())
        assert event.type is EventType.ALL_CLEARED
        assert engine.index.holds == set()
        assert len(engine.residence) == 0

    def test_a_clear_of_nothing_says_nothing(self, engine: Engine):
        """However often it comes."""
        assert all(engine.say(cleared(), cleared()) == [] for _ in range(100))
        assert engine.counters.cleared == 200

    def test_what_comes_after_a_clear_stands(self, engine: Engine):
        """In one batch, in order."""
        engine.say(stored(), cleared(), stored([2], [9, 9, 9, 9]))
        assert engine.keys() == set(chain_hashes([9, 9, 9, 9], 4))
        assert [event.type.name for event in engine.index.events] == [
            "EMBEDDED",
            "ALL_CLEARED",
            "EMBEDDED",
        ]


MEDIUMS = [None, "GPU", "cpu", "DISK", "OBJ"]
HASHES = [1, 2, 3]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["store", "store", "remove", "clear"]),
            st.sampled_from(HASHES),
            st.sampled_from(["", "sql-lora"]),
            st.sampled_from(MEDIUMS),
            st.sampled_from([None, 0, 1]),
        ),
        max_size=40,
    )
)
@settings(max_examples=300, deadline=None)
def test_holds_are_what_is_left_of_all_copies(operations: list[tuple[Any, ...]]):
    """Against a plain list of copies: a hold is there while one copy in its tier is."""
    tiers = {None: 1, "GPU": 1, "cpu": 2, "DISK": 2, "OBJ": 3}
    engine, copies = Engine(native="vllm-native"), set()
    for kind, number, adapter, medium, group in operations:
        place = (medium or "GPU").upper()
        if kind == "clear":
            engine.say(cleared())
            copies.clear()
        elif kind == "store":
            name = {"lora_name": adapter} if adapter else {}
            tokens = [number] * 4
            engine.say(stored([number], tokens, medium=medium, group_idx=group, **name))
            copies.add((number, adapter, place, group, tiers[medium]))
        else:
            engine.say(removed(number, medium=medium, group_idx=group))
            copies = {
                copy
                for copy in copies
                if copy[0] != number
                or copy[2] != place
                or not (group is None or copy[3] is None or copy[3] == group)
            }
        expected = {
            ("pod", adapter, scheme, tier, key)
            for number, adapter, _, _, tier in copies
            for scheme, key in (
                (SCHEME, chain_hashes([number] * 4, 4)[0]),
                ("vllm-native", number.to_bytes(8, "big")),
            )
        }
        assert engine.index.holds == expected
        holds = engine.residence.holds()
        assert {(p.adapter_id, p.hash_scheme, t, k) for p, t, k in holds} == {
            hold[1:] for hold in expected
        }
