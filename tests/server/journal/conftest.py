"""The places that the contract suite runs in."""

from __future__ import annotations

import itertools

import pytest
from support.journals import MemoryPlace, Place, RedisPlace, SqlitePlace
from support.redis_server import RedisServer
from warmindex_server.journal import codec

_prefixes = map("test{}".format, itertools.count())


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A Redis for all tests that do it no harm."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture
def own_redis(tmp_path):
    """A Redis for one test, which may do with it as it likes."""
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.kill()


@pytest.fixture
def small_pieces(monkeypatch):
    """Each part of a snapshot is stored by itself, so that a small one has several pieces."""
    monkeypatch.setattr(codec, "PACK_BYTES", 1)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def place(request, tmp_path) -> Place:
    """A place of each kind, empty."""
    if request.param == "memory":
        return MemoryPlace()
    if request.param == "sqlite":
        return SqlitePlace(tmp_path / "warm.db")
    return RedisPlace(request.getfixturevalue("redis_server").url, next(_prefixes))


@pytest.fixture
def lasting_place(place) -> Place:
    """A place of each kind that keeps what it is given."""
    if not place.keeps:
        pytest.skip("the memory journal keeps nothing, and says so")
    return place
