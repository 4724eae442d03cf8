"""The Redis journal on every kind of Redis: users and passwords, TLS, a cluster, Sentinels."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess

import pytest
from support.following import Follower
from support.journals import RedisPlace, load, read_all, revisions
from support.proxy import Proxy
from support.records import embedded, number_of
from support.redis_server import RedisServer
from warmindex.errors import JournalUnavailableError
from warmindex_server.journal.base import JournalStartError
from warmindex_server.journal.registry import open_journal

# What docs/journals.md tells people to allow.
COMMANDS = (
    "+evalsha +eval +hmget +hget +hset +exists +xadd +xrange +xrevrange +xread +xtrim +rename "
    "+set +get +del +unlink +llen +rpush +lindex +pexpire +persist +hdel +zadd +zrem +zcard "
    "+zrange +zrangebyscore +zremrangebyscore +time +info +ping"
)


async def works(place: RedisPlace) -> None:
    """Append, follow, close, load."""
    async with place.opened() as journal, Follower(journal) as follower:
        given = await journal.append([embedded(1), embedded(2)])
        await follower.until_count(2)
    async with place.opened() as journal:
        assert revisions((await load(journal))[2]) == list(given)


@pytest.fixture
def guarded(own_redis):
    """A Redis with a user for the journal, and no other."""
    rights = ("on", ">s3cr:t@", "~{warm}:*", *COMMANDS.split())
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "warm", *rights)
        client.execute_command("ACL", "SETUSER", "default", "off")
    return own_redis


async def test_a_user_with_just_what_is_needed(guarded):
    """The commands that the documentation lists are enough, and keys of its prefix."""
    url = f"redis://warm:s3cr%3At%40@127.0.0.1:{guarded.port}"
    await works(RedisPlace(url, "warm"))
    with pytest.raises(JournalStartError, match="ACL"):
        await open_journal(url, RedisPlace(url, "other").options).start()


@pytest.mark.parametrize("login", ["", "warm:wrong@", ":wrong@"])
async def test_a_wrong_password_stops_the_start(guarded, login):
    """Waiting would not help; the message does not tell the password."""
    place = RedisPlace(f"redis://{login}127.0.0.1:{guarded.port}", "warm")
    with pytest.raises(JournalStartError, match="refuses the login") as caught:
        await open_journal(place.url, place.options).start()
    assert "wrong" not in str(caught.value).replace("WRONGPASS", "")


async def test_a_redis_that_does_not_allow_info_is_taken_with_a_warning(own_redis, caplog):
    """Some providers do not: then nothing is checked, and that is said."""
    with own_redis.client() as client:
        client.execute_command("ACL", "SETUSER", "warm", "on", ">pw", "~*", "+@all", "-info")
    await works(RedisPlace(f"redis://warm:pw@127.0.0.1:{own_redis.port}", "warm"))
    assert "is not checked" in caplog.text


async def test_a_policy_that_is_set_later_is_an_outage(own_redis):
    """After a reconnect the policy is looked at again; it is said, and mended without a restart."""
    async with Proxy(own_redis.port) as proxy:
        place = RedisPlace(f"redis://127.0.0.1:{proxy.port}", "warm")
        async with place.opened() as journal, Follower(journal) as follower:
            with own_redis.client() as client:
                client.config_set("maxmemory-policy", "allkeys-lru")
                proxy.cut()
                await follower.until_step("away")
                client.config_set("maxmemory-policy", "noeviction")
                await follower.until_step("back")
            await journal.append([embedded(1)])
            await follower.until_count(1)


async def test_tls(own_redis, tmp_path):
    """rediss:// checks the certificate, against an authority of the user's."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=127.0.0.1"
    made = await asyncio.create_subprocess_exec(
        *make.split(),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        stderr=subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with Proxy(own_redis.port, tls=context) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}"
        await works(RedisPlace(f"{url}?ssl_ca_certs={certificate}", "warm"))
        with pytest.raises(JournalUnavailableError, match="certificate"):
            await open_journal(url).start()


