"""The published cases' payloads, where they are there."""

from __future__ import annotations

import json

import pytest
from support.tree import ROOT

_FILE = ROOT.parent / "shared" / "cases" / "kv-fixtures.json"


def fixture(name: str) -> bytes:
    """The payload of that name; skips the test where the cases are not there."""
    if not _FILE.exists():
        pytest.skip(f"{_FILE.name} is not beside the project")
    text: str = json.loads(_FILE.read_text(encoding="utf-8"))[name]["payload_hex"]
    return bytes.fromhex(text)
