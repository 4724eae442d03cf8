"""Who waits for a record, and what becomes of a failure."""

from __future__ import annotations

import asyncio
import gc

import pytest
from warmindex.errors import JournalUnavailableError
from warmindex_server.commit.base import Submission

AWAY = JournalUnavailableError("the journal is away")


def submission() -> Submission:
    return Submission((), asyncio.get_running_loop().create_future())


async def test_who_waits_is_told():
    """A failure reaches whoever awaits the answer."""
    waiting = submission()
    waiting.fail(AWAY)
    with pytest.raises(JournalUnavailableError):
        await waiting.future


async def test_a_failure_that_nobody_waits_for_is_quiet():
    """A stream ends with its first failure; the rest of its messages fill no log."""
    said = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    left = submission()
    left.fail(AWAY)
    del left
    gc.collect()
    assert not said
