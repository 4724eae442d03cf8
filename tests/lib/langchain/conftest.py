"""An index as a process, and wrappers of a model around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from support.langchain_model import Model
from support.server import ServerProcess, server_process
from warmindex.identity import ModelIdentity
from warmindex.langchain import IndexBackedEmbeddings


@pytest.fixture(scope="module")
def index() -> Iterator[ServerProcess]:
    """An index as a process: a sync call holds this process's own loop."""
    with server_process() as process:
        yield process


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def wrapped(index: ServerProcess, model: Model, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Wraps the model, each test in a tenant of its own; each wrapper as another process's."""
    opened = []

    def open_one(underlying: Embeddings = model, name: str = "fake", **options: Any) -> Any:
        identity = ModelIdentity(provider="fake", model=name, normalized=False, truncation="none@0")
        given = {"server": index.address, "tenant_id": request.node.name[:60], **options}
        opened.append(IndexBackedEmbeddings(underlying, given.pop("identity", identity), **given))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
