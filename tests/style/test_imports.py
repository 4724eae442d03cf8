"""Which part may import which: the contracts of pyproject.toml, held by import-linter."""

from __future__ import annotations

import subprocess

from support.tree import ROOT, tool


def test_the_import_contracts_hold():
    """Every contract is kept, none is broken, and there are some."""
    result = subprocess.run(
        [tool("lint-imports"), "--no-logo", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " 0 broken" in result.stdout
