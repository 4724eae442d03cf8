"""The Makefile and what the documents say of it."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from support.examples import blocks
from support.tree import ROOT, documents, relative

if TYPE_CHECKING:
    from pathlib import Path

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))


def named_targets(text: str) -> set[str]:
    """The targets that a document tells people to make: in code, not in prose."""
    fenced = "\n".join(block.text for block in blocks(text) if block.language == "sh")
    named = re.findall(r"`make ([a-z][a-z-]*)", text)
    named += re.findall(r"^make ([a-z][a-z-]*)", fenced, re.MULTILINE)
    return set(named)


@pytest.mark.parametrize("path", documents(), ids=relative)
def test_the_targets_that_a_document_names_exist(path: Path):
    """Whoever types what a document says gets what it says."""
    assert named_targets(path.read_text(encoding="utf-8")) <= TARGETS


def test_targets_are_found_in_code_and_not_in_prose():
    """The rule above sees what it should."""
    text = "To make sense, run `make test` first:\n\n```sh\nmake serve\n```\n"
    assert named_targets(text) == {"test", "serve"}


def test_help_lists_every_target():
    """`make help` is complete, and what it lists can be made."""
    phony = set(re.findall(r"^\.PHONY: (\S+)$", MAKEFILE, re.MULTILINE))
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert {line.split()[0] for line in shown.splitlines()} == phony == TARGETS


def test_an_old_python_is_told_what_to_do(tmp_path: Path):
    """The environment is not begun with a Python that cannot run the package."""
    old = tmp_path / "python3"
    # What sets an old Python apart, to the script, is that the version check fails.
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.8.18" && exit\nexit 1\n')
    old.chmod(0o755)
    result = subprocess.run(
        [ROOT / "scripts" / "check_python.sh", old],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert result.returncode == 1
    assert "needs Python 3.11 or newer" in result.stderr
    assert "Python 3.8.18" in result.stderr
    assert "PYTHON=" in result.stderr
