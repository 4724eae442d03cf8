"""The claims table against a plain model, and the calls that wait for its keys."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from warmindex.event import PartitionKey
from warmindex_server.claims.base import Claimant, Standing
from warmindex_server.claims.table import ClaimTable
from warmindex_server.claims.waiters import Waiter, Waiters

KEYS = (PartitionKey("", "m", "text-sha256", ""), PartitionKey("", "m", "text-sha256", "lora"))
HASHES = tuple(bytes([number]) * 32 for number in range(6))
CLAIMANTS = ("a", "b", "c")
CLAIMS_MAX = 5

keys = st.sampled_from(KEYS)
hash_lists = st.lists(st.sampled_from(HASHES), max_size=6, unique=True)
claimants = st.sampled_from(CLAIMANTS)


class ClaimMachine(RuleBasedStateMachine):
    """A table, a dictionary that must agree with it, and calls that wait for its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.table = ClaimTable(CLAIMS_MAX)
        self.waiters = Waiters(self.table.claimed)
        # (key, hash) -> who holds it, until when
        self.model: dict[tuple[PartitionKey, bytes], tuple[str, float]] = {}
        self.waiting: list[Waiter] = []
        self.freed_since: dict[Waiter, set[bytes]] = {}

    # ---- the model ---------------------------------------------------------------------

    def holder(self, key: PartitionKey, content_hash: bytes) -> str | None:
        claimant_id, until_s = self.model.get((key, content_hash), (None, 0.0))
        return claimant_id if until_s > self.now_s else None

    def standing(self, key: PartitionKey, content_hash: bytes, claimant_id: str) -> Standing:
        holder = self.holder(key, content_hash)
        if holder is None:
            return Standing.NOBODY
        return Standing.MINE if holder == claimant_id else Standing.OTHERS

    # ---- what happens ------------------------------------------------------------------

    @rule(
        key=keys,
        hashes=hash_lists,
        claimant_id=claimants,
        ttl_s=st.sampled_from((1.0, 5.0, 30.0)),
        most=st.integers(1, 6),
    )
    def take(
        self, key: PartitionKey, hashes: list[bytes], claimant_id: str, ttl_s: float, most: int
    ) -> None:
        before = {each: self.standing(key, each, claimant_id) for each in hashes}
        taken = self.table.take(key, hashes, Claimant(claimant_id, ttl_s, most), self.now_s)
        fresh = 0
        for each, standing in zip(hashes, taken, strict=True):
            if before[each] is not Standing.NOBODY:
                assert standing is before[each]
            elif standing is Standing.MINE:
                fresh += 1
            else:
                # Only a limit keeps a free key from the one who asks for it.
                assert fresh == most or len(self.table) == CLAIMS_MAX
            if standing is Standing.MINE:
                self.model[key, each] = (claimant_id, self.now_s + ttl_s)
        assert fresh <= most

    @rule(key=keys, hashes=hash_lists, claimant_id=claimants)
    def release(self, key: PartitionKey, hashes: list[bytes], claimant_id: str) -> None:
        expected = [each for each in hashes if self.holder(key, each) == claimant_id]
        assert self.table.release(key, hashes, claimant_id, self.now_s) == expected
        self.forget(key, expected)
        self.free(key, expected)

    @rule(key=keys, hashes=hash_lists)
    def vectors_come(self, key: PartitionKey, hashes: list[bytes]) -> None:
        ended = self.table.end(key, hashes)
        assert set(ended) >= {each for each in hashes if self.holder(key, each)}
        self.forget(key, hashes)
        self.waiters.ended(key, ended)

    @rule(seconds=st.sampled_from((0.5, 1.0, 4.0, 26.0)), looked=st.booleans())
    def time_passes(self, seconds: float, looked: bool) -> None:
        self.now_s += seconds
        if looked:
            self.look_at_the_clock()

    def look_at_the_clock(self) -> None:
        for key, hashes in self.table.expire(self.now_s).items():
            assert hashes
            assert all(self.holder(key, each) is None for each in hashes)
            self.forget(key, hashes)
            self.free(key, hashes)

    def forget(self, key: PartitionKey, hashes: list[bytes]) -> None:
        for each in hashes:
            self.model.pop((key, each), None)

    def free(self, key: PartitionKey, hashes: list[bytes]) -> None:
        self.waiters.freed(key, hashes)
        for waiter in self.waiting:
            if waiter.key == key:
                self.freed_since[waiter].update(set(hashes) & set(waiter.hashes))

    # ---- waiting -----------------------------------------------------------------------

    @rule(key=keys, hashes=hash_lists, wants=st.booleans())
    def wait(self, key: PartitionKey, hashes: list[bytes], wants: bool) -> None:
        waiter = Waiter(key, wants=wants)
        self.waiters.join(waiter)
        self.waiters.start(waiter, [each for each in hashes if self.holder(key, each)])
        self.waiting.append(waiter)
        self.freed_since[waiter] = set()

    @rule(data=st.data())
    def go_away(self, data: st.DataObject) -> None:
        if self.waiting:
            waiter = data.draw(st.sampled_from(self.waiting))
            self.waiters.leave(waiter)
            self.waiting.remove(waiter)

    # ---- what must hold ----------------------------------------------------------------

    @invariant()
    def the_table_agrees(self) -> None:
        for key in KEYS:
            looked = self.table.look(key, HASHES, self.now_s)
            held = [self.holder(key, each) is not None for each in HASHES]
            assert [standing is Standing.OTHERS for standing in looked] == held
        assert len(self.table) <= CLAIMS_MAX

    @invariant()
    def nobody_sleeps_on(self) -> None:
        """Who is not woken has a key to wait for, and none has become free that it wants."""
        self.look_at_the_clock()
        for waiter in self.waiting:
            if not waiter.woken.is_set():
                assert any(self.holder(waiter.key, each) for each in waiter.hashes)
                assert not (waiter.wants and self.freed_since[waiter])

    def teardown(self) -> None:
        for waiter in self.waiting:
            self.waiters.leave(waiter)
        assert self.waiters.empty
        self.now_s += 1000
        self.table.expire(self.now_s)
        assert len(self.table) == 0
        assert self.table.next_s is None
        assert not self.table._partitions


def test_claims_are_as_in_the_plain_model():
    """Whatever is taken, released, published and forgotten, each key has one claimant."""
    run_state_machine_as_test(
        ClaimMachine, settings=settings(max_examples=100, stateful_step_count=40, deadline=None)
    )


def test_keys_that_get_free_go_to_who_came_first():
    """Those who want a key wake in the order in which they came."""
    order: list[str] = []
    waiters = Waiters(lambda _key: HASHES)

    async def caller(name: str) -> None:
        waiter = Waiter(KEYS[0], wants=True)
        waiters.join(waiter)
        waiters.start(waiter, HASHES)
        await waiter.woken.wait()
        order.append(name)
        waiters.leave(waiter)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for name in ("first", "second", "third"):
                group.create_task(caller(name))
            await asyncio.sleep(0)
            waiters.freed(KEYS[0], HASHES[:1])

    asyncio.run(scenario())
    assert order == ["first", "second", "third"]
    assert waiters.empty


def test_renewals_leave_nothing_behind():
    """A claim that is renewed again and again costs no more than one that is not."""
    table = ClaimTable()
    for step in range(20_000):
        ttl_s = 600.0 if step % 2 else 1.0
        table.take(KEYS[0], HASHES, Claimant("a", ttl_s, 10), float(step) / 1000)
    assert len(table) == len(HASHES)
    assert len(table._deadlines._heap) < 5_000
