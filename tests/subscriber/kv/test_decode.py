"""Payloads of every version and of none: what is read, what is counted, and that nothing raises."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.kv_payloads import (
    H1,
    H2,
    H4,
    TOKENS,
    cleared,
    digest,
    encode,
    removed,
    signed,
    stored,
    stored_array,
    without,
)
from warmindex_subscriber.kv.decode import Batch, Cleared, Removed, Stored, decode_batch
from warmindex_subscriber.kv.extra_keys import Taint
from warmindex_subscriber.kv.ranks import RANK_MAX

pack = msgspec.msgpack.encode


def only(payload: bytes) -> Any:
    """The one event of a batch without faults."""
    batch = decode_batch(payload)
    assert (batch.malformed, batch.unknown, batch.undecodable) == (0, 0, False)
    (event,) = batch.events
    return event


PLAIN = Stored([H1], None, TOKENS, 4, None, None, "GPU", None, 0, 1, None)


class TestShapes:
    def test_a_map(self):
        """Today's form."""
        assert only(encode(stored())) == PLAIN

    def test_the_order_of_a_maps_keys_does_not_matter(self):
        """The type may stand anywhere."""
        items = list(stored().items())
        for seed in range(20):
            random.Random(seed).shuffle(items)
            assert only(encode(dict(items))) == PLAIN

    def test_a_map_with_a_wide_header(self):
        """As a struct writes it that could have more than 15 fields."""
        event = pack(stored())
        assert event[0] == 0x89
        wide = b"\xde\x00\x09" + event[1:]
        assert only(b"\x92\x01\x91" + wide) == PLAIN

    @pytest.mark.parametrize("length", range(6, 14))
    def test_an_array_that_may_be_cut_anywhere_behind_what_it_needs(self, length: int):
        """From the first release on, every one has a longer tail."""
        event = only(encode(stored_array(length)))
        medium, group = ("GPU" if length > 6 else None), (0 if length > 9 else None)
        assert event == PLAIN._replace(medium=medium, group=group)

    def test_an_array_with_a_tail_of_the_future(self):
        """What is not known is skipped."""
        array = [*stored_array(12), "LOCAL", "owner", {"k": [1]}, None]
        assert only(encode(array)) == PLAIN._replace(locality="LOCAL")
        assert only(encode([*stored_array(12), {"no": "text"}])) == PLAIN

    def test_a_map_with_fields_of_the_future(self):
        """The same."""
        assert only(encode(stored(event_version=2, block_offsets=[1, 2], origin={}))) == PLAIN

    @pytest.mark.parametrize(
        ("event", "expected"),
        [
            (removed(H1, H2), Removed([H1, H2], "GPU", None, 0)),
            (without(removed(H1), "group_idx", "medium"), Removed([H1], None, None, None)),
            (removed(H1, locality="REMOTE"), Removed([H1], "GPU", "REMOTE", 0)),
            (["BlockRemoved", [H1]], Removed([H1], None, None, None)),
            (["BlockRemoved", [H1], "CPU"], Removed([H1], "CPU", None, None)),
            (["BlockRemoved", [H1], "CPU", 2], Removed([H1], "CPU", None, 2)),
            (["BlockRemoved", [H1], None, 0, "LOCAL", "me"], Removed([H1], None, "LOCAL", 0)),
            (cleared(), Cleared()),
            (["AllBlocksCleared"], Cleared()),
            ({"type": "AllBlocksCleared", "tier": "GPU"}, Cleared()),
        ],
    )
    def test_removals_and_clears(self, event: Any, expected: Any):
        """Maps and arrays of every length."""
        assert only(encode(event)) == expected

    @pytest.mark.parametrize(
        ("batch", "rank"),
        [
            ([1.5, [stored()]], None),
            ([1.5, [stored()], None], None),
            ([1.5, [stored()], 3], 3),
            ([1.5, [stored()], 3, "more", {}], 3),
            ({"ts": 1.5, "events": [stored()]}, None),
            ({"ts": 1.5, "events": [stored()], "data_parallel_rank": 3}, 3),
            ({"events": [stored()], "attn_dp_rank": 3, "ts": 1}, 3),
        ],
    )
    def test_batches(self, batch: Any, rank: int | None):
        """Two, three or more elements, or a map."""
        read = decode_batch(pack(batch))
        assert (read.events, read.rank, read.undecodable) == ([PLAIN], rank, False)

    @pytest.mark.parametrize(
        ("ts", "expected"),
        [(1.5, 1_500_000), (2, 2_000_000), (-1, 0), (float("nan"), 0), (1e300, 0), ("now", 0)],
    )
    def test_a_time_that_is_none_is_no_fault(self, ts: Any, expected: int):
        """It informs, and orders nothing."""
        assert decode_batch(pack([ts, []])).timestamp_us == expected


