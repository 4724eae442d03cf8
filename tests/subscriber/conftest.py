"""A server in this process, and a Redis, for whoever asks for one."""

from __future__ import annotations

import pytest
from support.server import server

__all__ = ["server"]


@pytest.fixture
def own_redis(tmp_path):
    """A Redis for one test, which may do with it as it likes."""
    pytest.importorskip("redis", reason="the extra `redis` is not installed")
    from support.redis_server import RedisServer

    redis = RedisServer(tmp_path / "redis").start()
    yield redis
    redis.kill()
