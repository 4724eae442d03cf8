"""Bits: given out, retired, swept out of the entries, and given out again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.history import (
    DEVICE,
    HOST,
    KEY,
    OWN,
    REMOTE,
    A,
    B,
    C,
    History,
    cleared,
    embedded,
    evicted,
    rows,
)
from support.questions import content, sound
from warmindex.event import Document, PartitionKey, Tier
from warmindex.index import model as index_model
from warmindex.index.holders import Holders, each_bit
from warmindex.index.model import SWEEP_STEP_ENTRIES
from warmindex.index.partition import Partition


def keys(count: int, start: int = 0) -> list[bytes]:
    return [number.to_bytes(8, "big") for number in range(start, start + count)]


def held(holders: Holders, replica: str, tier: Tier = DEVICE, holds: int = 1) -> int:
    bit = holders.bit_of(replica, tier)
    holders.added(bit, holds)
    return bit


# ---- Holders alone -------------------------------------------------------------------------


def test_the_bits_of_a_mask():
    """Lowest first, however many there are."""
    assert list(each_bit(0)) == []
    assert list(each_bit(0b10110)) == [0b10, 0b100, 0b10000]
    assert list(each_bit(1 << 5000 | 1)) == [1, 1 << 5000]


def test_every_replica_and_tier_has_a_bit_of_its_own():
    """The same one each time, and none for who holds nothing."""
    holders = Holders()
    bits = [held(holders, replica, tier) for replica in ("a", "b") for tier in (DEVICE, HOST)]
    assert bits == [1, 2, 4, 8]
    assert holders.bit_of("b", DEVICE) == 4
    assert [holders.bits_of("a"), holders.bits_of("a", HOST)] == [3, 2]
    assert [holders.bits_of("a", REMOTE), holders.bits_of("c")] == [0, 0]
    assert [holders.name_of(bit) for bit in bits[:2]] == [("a", DEVICE), ("a", HOST)]
    assert list(holders.replicas()) == ["a", "b"]


def test_a_bit_is_free_again_with_its_last_hold():
    """Nothing carries it any more, so the next holder may have it at once."""
    holders = Holders()
    bit = held(holders, "a", holds=3)
    holders.removed(bit, 2)
    assert holders.holds_of("a") == 1
    holders.removed(bit, 1)
    assert holders.empty
    assert holders.bits_of("a") == 0
    assert held(holders, "b") == bit


def test_a_retired_bit_is_not_given_out_before_a_sweep_has_ended():
    """Not while it waits, not while it is swept; and what comes meanwhile waits its turn."""
    holders = Holders()
    first = held(holders, "a", holds=5)
    assert holders.retire("a") == 5
    assert (holders.empty, holders.retired, holders.live & first) == (True, True, 0)
    second = held(holders, "a")
    assert holders.begin_sweep() == first
    holders.retire("a")
    third = held(holders, "a")
    assert len({first, second, third}) == 3
    holders.end_sweep()
    assert held(holders, "b") == first
    assert holders.retired
    assert holders.begin_sweep() == second
    holders.end_sweep()
    assert not holders.retired
    assert list(holders.names_in(-1 & 0b111)) == [("b", DEVICE), ("a", DEVICE)]


def test_retiring_who_holds_nothing_retires_nothing():
    """A clear by a stranger costs no bit and no sweep."""
    holders = Holders()
    assert holders.retire("nobody") == 0
    assert not holders.retired


def test_bits_do_not_pile_up():
    """A thousand clears with their sweeps need no more bits than one."""
    history = History()
    for _ in range(1000):
        history.apply(embedded(A))
        history.apply(cleared())
        history.reclaim()
    history.apply(embedded(A))
    assert history.index.models["", "m"].holders.live <= 2


# ---- sweeps over entries -------------------------------------------------------------------


@pytest.fixture
def _steps_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_model, "SWEEP_STEP_ENTRIES", 1)


def test_a_step_touches_a_bounded_number_of_entries(monkeypatch: pytest.MonkeyPatch):
    """However many a clear has retired: no reader waits longer for a larger index."""
    touched: list[int] = []

    def counting(sweep: Callable[..., None]) -> Callable[..., None]:
        def counted(partition: Partition, hashes: list[bytes], retired: int) -> None:
            touched.append(len(hashes))
            sweep(partition, hashes, retired)

        return counted

    history = History(
        *(embedded(*keys(4000, start)) for start in range(0, 20000, 4000)),
        embedded(*keys(10), adapter_id="a"),
        cleared(),
    )
    monkeypatch.setattr(Partition, "sweep", counting(Partition.sweep))
    steps = 1
    while history.index.reclaim_step():
        steps += 1
        assert len(touched) <= steps
    assert max(touched) <= SWEEP_STEP_ENTRIES
    assert sum(touched) == 20010


def test_a_sweep_gives_all_memory_back():
    """Partitions and schemes without a hold are gone, and what others hold is untouched."""
    history = History(
        embedded(A, B, embeddings=rows([1], [2]), documents=[Document("x")] * 2),
        embedded(A, adapter_id="a"),
        embedded(A, hash_scheme="own2"),
        embedded(B, replica_id="r2"),
        cleared(),
    )
    before = content(history.index)
    assert history.index.reclaimable
    history.reclaim()
    assert not history.index.reclaimable
    assert content(history.index) == before
    schemes = history.index.models["", "m"].schemes
    assert {name: list(scope.partitions) for name, scope in schemes.items()} == {OWN: [""]}
    assert history.vector(B) == [2]
    sound(history.index)
    history.apply(evicted(B, replica_id="r2"))
    assert history.index.models["", "m"].schemes == {}


@pytest.mark.usefixtures("_steps_of_one")
@pytest.mark.parametrize("steps", range(8))
def test_a_partition_that_went_and_came_back_during_a_sweep_stays(steps: int):
    """The sweep knows the old one; the new one of its name is not what it came for."""
    history = History(
        embedded(A, B, C, adapter_id="a"),
        embedded(A, adapter_id="b", replica_id="r2"),
        embedded(B, adapter_id="b"),
        cleared(),
    )
    for _ in range(steps):
        history.index.reclaim_step()
    for replica in ("r1", "r2"):
        history.apply(evicted(A, adapter_id="b", replica_id=replica))
        history.apply(embedded(B, adapter_id="b", replica_id=replica))
        history.apply(evicted(B, adapter_id="b", replica_id=replica))
    history.apply(embedded(C, adapter_id="b", replica_id="r3"))
    history.reclaim()
    assert set(content(history.index)) == {(KEY._replace(adapter_id="b"), C)}
    sound(history.index)


@pytest.mark.usefixtures("_steps_of_one")
@pytest.mark.parametrize("steps", range(12))
def test_a_clear_during_a_sweep_is_as_good_as_any(steps: int):
    """What it retires waits for the next sweep, and is given to nobody before."""
    history = History(embedded(A, B, C), embedded(A, B, C, adapter_id="a"), cleared())
    history.apply(embedded(A, B, C))
    for _ in range(steps):
        history.index.reclaim_step()
    history.apply(cleared())
    history.apply(embedded(B, replica_id="r2"))
    for _ in range(20):
        assert {place.content_hash for place in content(history.index)} == {B}
        assert {hold.replica_id for hold in history.holds(B)} == {"r2"}
        history.index.reclaim_step()
    assert not history.index.reclaimable
    sound(history.index)


@pytest.mark.parametrize("reclaimed", [False, True])
def test_a_holder_that_was_cleared_holds_anew(reclaimed: bool):
    """Its new holds are counted and removed as if there had been none before."""
    history = History(embedded(A, B), embedded(A, replica_id="r2"), cleared())
    if reclaimed:
        history.reclaim()
    assert history.apply(embedded(A, B, C)).holds_added == 3
    assert history.index.models["", "m"].holders.holds_of("r1") == 3
    assert history.apply(evicted(A, B)).holds_removed == 2
    assert set(content(history.index)) == {(KEY, A), (KEY, C)}


def test_sweeps_go_from_model_to_model():
    """Each has bits of its own, and all of them are done in the end."""
    history = History(
        *(embedded(A, model_id=model) for model in ("m1", "m2", "m3")),
        *(cleared(model_id=model) for model in ("m1", "m3")),
    )
    history.reclaim()
    assert {place.key.model_id for place in content(history.index)} == {"m2"}
    assert history.index.partition(PartitionKey("", "m1", OWN, "")) is None
