"""Eight gateways that start at the same moment, as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.embedding_server import running
from support.server import server_process

PROGRAM = Path(__file__).parents[2] / "support" / "session_process.py"
TOOLS = 140


@contextmanager
def sessions(count: int, address: str, url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that have started and wait for a line before they open their session."""
    with ExitStack() as stack:
        command = [sys.executable, str(PROGRAM), address, url, str(TOOLS)]
        started = [
            stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(count)
        ]
        try:
            for process in started:
                assert process.stdout is not None
                assert process.stdout.readline() == "started\n"
            yield started
        finally:
            for process in started:
                process.kill()


def go(process: subprocess.Popen[str]) -> None:
    """Let a process open its session."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process said at its end."""
    assert process.stdout is not None
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


@pytest.mark.slow
def test_eight_sessions_cause_one_computation_per_text():
    """All are ready, and the backend has computed each of the 140 texts once."""
    with (
        server_process() as index,
        running("--text-sleep-ms", "3", "--serial", "true") as url,
        sessions(8, index.address, url) as processes,
    ):
        for process in processes:
            go(process)
        answers = [told(process) for process in processes]
        assert all(answer["ready"] for answer in answers)
        assert httpx.get(f"{url}/stats").json()["texts"] == TOOLS
        assert sum(answer["embedded"] for answer in answers) == TOOLS
        assert sum(answer["embedded"] > 0 for answer in answers) > 1


@pytest.mark.slow
def test_the_others_finish_when_one_is_killed_in_the_middle():
    """What a killed one had claimed falls to the others; nothing is left out."""
    with (
        server_process() as index,
        running("--text-sleep-ms", "10", "--serial", "true") as url,
        sessions(4, index.address, url) as processes,
    ):
        victim, *others = processes
        go(victim)
        deadline = time.monotonic() + 20
        while httpx.get(f"{url}/stats").json()["embed_requests"] == 0:
            assert time.monotonic() < deadline, "the first session never asked the backend"
            time.sleep(0.01)
        for process in others:
            go(process)
        victim.kill()
        answers = [told(process) for process in others]
        assert all(answer["ready"] for answer in answers)
        computed = httpx.get(f"{url}/stats").json()
        assert computed["distinct_texts"] == TOOLS
        # Nothing twice, but for what the victim had in flight.
        assert computed["texts"] <= TOOLS + 2 * 64
