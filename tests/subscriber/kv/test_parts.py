"""The small parts: framing, topics, ranks, adapters, model lists, the outbox, runs, counters."""

from __future__ import annotations

import pytest
from support.kv_payloads import H1, Model, encode, removed, stored
from warmindex.errors import InvalidError
from warmindex.event import EventType, Tier
from warmindex.limits import ADAPTER_ID_BYTES_MAX, CONTENT_HASHES_MAX
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import decode_batch
from warmindex_subscriber.kv.framing import (
    Frame,
    ReplayEnd,
    Topic,
    parse_live,
    parse_replay,
    parse_topic,
    replay_request,
    topic_matches,
)
from warmindex_subscriber.kv.held import HELD_BYTES_MAX, Held
from warmindex_subscriber.kv.ledger import Partition
from warmindex_subscriber.kv.models import versions_of
from warmindex_subscriber.kv.outbox import Entries, Outbox, Producer
from warmindex_subscriber.kv.ranks import parse_ranks, publishers, replica_name
from warmindex_subscriber.kv.replicas import Replicas, residence_factory
from warmindex_subscriber.kv.runs import merged, runs

FIVE = (5).to_bytes(8, "big")
END = b"\xff" * 8


class TestFraming:
    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ([b"kv", FIVE, b"p"], (b"kv", Frame(5, b"p"))),
            ([b"", FIVE, b"p"], (b"", Frame(5, b"p"))),
            ([FIVE, b"p"], (b"", Frame(5, b"p"))),
            ([b"kv", b"more", FIVE, b"p"], (b"kv", Frame(5, b"p"))),
            ([b"p"], None),
            ([], None),
            ([b"kv", b"5", b"p"], None),
            ([b"kv", END, b""], None),
        ],
    )
    def test_live_messages(self, parts: list[bytes], expected: object):
        """Topic first, payload last, its number before it."""
        assert parse_live(parts) == expected

    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ([b"", FIVE, b"p"], Frame(5, b"p")),
            ([b"", b"kv", FIVE, b"p"], Frame(5, b"p")),
            ([b"", b"", FIVE, b"p"], Frame(5, b"p")),
            ([b"", END, b""], ReplayEnd()),
            ([b"", b"", END, b""], ReplayEnd()),
            ([b"", END, b"p"], None),
            ([b"", b"5", b"p"], None),
            ([b""], None),
        ],
    )
    def test_replies_are_read_from_the_end(self, parts: list[bytes], expected: object):
        """With a topic or without; all ones end it, and are no number."""
        assert parse_replay(parts) == expected

    def test_a_request_has_an_empty_frame_in_front(self):
        """Without it engines do not answer."""
        assert replay_request(5) == [b"", FIVE]

    def test_a_topic_is_split_from_the_left(self):
        """So that a model's name keeps its @."""
        assert parse_topic("kv@10.0.0.9@acme/m@v2") == Topic("kv", "10.0.0.9", "acme/m@v2")
        assert parse_topic("kv") == Topic("kv")
        assert parse_topic("") == Topic("")

    @pytest.mark.parametrize(
        ("wanted", "topic", "matches"),
        [
            (b"", b"", True),
            (b"", b"kv-other", True),
            (b"kv", b"kv", True),
            (b"kv", b"kv@10.0.0.9@acme/m@v2", True),
            (b"kv@10.0.0.9", b"kv@10.0.0.9@acme/m", True),
            (b"kv", b"kv-other", False),
            (b"kv", b"", False),
            (b"kv@10.0.0.9", b"kv@10.0.0.99@acme/m", False),
        ],
    )
    def test_topics_match_by_whole_parts(self, wanted: bytes, topic: bytes, matches: bool):
        """Where ZMQ compares prefixes of bytes."""
        assert topic_matches(wanted, topic) is matches