class TestHashes:
    @pytest.mark.parametrize("form", [int, signed, digest])
    def test_a_number_its_signed_twin_and_its_digest_are_one(self, form: Any):
        """The digest's last 8 bytes are the number."""
        event = only(encode(stored([form(H2)], parent_block_hash=form(H4))))
        assert (event.keys, event.parent) == ([H2], H4)
        assert only(encode(removed(form(H2)))).keys == [H2]

    def test_forms_may_be_mixed(self):
        """One event, three forms."""
        assert only(encode(removed(H1, signed(H2), digest(H4)))).keys == [H1, H2, H4]

    def test_a_short_digest_is_its_number(self):
        """Whatever its length."""
        assert only(encode(removed(b"\x07"))).keys == [7]

    @pytest.mark.parametrize("bad", [None, 1.0, True, "text", b"", [1], {}])
    def test_what_is_no_hash_rejects_its_event(self, bad: Any):
        """Stored, removed, or as a parent."""
        events = [stored([H1, bad]), removed(bad)]
        if bad is not None:
            events.append(stored(parent_block_hash=bad))
        batch = decode_batch(encode(*events))
        assert (batch.malformed, batch.events) == (len(events), [])


class TestFaults:
    @pytest.mark.parametrize(
        "bad",
        [
            without(stored(), "token_ids"),
            without(stored(), "block_size"),
            without(stored(), "block_hashes"),
            without(stored(), "parent_block_hash"),
            without(stored(), "type"),
            stored(type=7),
            stored(tokens={"no": "list"}),
            stored(block_size=-1),
            stored(block_size=4.0),
            stored(block_size=True),
            stored(lora_id=[1, 2]),
            stored(lora_id="1"),
            stored(lora_id=True),
            stored(lora_name=7),
            stored(medium=1),
            stored(group_idx="0"),
            stored(group_idx=-1),
            stored(group_idx=2**40),
            stored(extra_keys="salt"),
            stored(locality=3),
            removed(medium=3),
            {"type": "BlockRemoved"},
            ["BlockStored", [H1], None, TOKENS],
            ["BlockRemoved"],
            [7, [H1]],
            [],
            {},
            None,
            "BlockStored",
            17,
        ],
    )
    def test_a_bad_event_is_counted_and_its_neighbours_are_read(self, bad: Any):
        """Before it and behind it."""
        batch = decode_batch(encode(stored(), bad, removed(H1)))
        assert batch.malformed == 1
        assert batch.events == [PLAIN, Removed([H1], "GPU", None, 0)]

    @pytest.mark.parametrize("event", [{"type": "BlockInactive", "x": 1}, ["BlockMoved", 1]])
    def test_an_unknown_type_is_no_fault(self, event: Any):
        """It is counted apart."""
        batch = decode_batch(encode(event, stored()))
        assert (batch.unknown, batch.malformed, batch.events) == (1, 0, [PLAIN])

    @pytest.mark.parametrize(
        "value",
        [
            b"\xa2\xff\xfe",  # a text that is none
            b"\x81\x91\x01\x02",  # a map whose key is an array
            b"\xc7\x01\x05\x00",  # an extension of nobody
        ],
    )
    @pytest.mark.parametrize("as_map", [True, False])
    def test_a_value_that_cannot_be_read_spoils_its_own_event_alone(
        self, value: bytes, as_map: bool
    ):
        """The batch as a whole cannot be decoded; its other events can."""
        good, bad = pack(stored()), pack(stored(medium=0))
        assert bad.count(b"\xa6medium\x00") == 1
        bad = bad.replace(b"\xa6medium\x00", b"\xa6medium" + value)
        events = b"\x93" + good + bad + good
        if as_map:
            payload = b"\x83\xa2ts\x01\xa6events" + events + b"\xacattn_dp_rank\x03"
        else:
            payload = b"\x93\x01" + events + b"\x03"
        batch = decode_batch(payload)
        assert (batch.events, batch.malformed, batch.rank) == ([PLAIN, PLAIN], 1, 3)

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"\xc1",
            b"\x90",
            b"\x91\x01",
            pack(7),
            pack([1.5]),
            pack([1.5, "events"]),
            pack({"ts": 1.5}),
            pack([1.5, [], "rank"]),
            pack([1.5, [], -1]),
            pack([1.5, [], RANK_MAX + 1]),
            pack([1.5, [], True]),
            encode(stored()) + b"\x00",
            b"\x91" * 100_000,
            b"\xdd\xff\xff\xff\xff",
        ],
    )
    def test_what_is_no_batch_is_undecodable(self, payload: bytes):
        """And nothing is read of it."""
        assert decode_batch(payload) == Batch(undecodable=True)

    def test_every_cut_of_a_batch_is_undecodable(self):
        """Half a batch says nothing."""
        payload = encode(stored(), removed(H1))
        for length in range(len(payload)):
            assert decode_batch(payload[:length]).undecodable


