"""The places that the contract suite runs in."""

from __future__ import annotations

import pytest
from support.journals import MemoryPlace, Place, SqlitePlace


@pytest.fixture(params=["memory", "sqlite"])
def place(request, tmp_path) -> Place:
    """A place of each kind, empty."""
    if request.param == "memory":
        return MemoryPlace()
    return SqlitePlace(tmp_path / "warm.db")


@pytest.fixture
def lasting_place(place) -> Place:
    """A place of each kind that keeps what it is given."""
    if not place.keeps:
        pytest.skip("the memory journal keeps nothing, and says so")
    return place