# ---- cluster ---------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path):
    """A cluster of two servers, half of the slots each."""
    options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000")
    servers = [RedisServer(tmp_path / f"node-{n}", *options) for n in range(2)]
    try:
        clients = [server.start().client() for server in servers]
        clients[0].execute_command("CLUSTER", "ADDSLOTS", *range(8192))
        clients[1].execute_command("CLUSTER", "ADDSLOTS", *range(8192, 16384))
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", servers[1].port)
        for client in clients:
            while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                pass
            while len(client.execute_command("CLUSTER", "NODES").splitlines()) < 2:
                pass
            client.close()
        yield servers
    finally:
        for server in servers:
            server.kill()


async def test_a_cluster(cluster):
    """Whichever node is named, and wherever the keys' slot lies."""
    for server in cluster:
        for prefix in ("warm", "other"):
            place = RedisPlace(f"redis+cluster://127.0.0.1:{server.port}", f"{prefix}{server.port}")
            await works(place)
            async with place.opened() as journal:
                given = await journal.append([embedded(3)])

                async def parts():
                    yield [embedded(4)]

                assert await journal.save_snapshot(given[0], parts())
                assert (await load(journal))[0] == given[0]


async def test_a_cluster_under_a_plain_url_is_named(cluster):
    """The message gives the URL that works."""
    with pytest.raises(JournalStartError, match=r"redis\+cluster://"):
        await open_journal(cluster[0].url).start()


# ---- Sentinels -------------------------------------------------------------------------


@pytest.fixture
def watched(tmp_path):
    """A master, a replica, and a Sentinel that watches both."""
    master = RedisServer(tmp_path / "master")
    replica = RedisServer(tmp_path / "replica", "--replicaof", "127.0.0.1", str(master.port))
    (tmp_path / "sentinel").mkdir()
    configuration = tmp_path / "sentinel" / "sentinel.conf"
    sentinel = RedisServer(tmp_path / "sentinel", str(configuration), "--sentinel")
    configuration.write_text(
        f"sentinel monitor main 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds main 500\n"
        "sentinel failover-timeout main 3000\n"
    )
    servers = (master, replica, sentinel)
    try:
        for server in servers:
            server.start()
        with replica.client() as client:
            while client.info("replication")["master_link_status"] != "up":
                pass
        with sentinel.client() as client:
            while client.sentinel_master("main")["num-slaves"] < 1:
                pass
        yield servers
    finally:
        for server in servers:
            server.kill()


@pytest.mark.slow
async def test_a_failover_that_lost_nothing_goes_on(watched):
    """The replica has it all: same history, no record missing or twice."""
    master, _, sentinel = watched
    place = RedisPlace(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", "warm")
    async with place.opened() as journal, Follower(journal) as follower:
        given = await journal.append([embedded(1)])
        with master.client() as client:
            client.execute_command("WAIT", 1, 5000)
        master.kill()
        await follower.until_step("back")
        given = [*given, *await retried(journal, embedded(2))]
        await follower.until_count(2)
        assert follower.moved is None
        assert revisions(follower.pairs) == given


@pytest.mark.slow
async def test_a_failover_that_lost_records_is_a_new_history(watched):
    """The replica was behind: nobody goes on as if nothing had happened."""
    master, replica, sentinel = watched
    place = RedisPlace(f"redis+sentinel://127.0.0.1:{sentinel.port}/main", "warm")
    async with place.opened() as journal, Follower(journal) as follower:
        old = journal.history_id
        await journal.append([embedded(1)])
        with master.client() as client:
            client.execute_command("WAIT", 1, 5000)
        replica.pause()
        with master.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "replica")
        await journal.append([embedded(2)])
        await follower.until_count(2)
        master.kill()
        replica.go_on()
        assert (await follower.until_moved()).new_history
        assert journal.history_id != old
        assert [number_of(record) for _, record in await read_all(journal)] == [1]
        await retried(journal, embedded(3))


async def retried(journal, event) -> list[int]:
    """Append as a publisher does: again after an outage."""
    async with asyncio.timeout(30):
        while True:
            try:
                return list(await journal.append([event]))
            except JournalUnavailableError:
                await asyncio.sleep(0.1)
