"""When an embedder asks again: Retry-After in all its forms, back-off, budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime, formatdate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warmindex.embedders.over_http import retry

NOW = 1_900_000_000.7


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": " 2 "}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "٢"}, None),
        ({"retry-after": "9" * 400}, None),
        ({}, None),
        ({"retry-after": formatdate(NOW + 2, usegmt=True)}, 2.0),
        ({"retry-after": formatdate(NOW - 60, usegmt=True)}, None),
        ({"retry-after": "Mon, 99 Foo 2030 00:00:00 GMT"}, None),
        # The server's clock is an hour ahead, and it says so.
        (
            {
                "retry-after": formatdate(NOW + 3605, usegmt=True),
                "date": formatdate(NOW + 3600, usegmt=True),
            },
            5.0,
        ),
        ({"retry-after": formatdate(NOW + 2, usegmt=True), "date": "yesterday"}, 2.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_retry_after_in_all_its_forms(headers: dict[str, str], wait: float | None):
    """Seconds, decimals, dates and milliseconds are read; nonsense is as good as absent."""
    assert retry.retry_after_s(headers, NOW) == wait


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_header_makes_reading_fail(value: str, date: str):
    """Whatever stands in the headers, the wait is None or a finite number from 0 on."""
    wait = retry.retry_after_s({"retry-after": value, "date": date}, NOW)
    assert wait is None or 0 <= wait < 1e19


@pytest.mark.parametrize("offset", [-11, 0, 5])
def test_dates_of_any_zone_mean_the_same_moment(offset: int):
    """A date with another offset is the same wait."""
    zone = timezone(timedelta(hours=offset))
    moment = datetime.fromtimestamp(NOW + 7, tz=UTC).astimezone(zone)
    assert retry.retry_after_s({"retry-after": format_datetime(moment)}, NOW) == 7.0


@given(st.floats(0, 1e9), st.integers())
def test_a_wait_that_was_asked_for_is_kept_and_capped(asked: float, seed: int):
    """Never sooner than asked, never much later, never beyond the cap."""
    wait = retry.followed_wait_s(asked, Random(seed))
    least = min(asked, retry.RETRY_AFTER_S_MAX)
    assert least <= wait <= least + 0.1


@given(st.integers(0, 10_000), st.integers())
def test_back_off_doubles_with_jitter_up_to_its_cap(streak: int, seed: int):
    """The n-th wait lies in the upper half of first * 2**n, capped."""
    wait = retry.backoff_s(streak, retry.BUILD, Random(seed))
    full = min(retry.BUILD.backoff_s_max, retry.BUILD.backoff_s_first * 2.0 ** min(streak, 60))
    assert full / 2 <= wait <= full


def test_a_budget_ends_and_successes_earn_some_back():
    """A call has so many retries; two successes of a build are worth one more."""
    budget = retry.RetryBudget(retry.BUILD)
    assert sum(budget.spend() for _ in range(100)) == retry.BUILD.budget
    budget.earn()
    assert not budget.spend()
    budget.earn()
    assert budget.spend()
    assert not budget.spend()


def test_a_budget_never_grows_beyond_its_beginning():
    """A thousand successes do not buy a thousand retries."""
    budget = retry.RetryBudget(retry.BUILD)
    for _ in range(1000):
        budget.earn()
    assert sum(budget.spend() for _ in range(1000)) == retry.BUILD.budget
