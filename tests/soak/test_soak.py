"""Short runs of the soak harness; `make soak` makes long ones."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from soak.plan import KEEP_ALL, plan_of
from soak.run import run

SECONDS = 2.0
# A server that forgets; a disk that fills, and the package's publisher; three servers.
CHOSEN = [("memory", 4), ("sqlite", 6), ("redis", 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("journal", "seed"), CHOSEN)
async def test_after_faults_everything_is_as_the_journal_says(journal: str, seed: int):
    """Servers, watchers and mirrors equal the plain model; what was acknowledged is there."""
    if journal == "redis":
        pytest.importorskip("redis", reason="the extra `redis` is not installed")
    folder = Path(tempfile.mkdtemp(prefix=f"warmindex-soak-{seed}-"))
    plan = plan_of(seed, journal, SECONDS)
    summary = await run(plan, folder)
    assert summary.acknowledged
    assert summary.revisions_seen
    if journal != "memory":
        assert summary.copies_checked
    shutil.rmtree(folder)


def test_the_seed_decides_the_plan():
    """The same seed is the same plan, and seeds reach every kind of run."""
    assert plan_of(7) == plan_of(7)
    plans = [plan_of(seed) for seed in range(60)]
    assert {plan.journal for plan in plans} == {"memory", "sqlite", "redis"}
    assert {plan.servers for plan in plans if plan.journal == "redis"} == {1, 2, 3}
    assert {plan.keep_records == KEEP_ALL for plan in plans} == {True, False}
    assert {plan.loses_data for plan in plans} == {True, False}
