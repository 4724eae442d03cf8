"""The replicas of one backend: which may be asked, how much at once, and from when on.

    free       may be asked: fewer requests in flight than its limit
    cooling    asked for rest, or did not answer: not before a moment
    excluded   its identity could not be read when the others' could: not at all, until it
               has been, since it may serve another model

A replica's limit of requests in flight halves when it is busy and grows back as it answers.
State of one event loop; nothing here waits except `Fleet.acquire`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import httpx

from warmindex.embedders.errors import BackendUnavailableError, DeadlinePassedError
from warmindex.embedders.over_http import retry

# How many questions may go to a replica on top of what builds have in flight: a question
# must not wait for a build.
_QUESTIONS_EXTRA: Final = 4


@dataclass(eq=False)
class Replica:
    """One base URL. `name` is what people may see of it."""

    name: str
    url: httpx.URL
    in_flight: int = 0
    limit: float = 1.0
    not_before: float = 0.0
    streak: int = 0
    excluded: bool = False
    # How often it has given vectors, and how many of those a reading of its identity has
    # covered since.
    answers: int = 0
    verified_answers: int = 0
    # How often it was chosen, so that equals take turns.
    turns: int = field(default=0, repr=False)

    def rest(
        self, now: float, asked_s: float | None, policy: retry.RetryPolicy, chance: Random
    ) -> None:
        """Ask nothing of it for a while: as long as it asked for, else longer each time."""
        if now < self.not_before and asked_s is None:
            return  # One of several answers to the same moment; it rests already.
        if asked_s is None:
            wait = retry.backoff_s(self.streak, policy, chance)
            self.streak += 1
        else:
            wait = retry.followed_wait_s(asked_s, chance)
        self.not_before = max(self.not_before, now + wait)

    def well(self, in_flight_max: int) -> None:
        """It has answered."""
        self.streak = 0
        self.answers += 1
        self.limit = min(float(in_flight_max), self.limit + 1 / self.limit)

    def busy(self) -> None:
        """It has too much to do."""
        self.limit = max(1.0, self.limit / 2)


class Fleet:
    """All replicas of one backend, shared by the calls of one embedder."""

    def __init__(self, replicas: Sequence[Replica], in_flight_max: int) -> None:
        self.replicas = list(replicas)
        self.in_flight_max = 0
        self._changed = asyncio.Condition()
        self.set_in_flight_max(in_flight_max)

    def set_in_flight_max(self, in_flight_max: int) -> None:
        """How many requests of builds each replica may have at once; starts each at that."""
        if in_flight_max == self.in_flight_max:
            return  # What was learnt about how busy each is stands.
        self.in_flight_max = max(1, in_flight_max)
        for replica in self.replicas:
            replica.limit = float(self.in_flight_max)

    def usable(self) -> list[Replica]:
        """The replicas that may be asked at all; all of them where that would be none."""
        return [replica for replica in self.replicas if not replica.excluded] or self.replicas

    async def acquire(
        self,
        *,
        without: Collection[Replica],
        deadline: float | None,
        rest_s_max: float,
        is_question: bool = False,
    ) -> Replica | None:
        """The least busy free replica, once there is one; None where none is left to wait for.

        Raises BackendUnavailableError, with the wait, where all rest past the deadline or for
        longer than `rest_s_max`, and DeadlinePassedError when the deadline comes. What is
        acquired must be released.
        """
        loop = asyncio.get_running_loop()
        extra = _QUESTIONS_EXTRA if is_question else 0
        async with self._changed:
            while True:
                now = loop.time()
                usable = [replica for replica in self.usable() if replica not in without]
                if not usable:
                    return None
                _check_waits(usable, now, deadline, rest_s_max)
                awake = [replica for replica in usable if replica.not_before <= now]
                free = [replica for replica in awake if replica.in_flight < replica.limit + extra]
                if free:
                    chosen = min(free, key=lambda replica: (replica.in_flight, replica.turns))
                    chosen.in_flight += 1
                    chosen.turns += 1
                    return chosen
                moments = [r.not_before for r in usable if r.not_before > now]
                moments += [] if deadline is None else [deadline]
                await self._wait_until(min(moments, default=None))

    async def release(self, replica: Replica) -> None:
        """Give a replica back, after its state has been brought up to date."""
        replica.in_flight -= 1
        async with self._changed:
            self._changed.notify_all()

    async def _wait_until(self, moment: float | None) -> None:
        try:
            async with asyncio.timeout_at(moment):
                await self._changed.wait()
        except TimeoutError:
            pass


def _check_waits(
    usable: Sequence[Replica], now: float, deadline: float | None, rest_s_max: float
) -> None:
    if deadline is not None and now >= deadline:
        raise DeadlinePassedError("the deadline came before an answer")
    rest_s = min(replica.not_before for replica in usable) - now
    patience_s = rest_s_max if deadline is None else min(rest_s_max, deadline - now)
    if rest_s >= patience_s:
        raise BackendUnavailableError(
            f"rests for {rest_s:.1f} s, and this call waits for {patience_s:.1f} s at most",
            backend=", ".join(replica.name for replica in usable),
            retry_after_s=rest_s,
        )