class TestRanks:
    @pytest.mark.parametrize(
        ("text", "ranks"),
        [("1", [0]), ("4", [0, 1, 2, 3]), ("2-4", [2, 3, 4]), ("3-3", [3]), ("5,1,1", [1, 5])],
    )
    def test_ranks_are_a_count_a_range_or_a_list(self, text: str, ranks: list[int]):
        """Of a node's share too."""
        assert parse_ranks(text) == ranks

    @pytest.mark.parametrize("text", ["", "0", "x", "-1", "3-1", "1,", "1.5", "9999", "٣"])
    def test_other_ranks_are_refused(self, text: str):
        """With the field's name."""
        with pytest.raises(InvalidError) as error:
            parse_ranks(text)
        assert error.value.field == "ranks"

    def test_ports_count_up_from_the_base(self):
        """Of the live and of the replay endpoint."""
        made = publishers([0, 1, 3], ["tcp://h:5557"], ["tcp://[::1]:6557"])
        assert [one.rank for one in made] == [0, 1, 3]
        assert [one.address.live for one in made] == [
            "tcp://h:5557",
            "tcp://h:5558",
            "tcp://h:5560",
        ]
        assert made[2].address.replay == "tcp://[::1]:6560"

    def test_endpoints_may_be_named_one_by_one(self):
        """In the order of the ranks."""
        made = publishers([0, 1], ["ipc://a", "ipc://b"])
        assert [one.address.live for one in made] == ["ipc://a", "ipc://b"]
        assert made[0].address.replay is None

    @pytest.mark.parametrize(
        ("ranks", "endpoints", "replays", "bind"),
        [
            ([0], [], [], False),
            ([0, 1, 2], ["tcp://h:1", "tcp://h:2"], [], False),
            ([0], ["tcp://h:1", "tcp://h:2"], [], False),
            ([0, 1], ["ipc://a"], [], False),
            ([0, 1], ["tcp://h:65535"], [], False),
            ([0], ["tcp://*:5557"], [], False),
            ([0], ["tcp://0.0.0.0:5557"], [], False),
            ([0], ["tcp://*:5557"], ["tcp://*:5558"], True),
            ([0, 1], ["tcp://h:5557"], ["tcp://h:5558"], False),
        ],
    )
    def test_what_cannot_be_followed_is_refused(self, ranks, endpoints, replays, bind):
        """Before anything waits for it."""
        with pytest.raises(InvalidError, match="endpoint"):
            publishers(ranks, endpoints, replays, bind=bind)

    def test_a_wildcard_may_be_bound(self):
        """For engines that connect."""
        assert publishers([0], ["tcp://*:5557"], bind=True)[0].address.bind

    def test_replicas_are_named_by_rank_where_there_are_several(self):
        """Or where the rank is not the first of one."""
        assert replica_name("pod", 0, several=False) == "pod"
        assert replica_name("pod", 0, several=True) == "pod/dp0"
        assert replica_name("pod", 3, several=False) == "pod/dp3"


