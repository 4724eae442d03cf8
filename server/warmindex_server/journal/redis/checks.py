"""What a Redis must be to carry a journal."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from redis.exceptions import NoPermissionError, ResponseError

from warmindex_server.journal.base import JournalStartError
from warmindex_server.journal.redis.link import Link

_log = logging.getLogger(__name__)

# XTRIM MINID and XADD's exact options are of 6.2; so are the first Valkey's.
VERSION_MIN: Final = (6, 2)
# These never evict a key without an expiry, and a journal's keys have none but for lists that
# are being written or are on their way out.
SAFE_POLICIES: Final = frozenset(
    {"noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"}
)


async def check_server(link: Link, key: str) -> None:
    """Raises JournalStartError where this Redis would lose records, or one of FAILURES."""
    try:
        info: dict[str, Any] = {}
        for section in ("server", "memory", "persistence", "cluster"):
            info |= await link.info(section, key)
    except (NoPermissionError, ResponseError) as error:
        if isinstance(error, ResponseError) and not isinstance(error, NoPermissionError):
            raise
        _log.warning(
            "Redis at %s does not allow INFO: whether its version (6.2 or newer) and its "
            "maxmemory-policy (one that evicts no journal) are right is not checked",
            link.where,
        )
        return
    check_info(info, link.where, clustered=link.clustered)


def check_info(info: Mapping[str, Any], where: str, *, clustered: bool) -> None:
    """Judge what INFO says. Raises JournalStartError."""
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < VERSION_MIN:
        raise JournalStartError(
            f"Redis at {where} is version {version}; the journal needs 6.2 or newer, or Valkey"
        )
    if int(info.get("cluster_enabled", 0)) and not clustered:
        raise JournalStartError(
            f"Redis at {where} is part of a cluster: name it as redis+cluster://HOST:PORT"
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy not in SAFE_POLICIES:
        raise JournalStartError(
            f"Redis at {where} has maxmemory-policy {policy}: when its memory is full it would "
            "throw the journal away, acknowledged records and all. Set noeviction (or a "
            "volatile-… policy), or give the journal a Redis of its own"
        )
    if not int(info.get("aof_enabled", 0)):
        _log.warning(
            "Redis at %s keeps no append-only file: what it has acknowledged since its last RDB "
            "file is lost when it ends. Set appendonly yes to keep it",
            where,
        )
