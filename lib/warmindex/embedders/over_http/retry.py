"""When to ask again, and when to stop. Pure: time and chance are arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
from typing import Final

# The longest wait that a server's Retry-After is followed for. What it asks beyond that is
# reported, and the caller decides: a build must not sleep for a day in silence.
RETRY_AFTER_S_MAX: Final = 30.0
# Spread on top of a Retry-After, so that a fleet told the same second does not meet in it.
_SPREAD_S: Final = 0.1
_SECONDS: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How persistent a call is. Times in seconds."""

    # Requests for one batch, the first included, while the backend is away or busy.
    attempts_max: int
    # Requests for one batch after answers that are wrong: asking again seldom helps.
    wrong_answers_max: int
    # Retries of a whole call, and how much each success gives back. Spent: the call ends.
    budget: float
    budget_per_success: float
    backoff_s_first: float
    backoff_s_max: float
    # The longest that a call waits for replicas that all rest.
    rest_s_max: float


# A build runs in the background and is worth some patience: about 15 s against a backend
# that is away, several minutes against one that is only busy.
BUILD: Final = RetryPolicy(
    attempts_max=6,
    wrong_answers_max=2,
    budget=24.0,
    budget_per_success=0.5,
    backoff_s_first=0.25,
    backoff_s_max=10.0,
    rest_s_max=60.0,
)
# Somebody waits for the answer to a question, and words can answer it too.
QUERY: Final = RetryPolicy(
    attempts_max=3,
    wrong_answers_max=2,
    budget=3.0,
    budget_per_success=0.0,
    backoff_s_first=0.05,
    backoff_s_max=1.0,
    rest_s_max=5.0,
)


def retry_after_s(headers: Mapping[str, str], now_unix_s: float) -> float | None:
    """The wait that an answer asks for, in seconds, however long; None where it asks none.

    Seconds (decimals too), an HTTP date, or milliseconds in Azure's `retry-after-ms`. A date
    counts from the answer's own `date`, so that a wrong clock here does no harm. What is
    negative, past or no number is as good as absent. `headers` have lower-case names.
    """
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _SECONDS.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    then = _unix_s(value)
    if then is None:
        return None
    server_now = _unix_s(headers.get("date", ""))
    # Dates are cut to whole seconds, so the fraction is rounded up.
    wait = math.ceil(then - (now_unix_s if server_now is None else server_now))
    return float(wait) if wait > 0 else None


def followed_wait_s(asked_s: float, chance: Random) -> float:
    """How long to wait where a server asked for `asked_s`: that, capped, and a little more."""
    return min(asked_s, RETRY_AFTER_S_MAX) + chance.uniform(0, _SPREAD_S)


def backoff_s(streak: int, policy: RetryPolicy, chance: Random) -> float:
    """How long to wait after `streak` + 1 failures in a row: doubling, jittered, capped."""
    # Beyond 2**30 times the first wait any cap has been reached, and floats overflow later.
    wait = policy.backoff_s_first * 2.0 ** min(streak, 30)
    return chance.uniform(0.5, 1.0) * min(wait, policy.backoff_s_max)


class RetryBudget:
    """The retries that one call has left. Successes earn some back, up to the beginning."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._left = policy.budget

    def spend(self) -> bool:
        """Take one retry; False where none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self) -> None:
        """One request succeeded."""
        self._left = min(self._policy.budget, self._left + self._policy.budget_per_success)


def _unix_s(http_date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(http_date)
    except (ValueError, TypeError, IndexError):
        return None
    # "-0000" gives a naive time; RFC 9110 dates are in UTC.
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
