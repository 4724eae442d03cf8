"""A mirror and whatever a server may say: resets, breaks, what it does not understand."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from support.numbered import OWN, embedded, key, row
from support.questions import content
from support.watching import until
from warmindex import mirror as mirror_module
from warmindex.answers import ServerInfo
from warmindex.errors import InvalidError, UnauthenticatedError, UnavailableError
from warmindex.event import PartitionKey
from warmindex.index import Index
from warmindex.index.index import Query
from warmindex.index.route import Reason as RouteReason
from warmindex.index.selection import Selection
from warmindex.mirror import Lag, Mirror
from warmindex.watch_stream import StepKind, WatchStep

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEY = PartitionKey("", "m", OWN, "")
WAIT_S = 30


class Script:
    """A source that says what it is told to: one list of steps a watch, then silence.

    Where there is an event among the steps, it waits for that.
    """

    def __init__(
        self, *watches: list[WatchStep | Exception | asyncio.Event], revision: int = 0
    ) -> None:
        self.watches = list(watches)
        self.cursors: list[str] = []
        self.info = ServerInfo("", "", revision, "memory", 0)

    async def server_info(self) -> ServerInfo:
        return self.info

    async def watch(
        self, _selection: Selection, cursor: str = ""
    ) -> AsyncGenerator[WatchStep, None]:
        self.cursors.append(cursor)
        steps = self.watches.pop(0) if self.watches else []
        for step in steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
            else:
                yield step
        if not self.watches:
            await asyncio.Event().wait()


def reset(revision: int) -> WatchStep:
    return WatchStep(StepKind.RESET, revision, "")


def live(revision: int) -> WatchStep:
    return WatchStep(StepKind.LIVE, revision, f"c{revision}")


def part(revision: int, *numbers: int) -> WatchStep:
    return WatchStep(StepKind.CHANGE, revision, "", embedded(*numbers))


def change(revision: int, *numbers: int, **fields: Any) -> WatchStep:
    return WatchStep(StepKind.CHANGE, revision, f"c{revision}", embedded(*numbers, **fields))


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_module, "RETRY_S_FIRST", 0.001)
    monkeypatch.setattr(mirror_module, "RETRY_S_MAX", 0.01)


def keys_of(index: Index) -> set[bytes]:
    return {place.content_hash for place in content(index)}


async def test_the_old_copy_serves_until_the_new_one_is_whole():
    """A reset builds beside it; a break in between keeps it, and its cursor."""
    gate, gone = asyncio.Event(), UnavailableError("gone")
    script = Script(
        [reset(5), part(5, 1), live(5)],
        [reset(9), part(9, 2), gate, gone],
        [live(5), change(6, 3)],
    )
    async with Mirror(script) as mirror:
        await mirror.ready(WAIT_S)
        await until(lambda: mirror.resets >= 2)
        assert keys_of(mirror._index) == {key(1)}
        gate.set()
        await mirror.reached(6, WAIT_S)
        assert keys_of(mirror._index) == {key(1), key(3)}
        assert script.cursors == ["", "c5", "c5"]
        assert mirror.resets == 2


@pytest.mark.parametrize(
    "strange",
    [
        WatchStep(StepKind.UNKNOWN, 6, "c6"),
        change(6, 2, embeddings=row(1, 2, 3)),
    ],
    ids=["an unknown step", "a change that does not fit"],
)
async def test_what_it_does_not_understand_makes_it_begin_anew(strange: WatchStep):
    """It trusts its copy no longer, drops its cursor, and takes a snapshot."""
    first = change(5, 1, embeddings=row(1, 2))._replace(cursor="")
    begin, go_on = asyncio.Event(), asyncio.Event()
    script = Script(
        [reset(5), first, live(5), begin, strange], [go_on, reset(7), part(7, 4), live(7)]
    )
    async with Mirror(script) as mirror:
        await mirror.ready(WAIT_S)
        assert keys_of(mirror._index) == {key(1)}
        begin.set()
        await until(lambda: len(script.cursors) >= 2)
        assert not mirror.usable
        assert not mirror.fetch(KEY, [key(1)]).rows
        go_on.set()
        await mirror.reached(7, WAIT_S)
        assert script.cursors == ["", ""]
        assert keys_of(mirror._index) == {key(4)}


async def test_a_watch_that_begins_without_a_beginning_is_not_trusted():
    """A change before KIND_RESET or KIND_LIVE is none that a copy can be made of."""
    script = Script([change(5, 1)], [reset(6), live(6)])
    async with Mirror(script) as mirror:
        await mirror.reached(6, WAIT_S)
        assert keys_of(mirror._index) == set()


async def test_a_refusal_is_told_and_tried_again():
    """Whatever the error: someone may put it right."""
    script = Script(
        [UnauthenticatedError("no token")], [InvalidError("no")], [reset(1), part(1, 1), live(1)]
    )
    mirror = Mirror(script)
    assert mirror.problem == "not started"
    async with mirror:
        problems = set()
        while not mirror.usable:
            await asyncio.sleep(0)
            problems.add(mirror.problem)
        assert {"no token", "no"} <= problems
        assert mirror.problem == ""


async def test_a_server_that_says_nothing_is_taken_for_dead(monkeypatch: pytest.MonkeyPatch):
    """However open the connection looks: the watch goes on elsewhere."""
    monkeypatch.setattr(mirror_module, "SILENCE_S_MAX", 0.05)
    script = Script([reset(1), part(1, 1), live(1)])
    async with Mirror(script) as mirror:
        await mirror.ready(WAIT_S)
        await until(lambda: len(script.cursors) >= 3)
        assert "said nothing" in mirror.problem
        assert script.cursors[1:3] == ["c1", "c1"]
        assert mirror.usable


async def test_a_mirror_says_how_far_it_may_be_behind():
    """Nothing while it waits for changes; what it knows of, and since when, where it does not."""
    now = 100.0
    script = Script([reset(5), live(5), UnavailableError("gone")], [], revision=9)
    mirror = Mirror(script, clock=lambda: now)
    assert mirror.lag is None
    async with mirror:
        await mirror.ready(WAIT_S)
        await until(lambda: len(script.cursors) >= 2)
        now += 7
        assert mirror.lag == Lag(revisions=4, seconds=7)
    script = Script([reset(9), live(9)], revision=9)
    async with Mirror(script, clock=lambda: now) as mirror:
        await mirror.ready(WAIT_S)
        for _ in range(5):
            await asyncio.sleep(0)
        now += 7
        assert mirror.lag == Lag(0, 0.0)


async def test_waiting_ends_when_time_is_up():
    """For readiness, and for a revision."""
    async with Mirror(Script()) as mirror:
        with pytest.raises(TimeoutError):
            await mirror.ready(0.01)
        with pytest.raises(TimeoutError):
            await mirror.reached(1, 0.01)
        assert not mirror.usable
        assert mirror.fetch(KEY, [key(1)]).found == [False]
        assert mirror.search(KEY, Query(text="x")) == []
        assert mirror.lookup(KEY, {OWN: [key(1)]}).reason is RouteReason.UNKNOWN_TENANT
