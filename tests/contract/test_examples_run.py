"""The grpcurl examples of the documents, run as they are printed against a fresh server."""

from __future__ import annotations

import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from support.examples import Example, examples, json_values, matches
from support.tree import ROOT, tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "contract.md")

# A start takes a second or two; this is for a machine that is busy with other things.
START_S_MAX = 60


@contextmanager
def fresh_server(folder: Path) -> Iterator[str]:
    """A server of its own on a free port, as people start one; its address."""
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [tool("warmindex-server"), "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield _address(server, log)
    finally:
        server.terminate()
        assert server.wait(timeout=START_S_MAX) == 0, log.read_text(encoding="utf-8")


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and server.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith("listening on "):
                return line.removeprefix("listening on ")
        time.sleep(0.05)
    raise AssertionError(f"the server did not start: {log.read_text(encoding='utf-8')}")


def run(example: Example, address: str) -> str:
    """What an example prints; an example that fails is not one."""
    program, *arguments = example.arguments(address)
    result = subprocess.run(
        [tool(program), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert result.returncode == 0, f"{example}: {result.stdout}{result.stderr}"
    return result.stdout


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_examples_do_what_the_document_shows(path: Path, tmp_path: Path):
    """In the order of the document, each works, and each answer has all that is shown of it."""
    found = examples(path)
    assert found
    with fresh_server(tmp_path) as address:
        for example in found:
            printed = run(example, address)
            if example.answers is not None:
                answers = json_values(printed)
                assert matches(example.answers, answers), f"{example} prints {printed}"