class TestExtraKeys:
    @pytest.mark.parametrize(
        ("fields", "plain", "taint"),
        [
            ({"extra_keys": None}, 3, None),
            ({"extra_keys": [None, None, None]}, 3, None),
            ({"extra_keys": [[], None, []]}, 3, None),
            ({"extra_keys": []}, 3, None),
            ({"extra_keys": [["a"]] * 3, "lora_name": "a"}, 3, None),
            ({"extra_keys": [["a"], None, ["a"]], "lora_name": "a"}, 3, None),
            ({"extra_keys": [[7]] * 3, "lora_id": 7}, 3, None),
            ({"extra_keys": [["salt"], None, None]}, 0, Taint.SALTED),
            ({"extra_keys": [["a", "salt"]] * 3, "lora_name": "a"}, 0, Taint.SALTED),
            ({"extra_keys": [["a", "a"]] * 3, "lora_name": "a"}, 0, Taint.SALTED),
            ({"extra_keys": [["b"]] * 3, "lora_name": "a"}, 0, Taint.SALTED),
            ({"extra_keys": [None, [["image", 3]], None]}, 1, Taint.MULTIMODAL),
            ({"extra_keys": [None, None, [b"digest"]]}, 2, Taint.PROMPT_EMBEDDINGS),
            ({"extra_keys": [None, None, [1.5]]}, 2, Taint.UNKNOWN),
            ({"extra_keys": [None, "salt", None]}, 1, Taint.UNKNOWN),
            ({"extra_keys": [None, 0, None]}, 1, Taint.UNKNOWN),
            ({"extra_keys": [None, [["image", 3]]]}, 0, Taint.MULTIMODAL),
            ({"cache_salt": "tenant-a"}, 0, Taint.SALTED),
            ({"cache_salt": None}, 3, None),
        ],
    )
    def test_what_a_block_depends_on_beside_its_tokens(
        self, fields: dict[str, Any], plain: int, taint: Taint | None
    ):
        """Leading blocks are plain up to the first one that is not."""
        event = only(encode(stored([1, 2, 3], list(range(12)), **fields)))
        assert (event.plain_blocks, event.taint) == (plain, taint)

    def test_a_map_in_the_place_of_a_name(self):
        """Its salt and its name are read, and what stands behind it is not."""
        array = [*stored_array(7), {"cache_salt": "s", "lora_name": "a"}, "x", "y"]
        event = only(encode(array))
        assert (event.taint, event.lora_name) == (Taint.SALTED, "a")
        assert only(encode([*stored_array(7), {"session_id": "s"}])) == PLAIN._replace(group=None)


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)
FIELDS = ["type", *list(stored()), "extra_keys", "locality", "cache_salt"]


class TestFuzz:
    @given(st.binary(max_size=200))
    @example(b"\x92\x01\x91\x81\xa4type\xabBlockStored")
    @settings(max_examples=1000, deadline=None)
    def test_no_bytes_raise(self, payload: bytes):
        """Whatever comes."""
        decode_batch(payload)

    @given(st.data())
    @settings(max_examples=200, deadline=None)
    def test_no_flipped_byte_raises(self, data: st.DataObject):
        """Real batches with a few bytes changed."""
        payload = bytearray(encode(stored(), stored_array(12), removed(H1), cleared()))
        for _ in range(data.draw(st.integers(1, 4))):
            position = data.draw(st.integers(0, len(payload) - 1))
            payload[position] = data.draw(st.integers(0, 255))
        decode_batch(bytes(payload))

    @given(st.lists(json_like, max_size=4))
    @settings(max_examples=200, deadline=None)
    def test_every_event_is_read_or_counted(self, events: list[Any]):
        """None is lost, whatever it is made of."""
        batch = decode_batch(encode(*events))
        assert len(batch.events) + batch.malformed + batch.unknown == len(events)

    @given(st.sampled_from(FIELDS), json_like)
    @settings(max_examples=200, deadline=None)
    def test_any_field_may_be_anything(self, name: str, value: Any):
        """An event that is read has fields of the types that it says."""
        batch = decode_batch(encode(stored(**{name: value}), stored()))
        assert batch.events[-1:] == [PLAIN]
        for event in batch.events:
            if isinstance(event, Stored):
                assert all(type(key) is int and 0 <= key < 2**64 for key in event.keys)
                assert type(event.block_size) is int
                assert event.medium is None or type(event.medium) is str
                assert 0 <= event.plain_blocks <= len(event.keys)
