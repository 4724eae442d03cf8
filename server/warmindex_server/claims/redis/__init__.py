"""Claims in Redis, for the servers that share a journal there."""

from __future__ import annotations

from warmindex_server.claims.redis.claims import RedisClaims

__all__ = ["RedisClaims"]
