"""What the clients in other languages are held against: a server, and golden vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.server import ServerProcess, server_process
from support.tree import ROOT


@pytest.fixture(scope="module")
def index() -> Iterator[ServerProcess]:
    """A server as a process; each test uses partitions of its own."""
    with server_process() as process:
        yield process


@pytest.fixture
def more_vectors(tmp_path: Path) -> Path:
    """The contract's own vectors, in the form of docs/golden-vectors.json; skips without them."""
    data = ROOT.parent / "shared" / "data"
    if not data.is_dir():
        pytest.skip("the contract's own vectors are not at hand")
    hashes = json.loads((data / "hash-vectors.json").read_text(encoding="utf-8"))
    vectors = {
        "text-sha256": hashes["text-sha256"]["vectors"],
        "xxh3-chain": [
            {**vector, "hash_scheme": vector["scheme"], "parent_hex": vector["parent"]}
            for vector in hashes["xxh3-chain"]["vectors"]
        ],
        "model-id": json.loads((data / "identity-vectors.json").read_text(encoding="utf-8")),
    }
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(vectors), encoding="utf-8")
    return path
