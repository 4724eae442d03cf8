"""One call to a backend: its texts go out in batches, and each text has one end.

    cut -> queue -> a few workers:  acquire a replica -> ask -> judge -> decide
                                        ^                                  |
                                        +--------- RETRY, SPLIT, LEAVE ----+
                                                                           |
    ledger: vectors by place <--------------------------- DONE             |
            failures by place <------------------------------------- FAIL -+

Halves of a batch are asked one after the other, not at once: a backend that refuses
everything is found out after a few requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final

from warmindex.embedders.errors import BackendUnavailableError, DeadlinePassedError
from warmindex.embedders.over_http import batches, retry
from warmindex.embedders.over_http.answers import Verdict
from warmindex.embedders.over_http.backend import LOGGER, Answer, Backend, Wording
from warmindex.embedders.over_http.decisions import Action, decide, error_of, tries_of_half
from warmindex.embedders.over_http.ledger import Ledger
from warmindex.embedders.over_http.replicas import Replica

Places = tuple[int, ...]

_RESTING: Final = frozenset({Verdict.BUSY, Verdict.AWAY, Verdict.SILENT})
_WRONG: Final = frozenset({Verdict.BROKEN, Verdict.BAD_ANSWER})


class Call:
    """One list of distinct, readable texts on its way. Run once."""

    def __init__(
        self,
        backend: Backend,
        texts: Sequence[str],
        wording: Wording,
        deadline: float | None,
    ) -> None:
        self._backend = backend
        self._fleet = backend.fleet
        self._wording = wording
        self._deadline = deadline
        self._policy = retry.QUERY if wording.is_question else retry.BUILD
        self._budget = retry.RetryBudget(self._policy)
        self._texts = [backend.dialect.prompted(text, wording) for text in texts]
        self._sizes = [batches.json_bytes(text) for text in self._texts]
        self._left: set[Replica] = set()
        self._ledger = Ledger(backend.dialect.dimensions)

    async def run(self) -> Ledger:
        """Ask until each text has its vector or its failure.

        Raises an EmbedderError where no text has a vector for a reason that is not in the
        texts, or where vectors came that cannot be of one model.
        """
        replica_count = len(self._usable())
        jobs = deque(batches.cut(self._sizes, self._backend.limits, replica_count))
        lanes = replica_count * self._fleet.in_flight_max
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(jobs), lanes)):
                group.create_task(self._work(jobs))
        self._ledger.check()
        return self._ledger

    def _usable(self) -> list[Replica]:
        return [replica for replica in self._fleet.usable() if replica not in self._left]

    async def _work(self, jobs: deque[Places]) -> None:
        while jobs:
            await self._solve(jobs.popleft(), 0)

    async def _solve(self, places: Places, tries: int) -> None:
        """See a batch to its end. `tries` is how many requests were made for it."""
        while self._ledger.ended is None:
            if not batches.fits(places, self._sizes, self._backend.limits):
                for half in batches.halves(places, self._sizes):
                    await self._solve(half, tries)
                return
            answer = await self._ask(places)
            if answer is None:
                continue
            tries += 1
            if await self._follow(places, answer, tries):
                return
        self._ledger.give_up(places)

    async def _follow(self, places: Places, answer: Answer, tries: int) -> bool:
        """Do what an answer calls for; True where that was the batch's end."""
        if answer.rows is not None:
            await self._accept(places, answer, tries)
            return True
        verdict = answer.judgement.verdict
        replica_count = len(self._usable())
        action = decide(verdict, len(places), tries, self._policy, replica_count)
        self._learn(places, answer, action)
        match action:
            case Action.SPLIT:
                for half in batches.halves(places, self._sizes):
                    await self._solve(half, tries_of_half(verdict, tries, len(half)))
            case Action.FAIL:
                self._ledger.fail(places, answer.judgement, answer.replica.name)
            case Action.RETRY:
                await self._pause(answer, tries)
        return action in {Action.SPLIT, Action.FAIL}

    async def _ask(self, places: Places) -> Answer | None:
        """One request; None where there was none to be made, and the call has ended."""
        try:
            replica = await self._fleet.acquire(
                without=self._left,
                deadline=self._deadline,
                rest_s_max=self._policy.rest_s_max,
                is_question=self._wording.is_question,
            )
        except BackendUnavailableError as error:
            self._ledger.end(error)
            return None
        if replica is None:
            self._ledger.end()
            return None
        try:
            texts = [self._texts[place] for place in places]
            timeout_s = self._backend.request_timeout_s
            if self._deadline is not None:
                timeout_s = max(0.0, min(timeout_s, self._deadline - _now()))
            answer = await self._backend.ask(replica, texts, self._wording, timeout_s)
            self._note(answer)
            return answer
        finally:
            await self._fleet.release(replica)

    def _note(self, answer: Answer) -> None:
        """Bring the replica's state up to date, before another task can acquire it."""
        replica, judgement = answer.replica, answer.judgement
        if answer.rows is not None:
            replica.well(self._fleet.in_flight_max)
            self._budget.earn()
        elif judgement.verdict is Verdict.SILENT and self._is_late(_now()):
            # It was given less time than usual: no fault of its own.
            self._ledger.end(DeadlinePassedError("the deadline came first", backend=replica.name))
        elif judgement.verdict in _RESTING or (
            # The next request is better made elsewhere.
            judgement.verdict in _WRONG and len(self._usable()) > 1
        ):
            if judgement.verdict is Verdict.BUSY:
                replica.busy()
            replica.rest(_now(), judgement.retry_after_s, self._policy, self._backend.chance)

    def _is_late(self, moment: float) -> bool:
        return self._deadline is not None and moment >= self._deadline

    def _learn(self, places: Places, answer: Answer, action: Action) -> None:
        """Keep what the answer says about the backend, and say it in the log."""
        backend, judgement, name = self._backend, answer.judgement, answer.replica.name
        if judgement.verdict is Verdict.TOO_MANY:
            backend.limits = batches.with_fewer_texts(
                backend.limits, len(places), judgement.texts_max
            )
        elif judgement.verdict is Verdict.BODY_TOO_BIG and len(places) > 1:
            total = sum(self._sizes[place] for place in places)
            backend.limits = batches.with_fewer_bytes(backend.limits, total)
        if action is Action.LEAVE:
            self._left.add(answer.replica)
            error = error_of(judgement, name)
            self._ledger.leave(error)
            LOGGER.warning("%s", error)
        elif (judgement.retry_after_s or 0) > retry.RETRY_AFTER_S_MAX:
            LOGGER.warning(
                "%s asks for %.0f s of rest; it gets %.0f s",
                name,
                judgement.retry_after_s,
                retry.RETRY_AFTER_S_MAX,
            )
        else:
            LOGGER.info("%s: %s (%s)", name, judgement.verdict.value, judgement.words)

    async def _pause(self, answer: Answer, tries: int) -> None:
        """Before a retry: pay for it, and wait where the replica does not rest anyway."""
        judgement = answer.judgement
        if not self._budget.spend():
            self._ledger.end(error_of(judgement, answer.replica.name))
        elif judgement.verdict in _WRONG and len(self._usable()) == 1:
            chance, asked_s = self._backend.chance, judgement.retry_after_s
            if asked_s is None:
                wait_s = retry.backoff_s(tries - 1, self._policy, chance)
            else:
                wait_s = retry.followed_wait_s(asked_s, chance)
            if self._is_late(_now() + wait_s):
                self._ledger.end(error_of(judgement, answer.replica.name))
            else:
                await asyncio.sleep(wait_s)

    async def _accept(self, places: Places, answer: Answer, tries: int) -> None:
        assert answer.rows is not None  # noqa: S101 - its caller has looked
        name = answer.replica.name
        bad = self._ledger.accept(places, answer.rows, name)
        for place, failure in bad.items():
            # Alone and once more: some servers answer zeros or NaN only under load.
            if len(places) > 1 or tries < self._policy.wrong_answers_max:
                await self._solve((place,), self._policy.wrong_answers_max - 1)
            else:
                self._ledger.fail_vector(place, failure, name)


def _now() -> float:
    return asyncio.get_running_loop().time()
