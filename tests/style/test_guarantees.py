"""docs/guarantees.md: each promise names tests, and they are there."""

from __future__ import annotations

import ast
import re

import pytest
from support.tree import ROOT

TEXT = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)
PROMISES = [
    line
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.endswith("| the test that holds it |")
]


def names_in(name: str) -> set[str]:
    """The tests of a file."""
    path = ROOT / "tests" / name
    if not path.exists():
        return set()
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_test_that_holds_a_promise_exists(file: str, test: str):
    """Whoever renames or removes it finds the promise that goes with it."""
    assert test in names_in(file), f"tests/{file} has no {test}"


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_names_a_test(promise: str):
    """A promise that nothing holds is a wish."""
    assert re.search(r"`[\w/]+\.py::test_\w+`", promise)


def test_promises_are_found():
    """The rules above see what they should."""
    assert len(PROMISES) > 40
    assert len(NAMED) >= len(PROMISES)
