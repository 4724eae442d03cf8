"""The way to Redis: one server, a master that Sentinels name, or a cluster.

    redis://[USER:PASSWORD@]HOST[:PORT][/DB]                      rediss:// with TLS
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT][,HOST…]/NAME[/DB]
    redis+cluster://[USER:PASSWORD@]HOST[:PORT][,HOST…]

What stands behind a "?" goes to the client library (`ssl_ca_certs=…`, `health_check_interval=…`),
but for `sentinel_username` and `sentinel_password`. The client never sends a command twice by
itself: whether an append may be repeated is decided where it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    NoScriptError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from warmindex.errors import InvalidError, JournalUnavailableError

from warmindex_server.journal.base import JournalStartError
from warmindex_server.journal.redis.scripts import Script

# Longer than any script here takes, shorter than a publisher's patience.
CALL_S_MAX: Final = 3.0
CONNECT_TIMEOUT_S: Final = 2.0
DEFAULT_PORT: Final = 6379
DEFAULT_SENTINEL_PORT: Final = 26379

# All that a call through the client can raise when Redis, or the way to it, fails.
FAILURES: Final = (RedisError, RedisClusterException, OSError, asyncio.TimeoutError)
# Waiting does not help against these.
_REFUSALS: Final = (AuthenticationError, AuthorizationError, NoPermissionError)


class Link:
    """A client and what is the same for all kinds of Redis."""

    def __init__(self, url: str) -> None:
        """Raises InvalidError where the URL is not one of those above. Connects later."""
        self.where, self.client, self._sentinels = _client(url)
        self.closed = False
        self.clustered = isinstance(self.client, RedisCluster)

    async def call(self, *command: bytes | str | float) -> Any:
        """One command. Raises one of FAILURES, TimeoutError after CALL_S_MAX."""
        if self.closed:
            raise RedisConnectionError("the journal is closed")
        # Not by the client's socket_timeout: up to Python 3.11 that can swallow a cancellation.
        async with asyncio.timeout(CALL_S_MAX):
            try:
                return await self.client.execute_command(*command)
            except RedisConnectionError:
                # What cut one connection has cut the idle ones too, and a reset is not seen
                # before the next command: each would fail one attempt.
                if isinstance(self.client, Redis):
                    await self.client.connection_pool.disconnect(inuse_connections=False)
                raise

    async def run(self, script: Script, keys: list[str], *values: bytes | str | int) -> Any:
        """One script, sent once: its text goes along where Redis does not have it yet."""
        try:
            return await self.call("EVALSHA", script.sha, len(keys), *keys, *values)
        except NoScriptError:
            # Nothing has run, so this is no repetition.
            return await self.call("EVAL", script.text, len(keys), *keys, *values)

    async def info(self, section: str, key: str) -> Mapping[str, Any]:
        """A section of INFO of the server that has `key`."""
        if isinstance(self.client, RedisCluster):
            await self.client.initialize()
            node = self.client.get_node_from_key(key)
            answer = await self.client.info(section, target_nodes=node)
        else:
            answer = await self.client.info(section)
        found: Mapping[str, Any] = answer
        return found

    async def close(self) -> None:
        """Let go of all connections, for good."""
        self.closed = True
        await self.disconnect()

    async def disconnect(self) -> None:
        """Let go of all connections; the next call makes new ones."""
        await self.client.aclose()
        for sentinel in self._sentinels:
            await sentinel.aclose()

    def unavailable(self, doing: str, error: BaseException) -> JournalUnavailableError:
        """The error for a call that failed for now."""
        return JournalUnavailableError(
            f"{doing}: Redis at {self.where} does not answer as it should ({reason(error)}); "
            "reads go on, and publishes as soon as it does"
        )

    def start_error(self, error: BaseException) -> Exception:
        """The error for a call that failed at the start."""
        if isinstance(error, _REFUSALS):
            return JournalStartError(
                f"Redis at {self.where} refuses the login or a command ({reason(error)}): check "
                "user, password and ACL; docs/journals.md lists the commands that are needed"
            )
        return self.unavailable("starting the journal", error)


def reason(error: BaseException) -> str:
    """What went wrong, in the words of whoever noticed."""
    return str(error) or type(error).__name__


def _client(url: str) -> tuple[str, Redis | RedisCluster, list[Redis]]:
    """Where a URL points to, for people, a client that goes there, and those to Sentinels."""
    scheme, _, rest = url.partition("://")
    tls, _, kind = scheme.partition("+")
    try:
        return _parsed(tls, kind, rest)
    except ValueError as error:
        raise InvalidError(
            f"journal is not a Redis URL ({error}); give redis://HOST:PORT/DB, "
            "redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB or redis+cluster://HOST:PORT",
            field="journal",
        ) from None


def _parsed(tls: str, kind: str, rest: str) -> tuple[str, Redis | RedisCluster, list[Redis]]:
    parts = urlsplit(f"redis://{rest}")
    login, at, netloc = parts.netloc.rpartition("@")
    hosts = _hosts(netloc, kind)
    path = [unquote(part) for part in parts.path.split("/") if part]
    name = path.pop(0) if kind == "sentinel" and path else ""
    if kind == "sentinel" and not name:
        raise ValueError("the path begins with the name of the master")
    if kind == "cluster" and path:
        raise ValueError("a cluster has no databases to choose from")
    if path and not (len(path) == 1 and path[0].isdigit()):
        raise ValueError("the path is the number of a database")
    query = dict(parse_qsl(parts.query))
    sentinel = {name: query.pop(f"sentinel_{name}", None) for name in ("username", "password")}
    addresses = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in hosts]
    one = f"{tls}://{login}{at}{addresses[0]}/{''.join(path)}?{urlencode(query)}"
    where = ",".join(addresses)
    return where, *_make(kind, hosts, name, dict(parse_url(one)), sentinel)


def _hosts(netloc: str, kind: str) -> list[tuple[str, int]]:
    hosts = []
    for one in netloc.split(","):
        parts = urlsplit(f"//{one}")
        default = DEFAULT_SENTINEL_PORT if kind == "sentinel" else DEFAULT_PORT
        hosts.append((parts.hostname or "localhost", parts.port or default))
    if kind == "" and len(hosts) > 1:
        raise ValueError("several hosts need redis+sentinel:// or redis+cluster://")
    return hosts


def _make(
    kind: str,
    hosts: list[tuple[str, int]],
    name: str,
    settings: dict[str, Any],
    sentinel: dict[str, str | None],
) -> tuple[Redis | RedisCluster, list[Redis]]:
    host, port = settings.pop("host"), settings.pop("port", DEFAULT_PORT)
    tls = settings.pop("connection_class", None) is not None
    settings = {
        "socket_timeout": None,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_keepalive": True,
        "protocol": 2,
        "ssl": tls,
        **settings,
    }
    once = Retry(NoBackoff(), 0)
    if kind == "cluster":
        nodes = [ClusterNode(*one) for one in hosts]
        return RedisCluster(startup_nodes=nodes, retry=once, **settings), []
    if kind == "sentinel":
        how: dict[str, Any] = {key: value for key, value in sentinel.items() if value}
        how |= {"socket_timeout": CONNECT_TIMEOUT_S, "socket_connect_timeout": CONNECT_TIMEOUT_S}
        how |= {"ssl": tls, "retry": once}
        sentinels = Sentinel(hosts, sentinel_kwargs=how)  # type: ignore[no-untyped-call]
        master: Redis = sentinels.master_for(name, retry=once, **settings)
        return master, list(sentinels.sentinels)
    return Redis(host=host, port=port, retry=once, **settings), []
