"""One call to a backend: its texts go out in batches, and each text has one end.

    cut -> queue -> a few workers:  acquire a replica -> ask -> judge -> decide
                                        ^                                  |
                                        +--------- RETRY, SPLIT, LEAVE ----+
                                                                           |
    vectors by place <----------------------------------- DONE             |
    failures by place <--------------------------------------------- FAIL -+

Halves of a batch are asked one after the other, not at once: a backend that refuses
everything is found out after a few requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from warmindex.embedders import batches, http, retry
from warmindex.embedders.answers import Judgement, Verdict, judge
from warmindex.embedders.backend import LOGGER, Backend, Wording
from warmindex.embedders.base import FailureKind, FloatVector, TextFailure
from warmindex.embedders.decisions import (
    Action,
    decide,
    error_of,
    failure_kind,
    lies_in_text,
    tries_of_halves,
)
from warmindex.embedders.decode import Rows
from warmindex.embedders.errors import (
    BackendUnavailableError,
    BadAnswerError,
    DeadlinePassedError,
    EmbedderError,
    MisconfiguredError,
)
from warmindex.embedders.replicas import Replica
from warmindex.embedders.vectors import bad_rows

# So many texts refused one by one, and none accepted: it is not the texts.
_HOPELESS: Final = 8

Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request came to: rows where the verdict is DONE."""

    replica: Replica
    judgement: Judgement
    rows: Rows | None = None


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
        # Why nothing more is asked; why texts failed that are likely not guilty themselves.
        self._ended: EmbedderError | None = None
        self._causes: list[EmbedderError] = []
        self._wrong: EmbedderError | None = None
        self._model = ""
        self._failed_alone = 0
        self.vectors: dict[int, FloatVector] = {}
        self.failures: dict[int, TextFailure] = {}

    async def run(self) -> None:
        """Ask until each text has its vector or its failure.

        Raises an EmbedderError where no text has a vector for a reason that is not in the
        texts, or where vectors came that cannot be of one model.
        """
        usable = self._fleet.usable()
        jobs = deque(batches.cut(self._sizes, self._backend.limits, len(usable)))
        lanes = len(usable) * self._fleet.in_flight_max
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(jobs), lanes)):
                group.create_task(self._work(jobs))
        if self._wrong is not None:
            raise self._wrong
        if not self.vectors and self._causes:
            raise self._ended or self._causes[-1]

    async def _work(self, jobs: deque[Places]) -> None:
        while jobs:
            await self._solve(jobs.popleft(), 0)

    async def _solve(self, places: Places, tries: int) -> None:
        while self._ended is None:
            if not batches.fits(places, self._sizes, self._backend.limits):
                return await self._solve_halves(places, tries)
            answer = await self._ask(places)
            if answer is None:
                continue
            tries += 1
            if answer.rows is not None:
                return await self._accept(places, answer, tries)
            verdict = answer.judgement.verdict
            action = decide(verdict, len(places), tries, self._policy)
            self._learn(places, answer, action)
            if action is Action.SPLIT:
                return await self._solve_halves(places, tries_of_halves(verdict, tries))
            if action is Action.FAIL:
                return self._fail(places, answer)
            if action is Action.RETRY:
                await self._pause(answer, tries)
        self._give_up(places, self._ended)

    async def _solve_halves(self, places: Places, tries: int) -> None:
        for half in batches.halves(places, self._sizes):
            await self._solve(half, tries)

    async def _ask(self, places: Places) -> Answer | None:
        """One request; None where there was none to be made, and `_ended` says why."""
        try:
            replica = await self._fleet.acquire(
                without=self._left,
                deadline=self._deadline,
                is_question=self._wording.is_question,
            )
        except BackendUnavailableError as error:
            self._ended = error
            return None
        if replica is None:
            self._ended = self._causes[-1]
            return None
        try:
            answer = await self._exchange(replica, [self._texts[place] for place in places])
            self._note(answer)
            return answer
        finally:
            await self._fleet.release(replica)

    async def _exchange(self, replica: Replica, texts: list[str]) -> Answer:
        backend, dialect = self._backend, self._backend.dialect
        try:
            reply = await http.exchange(
                backend.client,
                "POST",
                dialect.embed_url(replica),
                content=dialect.body(texts, self._wording),
                timeout_s=self._timeout_s(),
            )
            judgement = judge(
                reply.status,
                reply.headers,
                reply.body,
                now_unix_s=reply.received_unix_s,
                sent_texts=texts,
                dimensions_asked=dialect.dimensions > 0,
                secrets=backend.secrets,
            )
            if judgement.verdict is not Verdict.DONE:
                return Answer(replica, judgement)
            return Answer(replica, judgement, dialect.rows(reply.body, len(texts)))
        except http.UnansweredError as error:
            return Answer(replica, Judgement(error.verdict, error.words))
        except BadAnswerError as error:
            return Answer(replica, Judgement(Verdict.BAD_ANSWER, error.message))

    def _timeout_s(self) -> float:
        timeout = self._backend.request_timeout_s
        if self._deadline is None:
            return timeout
        return max(0.0, min(timeout, self._deadline - asyncio.get_running_loop().time()))

    def _note(self, answer: Answer) -> None:
        """Bring the replica's state up to date, before another task can acquire it."""
        replica, judgement = answer.replica, answer.judgement
        now = asyncio.get_running_loop().time()
        if answer.rows is not None:
            replica.well(self._fleet.in_flight_max)
            self._budget.earn()
        elif judgement.verdict is Verdict.SILENT and self._is_late(now):
            # It was not silent for longer than the caller could wait: no fault of its own.
            self._ended = DeadlinePassedError("the deadline came first", backend=replica.name)
        elif judgement.verdict in {Verdict.BUSY, Verdict.AWAY, Verdict.SILENT}:
            if judgement.verdict is Verdict.BUSY:
                replica.busy()
            replica.rest(now, judgement.retry_after_s, self._policy, self._backend.chance)

    def _is_late(self, now: float) -> bool:
        return self._deadline is not None and now >= self._deadline

    def _learn(self, places: Places, answer: Answer, action: Action) -> None:
        """Keep what the answer says about the backend, for later batches and calls."""
        backend, judgement = self._backend, answer.judgement
        name = answer.replica.name
        if judgement.verdict is Verdict.TOO_MANY:
            backend.limits = batches.lowered(backend.limits, places, judgement.texts_max)
        elif judgement.verdict is Verdict.BODY_TOO_BIG and len(places) > 1:
            half = sum(self._sizes[place] for place in places) // 2
            backend.limits = batches.Limits(
                backend.limits.texts, min(backend.limits.body_bytes, half)
            )
        if action is Action.LEAVE:
            self._left.add(answer.replica)
            error = error_of(judgement, name)
            self._causes.append(error)
            LOGGER.warning("%s", error)
        elif (judgement.retry_after_s or 0) > retry.RETRY_AFTER_S_MAX:
            LOGGER.warning(
                "%s asks for %.0f s of rest; asking again in %.0f s",
                name,
                judgement.retry_after_s,
                retry.RETRY_AFTER_S_MAX,
            )
        else:
            LOGGER.info("%s: %s (%s)", name, judgement.verdict.value, judgement.words)

    async def _pause(self, answer: Answer, tries: int) -> None:
        """Before a retry: pay for it, and wait where the replica does not rest anyway."""
        if not self._budget.spend():
            self._ended = error_of(answer.judgement, answer.replica.name)
        elif answer.judgement.verdict in {Verdict.BROKEN, Verdict.BAD_ANSWER}:
            asked = answer.judgement.retry_after_s
            chance = self._backend.chance
            wait = (
                retry.backoff_s(tries - 1, self._policy, chance)
                if asked is None
                else retry.followed_wait_s(asked, chance)
            )
            now = asyncio.get_running_loop().time()
            if self._is_late(now + wait):
                self._ended = error_of(answer.judgement, answer.replica.name)
            else:
                await asyncio.sleep(wait)

    async def _accept(self, places: Places, answer: Answer, tries: int) -> None:
        assert answer.rows is not None  # noqa: S101 - its caller has looked
        rows, name = answer.rows, answer.replica.name
        if self._wrong is None:
            self._wrong = self._mismatch(rows, name)
        if self._wrong is not None:
            self._ended = self._wrong
            return
        bad = bad_rows(rows.matrix)
        for row, place in enumerate(places):
            if row not in bad:
                self.vectors[place] = rows.matrix[row]
        for row in bad:
            # Alone, and once more: some servers answer zeros or NaN only under load.
            if tries < self._policy.wrong_answers_max and self._budget.spend():
                await self._solve((places[row],), tries)
            elif len(places) > 1:
                await self._solve((places[row],), tries - 1)
            else:
                self._fail_alone(places[row], bad[row], BadAnswerError(bad[row].message))

    def _mismatch(self, rows: Rows, name: str) -> EmbedderError | None:
        """Why these rows cannot belong to the others of this call."""
        asked, width = self._backend.dialect.dimensions, rows.matrix.shape[1]
        if asked and width != asked:
            return MisconfiguredError(
                f"was asked for {asked} dimensions and answers {width}; "
                "the model does not have that width: leave dimensions out",
                backend=name,
                field="dimensions",
            )
        known = next((len(vector) for vector in self.vectors.values()), width)
        if width != known:
            return BadAnswerError(
                f"answers {width} dimensions where {known} came before: two models, or a swap",
                backend=name,
            )
        self._model = self._model or rows.model
        if rows.model and rows.model != self._model:
            return BadAnswerError(
                f"answers as {rows.model!r:.80}, and as {self._model!r:.80} before: "
                "two models behind one name",
                backend=name,
            )
        return None

    def _fail(self, places: Places, answer: Answer) -> None:
        judgement, name = answer.judgement, answer.replica.name
        error = error_of(judgement, name)
        failure = TextFailure(failure_kind(judgement.verdict), f"{name}: {judgement.words}")
        if not lies_in_text(judgement.verdict):
            self._causes.append(error)
        for place in places:
            self._fail_alone(place, failure, error)

    def _fail_alone(self, place: int, failure: TextFailure, error: EmbedderError) -> None:
        self.failures[place] = failure
        self._failed_alone += 1
        if self._failed_alone >= _HOPELESS and not self.vectors and self._ended is None:
            self._causes.append(error)
            self._ended = error

    def _give_up(self, places: Places, error: EmbedderError | None) -> None:
        assert error is not None  # noqa: S101 - what ended the call
        self._causes.append(error)
        for place in places:
            self.failures[place] = TextFailure(FailureKind.UNAVAILABLE, error.message)
