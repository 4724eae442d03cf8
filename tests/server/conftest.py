"""A server, and a Redis, for whoever asks for one."""

from __future__ import annotations

import itertools

import pytest
from support.server import server

__all__ = ["server"]

_prefixes = map("several{}".format, itertools.count())


@pytest.fixture(scope="session")
def redis_of_all(tmp_path_factory):
    """A Redis for all tests that do it no harm."""
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    from support.redis_server import RedisServer

    redis = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield redis
    redis.kill()


@pytest.fixture
def own_redis(tmp_path):
    """A Redis for one test, which may do with it as it likes."""
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    from support.redis_server import RedisServer

    redis = RedisServer(tmp_path / "redis").start()
    yield redis
    redis.kill()


@pytest.fixture
def redis_prefix():
    """A prefix that no other test has."""
    return next(_prefixes)


@pytest.fixture
def journal_settings(request, tmp_path):
    """The settings of an empty journal of a kind: memory, sqlite or redis."""

    def settings(kind: str) -> dict[str, str]:
        if kind == "sqlite":
            return {"journal": f"sqlite:///{tmp_path}/journal.db"}
        if kind == "redis":
            redis = request.getfixturevalue("redis_of_all")
            return {"journal": redis.url, "redis_prefix": next(_prefixes)}
        return {"journal": kind}

    return settings
