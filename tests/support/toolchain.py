"""Toolchains of other languages: found on PATH, run to their end, or a reason to skip."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from support import tree

# Fetching and compiling a gRPC library from nothing on a busy machine takes minutes.
RUN_S_MAX = 600
# How the tools say that they reached no registry. Anything else that fails is a failure.
UNREACHED = (
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "ENOTFOUND",
    "ETIMEDOUT",
    "connection refused",
    "dial tcp",
    "i/o timeout",
    "network is unreachable",
    "no such host",
)


def program(name: str) -> str:
    """The path of a program; the test is skipped where there is none."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(command: Sequence[str], folder: Path, **variables: str) -> str:
    """What a command prints; the test fails where the command does."""
    # The project's own buf comes first; nothing else of this Python's is wanted.
    path = f"{Path(tree.tool('buf')).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    result = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def fetch(command: Sequence[str], folder: Path, **variables: str) -> None:
    """Run what needs a package registry; the test is skipped where none is reached."""
    try:
        run(command, folder, **variables)
    except AssertionError as error:
        if any(word in str(error) for word in UNREACHED):
            pytest.skip(f"{command[0]} reached no package registry")
        raise


def copy_of(example: str, folder: Path) -> Path:
    """An example's folder, copied with what it refers to, so that nothing is written here."""
    shutil.copytree(tree.ROOT / "proto", folder / "proto")
    shutil.copytree(tree.ROOT / "docs", folder / "docs")
    return Path(
        shutil.copytree(
            tree.ROOT / "examples" / example,
            folder / "examples" / example,
            ignore=shutil.ignore_patterns("node_modules", "dist", "gen"),
        )
    )
