"""What to do about an answer that is no vectors. Pure.

                                    one text           several texts
    TOO_MANY BODY_TOO_BIG           FAIL               SPLIT
    TEXT_TOO_LONG REFUSED           FAIL               SPLIT, until the guilty one is alone
    BROKEN BAD_ANSWER               RETRY, then FAIL   RETRY, then SPLIT
    BUSY SILENT                     RETRY, then FAIL   RETRY, then SPLIT, then FAIL
    AWAY                            RETRY, then FAIL   RETRY, then FAIL
    UNAUTHORIZED MISCONFIGURED      LEAVE              LEAVE

A busy TEI needs as many free permits as a request has texts, and a slow one may only be
slow because there are so many: half of it may pass.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from warmindex.embedders.base import FailureKind
from warmindex.embedders.errors import (
    BackendUnavailableError,
    BadAnswerError,
    EmbedderError,
    MisconfiguredError,
    UnauthorizedError,
)
from warmindex.embedders.over_http.answers import Judgement, Verdict
from warmindex.embedders.over_http.retry import RetryPolicy

# After this many requests for one batch, a busy or silent backend gets half of it.
_SPLIT_AFTER: Final = 2
# Each silence costs a whole timeout.
_SILENT_MAX: Final = 3


class Action(Enum):
    """What to do with a batch after an answer."""

    RETRY = "ask again, here or elsewhere"
    SPLIT = "ask for each half"
    FAIL = "its texts have failed"
    LEAVE = "never ask this replica again in this call, ask another"


def decide(
    verdict: Verdict, text_count: int, tries: int, policy: RetryPolicy, replica_count: int = 1
) -> Action:
    """`tries` counts the requests made for this batch, the judged one included."""
    several = text_count > 1
    match verdict:
        case Verdict.UNAUTHORIZED | Verdict.MISCONFIGURED:
            return Action.LEAVE
        case Verdict.BROKEN | Verdict.BAD_ANSWER:
            # Each replica gets its chance: it may be the replica that is wrong.
            if tries < policy.wrong_answers_max + replica_count - 1:
                return Action.RETRY
            return Action.SPLIT if several else Action.FAIL
        case Verdict.BUSY | Verdict.SILENT | Verdict.AWAY:
            if several and tries == _SPLIT_AFTER and verdict is not Verdict.AWAY:
                return Action.SPLIT
            most = policy.attempts_max
            most = min(most, _SILENT_MAX) if verdict is Verdict.SILENT else most
            return Action.RETRY if tries < most else Action.FAIL
        case _:
            return Action.SPLIT if several else Action.FAIL


def tries_of_half(verdict: Verdict, tries: int, text_count: int) -> int:
    """How many tries a half of a batch begins with.

    Where a backend breaks on whatever it is asked, not every half of every half is asked
    as often as the whole. A text alone is: after that, it has failed.
    """
    if verdict in {Verdict.BROKEN, Verdict.BAD_ANSWER}:
        return tries - 1 if text_count > 1 else 0
    return tries if verdict in {Verdict.BUSY, Verdict.SILENT} else 0


def failure_kind(verdict: Verdict) -> FailureKind:
    """Why one text failed, where its batch ended with this verdict."""
    if verdict in {Verdict.BUSY, Verdict.SILENT, Verdict.AWAY}:
        return FailureKind.UNAVAILABLE
    if verdict in {Verdict.BODY_TOO_BIG, Verdict.TEXT_TOO_LONG}:
        return FailureKind.TOO_LONG
    return FailureKind.REJECTED


def error_of(judgement: Judgement, backend: str) -> EmbedderError:
    """The error for a call that ends with this judgement."""
    match judgement.verdict:
        case Verdict.UNAUTHORIZED:
            return UnauthorizedError(
                f"unauthorised ({judgement.words}); give the API key that it expects",
                backend=backend,
            )
        case Verdict.BAD_ANSWER:
            return BadAnswerError(judgement.words, backend=backend)
        case Verdict.BUSY | Verdict.SILENT | Verdict.AWAY | Verdict.BROKEN:
            return BackendUnavailableError(
                f"{judgement.verdict.value}: {judgement.words}",
                backend=backend,
                retry_after_s=judgement.retry_after_s,
            )
        case Verdict.REFUSED:
            return MisconfiguredError(f"refuses every text: {judgement.words}", backend=backend)
        case _:
            return MisconfiguredError(judgement.words, backend=backend)
