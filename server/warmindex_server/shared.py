"""What servers that share a Redis tell each other beside the journal: that they live, whom they
have heard from, and which of them leads.

    every MEET_S, one script:   whom I have heard from since  ->
                                I am here; I lead, if nobody else does
                                <-  whom the others have heard from

    {prefix}:leader    the leader's name; expires
    {prefix}:servers   sorted set: server -> up to when (Redis' clock, in microseconds) all that
                       it has heard is here
    {prefix}:heard     sorted set: replica -> when it was last told of

A lease ends when no server has heard from its replica. The leader judges only up to the time
that every living server has told of. One that has not met for GONE_S counts as dead; before
it comes to that it stops to keep renewals to itself (`in_touch`) and journals them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from warmindex import limits

from warmindex_server.journal.redis.keys import Keys
from warmindex_server.journal.redis.link import FAILURES, Link, reason
from warmindex_server.journal.redis.scripts import Script
from warmindex_server.replicas import Heard, ReplicaKey

_log = logging.getLogger(__name__)

MEET_S: Final = 0.25
# A leader that is silent for so long is replaced, and a server is taken for dead.
GONE_S: Final = 3.0
# Before it comes to that a server counts itself out, whatever its clock is worth.
IN_TOUCH_S_MAX: Final = 2.0
# One meeting; the next one may do better.
MEET_TIMEOUT_S: Final = 1.0

assert MEET_S < MEET_TIMEOUT_S < IN_TOUCH_S_MAX < GONE_S  # noqa: S101 - between constants

# KEYS leader, servers, heard, head; ARGV one's name, GONE_S in ms, up to when one has told of
# all (or 0: up to now), since when to answer, how long to remember (both in microseconds), then
# whom one has heard from. Answers whether one leads, Redis' clock, up to when all servers have
# told, the newest snapshot's revision, then replicas and times.
MEET: Final = Script("""
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local clock = string.format('%.0f', now)
local leader = redis.call('GET', KEYS[1])
if not leader then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  leader = ARGV[1]
elseif leader == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
for i = 6, #ARGV do redis.call('ZADD', KEYS[3], clock, ARGV[i]) end
local told = ARGV[3]
if told == '0' or tonumber(told) > now then told = clock end
redis.call('ZADD', KEYS[2], told, ARGV[1])
local gone = string.format('%.0f', now - 1000 * tonumber(ARGV[2]))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', gone)
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now - tonumber(ARGV[5])))
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
local snapshot = redis.call('HGET', KEYS[4], 'snapshot_revision')
local heard = redis.call('ZRANGEBYSCORE', KEYS[3], ARGV[4], '+inf', 'WITHSCORES')
return {leader == ARGV[1] and 1 or 0, clock, first[2] or clock, snapshot or '0', heard}
""")

# KEYS leader, servers; ARGV one's name.
LEAVE: Final = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return redis.call('ZREM', KEYS[2], ARGV[1])
""")

# Nobody's lease is longer, so who has not been heard from for so long has none.
REMEMBER_US: Final = round((limits.LEASE_TTL_S_MAX + 3600) * 1e6)


class Peers:
    """This server among those that share its journal; see `Leadership`.

    `leased` gives the replicas that have a lease: of them alone it matters when they were heard
    from. `returned` is called when this server was out of touch and is back: nobody could be
    heard meanwhile. It is given the seconds in which other servers may come back too.
    """

    def __init__(
        self,
        link: Link,
        keys: Keys,
        heard: Heard,
        leased: Callable[[], Collection[ReplicaKey]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.returned: list[Callable[[float], None]] = []
        self.name = secrets.token_hex(8)
        self.snapshot_revision = 0
        self._link = link
        self._keys = [keys.key("leader"), keys.key("servers"), keys.key("heard"), keys.head]
        self._heard = heard
        self._leased = leased
        self._clock = clock
        self._leads = False
        self._met_s: float | None = None  # when the last meeting began that came about
        # Redis' clock at the last meeting, in microseconds, and when its answer was here.
        self._met_us = 0
        self._answered_s = 0.0
        self._one_at_a_time = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        heard.share()

    @property
    def leads(self) -> bool:
        """Whether this server leads: surely no longer than Redis says so."""
        return self._leads and self.in_touch

    @property
    def in_touch(self) -> bool:
        """Whether the last meeting is not long ago."""
        return self._met_s is not None and self._clock() - self._met_s < IN_TOUCH_S_MAX

    async def start(self) -> None:
        """Meet the others, and go on doing so."""
        await self._meet()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(_ended)

    async def close(self) -> None:
        """Take leave, so that another one leads at once."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._leads = False
        if self.in_touch:
            with suppress(*FAILURES):
                async with asyncio.timeout(MEET_TIMEOUT_S):
                    await self._link.run(LEAVE, self._keys[:2], self.name)

    async def judges_until_s(self) -> float | None:
        """Meet the others now."""
        told_s = await self._meet()
        return told_s if self._leads else None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(MEET_S)
            await self._meet()

    async def _meet(self) -> float | None:
        """One meeting; up to when all have told, on this server's clock; None if it fails."""
        async with self._one_at_a_time:
            began_s = self._clock()
            leased = self._leased()
            told = [key for key in self._heard.take_news() if key in leased]
            try:
                async with asyncio.timeout(MEET_TIMEOUT_S):
                    answer = await self._link.run(MEET, self._keys, *self._words(began_s, told))
            except FAILURES as error:
                self._heard.give_back_news(told)
                self._missed(error)
                return None
            except BaseException:
                self._heard.give_back_news(told)
                raise
            return self._learn(answer, began_s)

    def _words(self, began_s: float, told: Sequence[ReplicaKey]) -> list[str | int]:
        told_us = since_us = 0
        if self._met_us:
            # Redis' clock was past _met_us when the last answer came; so much it has moved on
            # since, at least.
            told_us = self._met_us + int((began_s - self._answered_s) * 1e6)
            since_us = self._met_us
        return [
            self.name, round(GONE_S * 1000), told_us, since_us, REMEMBER_US, *map(_name_of, told)
        ]  # fmt: skip

    def _learn(self, answer: Any, began_s: float) -> float:
        leads, now_us, told_us, snapshot_revision, heard = answer
        answered_s = self._clock()
        for name, at_us in zip(heard[::2], heard[1::2], strict=True):
            self._heard.note_at(_key_of(name), answered_s - (int(now_us) - int(at_us)) / 1e6)
        if leads and not self._leads:
            _log.info("this server ends leases and takes snapshots from now on")
        self._leads = bool(leads)
        self.snapshot_revision = int(snapshot_revision)
        out_of_touch = self._met_s is not None and answered_s - self._met_s > IN_TOUCH_S_MAX
        self._met_s, self._answered_s, self._met_us = began_s, answered_s, int(now_us)
        if out_of_touch:
            _log.warning("out of touch with the other servers for a while: leases run anew")
            for each in self.returned:
                each(GONE_S)
        return began_s - (int(now_us) - int(told_us)) / 1e6

    def _missed(self, error: BaseException) -> None:
        if self._leads and not self.in_touch:
            self._leads = False
            _log.warning("out of touch with the other servers: %s", reason(error))


def _name_of(key: ReplicaKey) -> str:
    return json.dumps(key, separators=(",", ":"))


def _key_of(name: bytes) -> ReplicaKey:
    tenant_id, replica_id = json.loads(name)
    return tenant_id, replica_id


def _ended(task: asyncio.Task[None]) -> None:
    """The task runs for ever; where a bug ends it, say so instead of keeping quiet."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("this server meets the others no more: restart it", exc_info=error)
