"""The demo, run as people run it: it tells a story, and its exit code says whether it held."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("onnxruntime") is None, reason="the extra `local` is not installed"
)


async def demo(**environment: str) -> tuple[int | None, str, str]:
    """Exit code, stdout and stderr of `warmindex demo` in a pipe."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "warmindex.cli",
        "demo",
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_all_of_it_holds_and_is_told_in_plain_text():
    """Cold, warm, three searches and the removal table, whatever the environment is set to."""
    code, out, err = await demo(WARMINDEX_JOURNAL="sqlite:////nowhere/x", WARMINDEX_EMBEDDER="tei")
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "reused 64, embedded 0" in out
    for name in ("create_issue", "find_free_time", "set_thermostat"):
        assert name in out
    assert out.count(" yes ") == 4
    assert "all of it held" in out
