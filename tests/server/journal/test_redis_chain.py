"""What the Redis journal decides without Redis: links, URLs, keys, what INFO says."""

from __future__ import annotations

import pytest
from redis.asyncio import RedisCluster
from warmindex.errors import InvalidError
from warmindex_server.journal.base import JournalStartError
from warmindex_server.journal.redis.chain import (
    ChainBrokenError,
    Entry,
    Position,
    fields_of,
    follow,
    parse,
)
from warmindex_server.journal.redis.checks import check_info
from warmindex_server.journal.redis.keys import Keys
from warmindex_server.journal.redis.link import Link

A, B, C = b"a" * 8, b"b" * 8, b"c" * 8


def entry(revision: int, before: bytes, *, first: bool = False) -> Entry:
    return Entry(revision, before, C, None if first else b"frame")


@pytest.mark.parametrize(
    ("position", "following"),
    [
        (Position(7, A), entry(8, A)),
        (Position(7, A), entry(900, A, first=True)),
        (Position(7), entry(8, B)),
        (Position(0), entry(5, B, first=True)),
    ],
)
def test_an_entry_continues(position, following):
    """The link fits, or nothing speaks against it; the reader stands behind the entry then."""
    assert follow(position, following) == Position(following.revision, C)


@pytest.mark.parametrize(
    ("position", "following", "jumped"),
    [
        (Position(7, A), entry(8, B), False),
        (Position(7, A), entry(12, B), True),
        (Position(7, A), entry(900, B, first=True), True),
        (Position(7), entry(12, B), True),
        (Position(0), entry(5, B), True),
    ],
)
def test_an_entry_does_not_continue(position, following, jumped):
    """Replaced, lost or cut: the reader does not go on."""
    with pytest.raises(ChainBrokenError) as caught:
        follow(position, following)
    assert caught.value.jumped is jumped


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {b"r": b"frame"},
        {b"l": b"short", b"r": b"frame"},
        {b"l": A + B},
        {b"l": A + B, b"r": b"frame", b"h": b"history"},
    ],
)
def test_an_entry_of_somebody_else_is_no_record(fields):
    """What no journal has written is not guessed at."""
    with pytest.raises(ValueError, match="not written by a journal"):
        parse([(b"7-0", fields)])


def test_entries_are_read_in_every_shape_of_an_answer():
    """The client's answers to XREAD differ between its releases and protocols."""
    entries = [(b"7-0", {b"l": A + B, b"r": b"x"})]
    assert fields_of(None) == fields_of([]) == fields_of({}) == []
    for answer in ([[b"log", entries]], {b"log": entries}, {b"log": [entries]}):
        assert parse(fields_of(answer)) == [Entry(7, A, B, b"x")]


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://cache", "cache:6379"),
        ("redis://user:p%40ss@cache:7000/3", "cache:7000"),
        ("rediss://cache?ssl_cert_reqs=none", "cache:6379"),
        ("redis://[::1]:7000", "[::1]:7000"),
        ("redis+sentinel://:secret@a,b:7000/main/2?sentinel_password=x", "a:26379,b:7000"),
        ("rediss+sentinel://a/main", "a:26379"),
        ("redis+cluster://a:7000,b", "a:7000,b:6379"),
    ],
)
def test_a_url_names_where_to_go(url, where):
    """Hosts and ports are shown to people, passwords are not."""
    link = Link(url)
    assert link.where == where
    assert link.clustered is isinstance(link.client, RedisCluster) is ("cluster" in url)


def test_a_url_gives_login_and_database():
    """User, password and database reach the client."""
    settings = Link("redis://user:p%40ss@cache:7000/3").client.connection_pool.connection_kwargs
    wanted = {"host": "cache", "port": 7000, "db": 3, "username": "user", "password": "p@ss"}
    assert wanted.items() <= settings.items()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://cache/name", "number of a database"),
        ("redis://cache/1/2", "number of a database"),
        ("redis://a,b", "redis\\+sentinel"),
        ("redis+sentinel://a", "name of the master"),
        ("redis+cluster://a/1", "no databases"),
        ("redis://cache:port", "not a Redis URL"),
    ],
)
def test_a_url_that_is_wrong_says_how(url, problem):
    """The message shows the right form, and no password."""
    with pytest.raises(InvalidError, match=problem) as caught:
        Link(url.replace("://", "://user:secret@"))
    assert "secret" not in str(caught.value)


def test_keys_share_one_hash_tag():
    """A cluster keeps all of them on one node."""
    assert Keys("warmindex").head == "{warmindex}:head"
    assert Keys("app:{warm}").log("h1") == "app:{warm}:log:h1"
    assert Keys("warmindex").key("claims").startswith("{warmindex}:")


GOOD = {"redis_version": "7.2.4", "maxmemory_policy": "noeviction", "aof_enabled": 1}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"redis_version": "6.0.16"}, "6.2 or newer"),
        ({"redis_version": "5.0"}, "6.2 or newer"),
        ({"maxmemory_policy": "allkeys-lru"}, "throw the journal away"),
        ({"maxmemory_policy": "allkeys-random"}, "throw the journal away"),
        ({"maxmemory_policy": "allkeys-something-new"}, "throw the journal away"),
        ({"cluster_enabled": 1}, "redis\\+cluster"),
    ],
)
def test_a_redis_that_would_lose_records_is_refused(said, problem):
    """Each reason is named, with what to do."""
    with pytest.raises(JournalStartError, match=problem):
        check_info(GOOD | said, "cache:6379", clustered=False)


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"redis_version": "6.2.0"},
        {"redis_version": "10.0.1"},
        {"redis_version": "7.2.4", "valkey_version": "8.0.0", "server_name": "valkey"},
        {"maxmemory_policy": "volatile-ttl"},
    ],
)
def test_a_redis_that_is_right_is_taken(said, caplog):
    """Redis from 6.2 on and Valkey, with any policy that spares keys without an expiry."""
    check_info(GOOD | said, "cache:6379", clustered=False)
    check_info(GOOD | said | {"cluster_enabled": 1}, "cache:6379", clustered=True)
    assert not caplog.records


def test_a_redis_without_append_only_file_is_warned_of(caplog):
    """It is the user's choice, and it is said what it costs."""
    check_info(GOOD | {"aof_enabled": 0}, "cache:6379", clustered=False)
    assert "appendonly yes" in caplog.text