class TestAdapters:
    def test_the_name_wins_and_a_number_needs_the_map(self):
        """An empty name is none."""
        adapters = Adapters({1: "chat-lora", 2: ""})
        assert adapters.resolve("sql-lora", 1) == "sql-lora"
        assert adapters.resolve(None, 1) == adapters.resolve("", 1) == "chat-lora"
        assert adapters.resolve(None, None) == adapters.resolve("", None) == ""
        assert adapters.resolve(None, 2) is adapters.resolve(None, 0) is None

    def test_a_version_is_required_where_it_is_to_be_read(self):
        """Without it the adapter could be any of its lives."""
        adapters = Adapters(version_of_name={"a": "1"}, versions_required=True)
        assert adapters.resolve("a", None) == "a@1"
        assert adapters.resolve("b", None) is None
        adapters.set_versions({"b": "/adapters/b/2"})
        assert adapters.resolve("b", None) == "b@/adapters/b/2"
        assert adapters.resolve(None, None) == ""

    def test_a_name_that_the_index_would_refuse_is_unknown(self, caplog):
        """It is warned of once, and never raises."""
        adapters = Adapters()
        assert adapters.resolve("é" * (ADAPTER_ID_BYTES_MAX // 2), None) is not None
        long = "é" * (ADAPTER_ID_BYTES_MAX // 2 + 1)
        assert adapters.resolve(long, None) is adapters.resolve(long, None) is None
        assert len(caplog.records) == 1

    def test_warnings_are_bounded(self, caplog):
        """An engine may make numbers up for ever."""
        adapters = Adapters()
        for number in range(5000):
            adapters.resolve(None, number)
            adapters.resolve(f"name {number}", None)
        assert len(caplog.records) < 2000

    def test_versions_are_where_adapters_were_loaded_from(self):
        """The base model has none; configured ones win; what is odd is passed over."""
        models = {
            "data": [
                {"id": "base", "root": "acme/m", "parent": None},
                {"id": "sql-lora", "root": "/adapters/sql/7", "parent": "base"},
                {"id": "chat-lora", "root": "/adapters/chat", "parent": "base"},
                {"id": 7, "root": "/x", "parent": "base"},
                "odd",
                {"id": "no root", "parent": "base"},
            ]
        }
        assert versions_of(models, {"chat-lora": "9"}) == {
            "sql-lora": "/adapters/sql/7",
            "chat-lora": "9",
        }
        assert versions_of([], {}) == versions_of({"data": 3}, {}) == {}


BASE = Partition("", "xxh3-chain/4", 4)
LORA = Partition("sql-lora", "xxh3-chain/4", 4)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big")


class TestOutbox:
    def make(self) -> Outbox:
        return Outbox(Producer("acme", "m", "pod"))

    def test_what_is_of_one_kind_goes_into_one_event(self):
        """Also where other partitions come between."""
        outbox = self.make()
        for number in range(4):
            outbox.began(BASE if number % 2 else LORA, Tier.DEVICE, [key(number)])
        events = outbox.take()
        assert [list(event.content_hashes) for event in events] == [
            [key(0), key(2)],
            [key(1), key(3)],
        ]
        assert {(event.tenant_id, event.model_id, event.replica_id) for event in events} == {
            ("acme", "m", "pod")
        }
        assert outbox.take() == []

    def test_the_order_of_a_partitions_kinds_is_kept(self):
        """Stored, removed, stored: three events."""
        outbox = self.make()
        outbox.began(BASE, Tier.DEVICE, [key(1)])
        outbox.ended(BASE, Tier.DEVICE, key(1))
        outbox.began(BASE, Tier.DEVICE, [key(1)])
        types = [event.type for event in outbox.take()]
        assert types == [EventType.EMBEDDED, EventType.EVICTED, EventType.EMBEDDED]

    def test_a_clear_comes_after_what_was_before_it(self):
        """And before what comes after."""
        outbox = self.make()
        outbox.began(BASE, Tier.DEVICE, [key(1)])
        outbox.cleared()
        outbox.began(BASE, Tier.DEVICE, [key(2)])
        index = Model()
        index.take(outbox.take())
        assert {hold[4] for hold in index.holds} == {key(2)}

    @pytest.mark.parametrize("count", [CONTENT_HASHES_MAX, CONTENT_HASHES_MAX + 1, 10_000])
    def test_an_event_is_no_larger_than_the_contract_allows(self, count: int):
        """However much is said at once."""
        outbox = self.make()
        outbox.began(BASE, Tier.HOST, [key(i) for i in range(count)])
        outbox.began(BASE, Tier.HOST, [key(count)])
        events = outbox.take()
        assert sum(len(event.content_hashes) for event in events) == count + 1
        assert max(len(event.content_hashes) for event in events) <= CONTENT_HASHES_MAX

    def test_an_eviction_says_its_tier_partition_and_scheme(self):
        """And is scoped, above all where the adapter is empty."""
        outbox = self.make()
        outbox.ended(BASE, Tier.HOST, key(1))
        (event,) = outbox.take()
        assert (event.tier, event.adapter_scoped, event.hash_scheme) == (
            Tier.HOST,
            True,
            "xxh3-chain/4",
        )
        assert not event.sweeps_adapters

    def test_entries_are_made_anew_for_each_attempt(self):
        """The same holds, few events in memory at a time."""
        holds = [(BASE, Tier.DEVICE, key(i)) for i in range(9000)]
        entries = Entries(Producer("", "m", "pod"), lambda: iter(holds))
        for _ in range(2):
            events = list(entries)
            assert [len(event.content_hashes) for event in events] == [4096, 4096, 808]
            assert {event.type for event in events} == {EventType.EMBEDDED}


class TestReplicas:
    def make(self) -> tuple[Replicas, Model]:
        name = {None: "pod", 0: "pod", 1: "pod/dp1"}
        factory = residence_factory(Adapters(), Counters(), None)
        return Replicas("", "m", name.__getitem__, factory), Model()

    def test_a_replica_that_first_comes_up_live_is_cleared_first(self):
        """The index may have it from an earlier life of this process."""
        replicas, index = self.make()
        assert replicas.adopt() == ["pod"]
        replicas.deliver(decode_batch(encode(stored(), rank=1)))
        (events,) = replicas.take()
        assert [event.type for event in events] == [EventType.ALL_CLEARED, EventType.EMBEDDED]
        index.take(events)
        assert {hold[0] for hold in index.holds} == {"pod/dp1"}
        assert replicas.replica_ids == ["pod", "pod/dp1"]

    def test_what_is_adopted_is_reported_for_every_replica(self):
        """Those that hold nothing any more as well."""
        replicas, _ = self.make()
        replicas.deliver(decode_batch(encode(stored(), rank=1)))
        replicas.learn(decode_batch(encode(stored(), rank=0)))
        assert sorted(replicas.adopt()) == ["pod", "pod/dp1"]
        assert replicas.take() == []
        assert len(list(replicas.entries("pod"))) == 1
        assert list(replicas.entries("pod/dp1")) == []

    def test_what_is_learned_is_not_published(self):
        """Until it is adopted; forgotten, never."""
        replicas, _ = self.make()
        replicas.learn(decode_batch(encode(stored())))
        replicas.forget()
        replicas.learn(decode_batch(encode(removed(H1))))
        assert replicas.take() == []
        replicas.adopt()
        assert list(replicas.entries("pod")) == []

    def test_a_clear_is_said_where_there_is_something(self):
        """Of each replica."""
        replicas, index = self.make()
        replicas.deliver(decode_batch(encode(stored(), rank=0)))
        replicas.deliver(decode_batch(encode(stored(), rank=1)))
        for events in replicas.take():
            index.take(events)
        assert len(index.holds) == 2
        replicas.clear()
        for events in replicas.take():
            index.take(events)
        assert index.holds == set()
        replicas.clear()
        assert replicas.take() == []


class TestRuns:
    def test_blocks_that_go_on_from_each_other_are_one_run(self):
        """As long as all else is alike."""
        one = stored([1], list(range(4)))
        two = stored([2], list(range(4, 8)), parent_block_hash=1)
        three = stored([3], list(range(8, 12)), parent_block_hash=2)
        events = decode_batch(encode(one, two, three, removed(2), two, one)).events
        lengths = [len(run) for run in runs(events)]
        assert lengths == [3, 1, 1, 1]
        whole = merged(events[:3])
        assert (whole.keys, whole.token_ids) == ([1, 2, 3], list(range(12)))
        assert (whole.parent, whole.plain_blocks) == (None, 3)
        assert events[0].keys == [1]

    @pytest.mark.parametrize(
        "fields",
        [
            {"parent_block_hash": 9},
            {"parent_block_hash": None},
            {"block_size": 2, "tokens": [5, 6]},
            {"lora_name": "a"},
            {"lora_id": 3},
            {"medium": "CPU"},
            {"group_idx": 1},
            {"locality": "REMOTE"},
            {"cache_salt": "s"},
            {"tokens": [5, 6, 7]},
        ],
    )
    def test_what_differs_is_a_run_of_its_own(self, fields):
        """In any respect."""
        two = stored([2], **{"tokens": [5, 6, 7, 8], "parent_block_hash": 1, **fields})
        events = decode_batch(encode(stored([1]), two)).events
        assert [len(run) for run in runs(events)] == [1, 1]


def test_held_batches_are_bounded_by_their_bytes_too():
    """A few large ones fill the memory as many small ones do."""
    held, payload = Held(), bytes(HELD_BYTES_MAX // 4)
    for sequence in range(3):
        held.add(Frame(sequence, payload))
        assert not held.full
    held.add(Frame(3, payload))
    assert held.full
    assert [frame.sequence for frame in held.take()] == [0, 1, 2, 3]
    assert not held.full
    assert not held


def test_counters_are_read_by_name():
    """All of them, or those that have counted."""
    counters = Counters()
    counters.orphan += 2
    counters.add("salted")
    assert counters.seen() == {"orphan": 2, "salted": 1}
    assert counters.as_dict()["gaps"] == 0
