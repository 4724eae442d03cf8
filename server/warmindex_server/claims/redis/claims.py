"""Claims of servers that share a Redis.

    take      one script; a key that may have come already is known by the journal's end, which
              the script gives along
    end       a vector that is applied here ends the claims made before it: told to Redis soon,
              and in any case before this server takes again
    release   one script; a stream tells the servers at which calls wait
    over      by Redis' clock; calls that wait are told how much is left when they look

While Redis is away nobody has a claim and none is given: callers compute without one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import islice
from math import ceil
from typing import Final

from redis.exceptions import ConnectionError as RedisConnectionError
from warmindex import limits
from warmindex.errors import JournalUnavailableError
from warmindex.event import PartitionKey

from warmindex_server.claims.base import Claimant, Standing, Taken, Waiting
from warmindex_server.claims.here import ClaimsHere
from warmindex_server.claims.redis.freed import Freed
from warmindex_server.claims.redis.scripts import END, RELEASE, TAKE
from warmindex_server.claims.table import CLAIMS_MAX
from warmindex_server.journal.redis.keys import Keys
from warmindex_server.journal.redis.link import FAILURES, Link, reason

_log = logging.getLogger(__name__)

# A claim saves seconds of work, so it is worth a short wait; past that the work is done without.
TAKE_S_MAX: Final = 3.0
# Who claims nothing is only told whether somebody else computes: that is worth less.
LOOK_S_MAX: Final = 1.0
# Vectors that came are told together with those that come within this time.
TELL_S: Final = 0.05
# While Redis does not answer.
RETRY_S: Final = 1.0
# Keys whose vectors came and of which Redis has not been told. Those beyond it end by time.
UNTOLD_MAX: Final = 2**17
# Keys in one script: about a millisecond.
TOLD_PER_CALL: Final = 2000

DIGEST_BYTES: Final = 16


class RedisClaims(ClaimsHere):
    """See `Claims` for the contract. `problem` says why the journal is away, or ""."""

    def __init__(
        self,
        link: Link,
        keys: Keys,
        problem: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
        claims_max: int = CLAIMS_MAX,
    ) -> None:
        super().__init__(clock, claims_max)
        self._link = link
        self._problem = problem
        claims, due, freed = (keys.key(f"claims{part}") for part in ("", "-due", "-freed"))
        self._take_keys = [keys.head, claims, due, freed]
        self._release_keys = [claims, due, freed]
        self._end_keys = [claims, due]
        self._freed = Freed(link, freed, self._waiters, problem)
        # One call at a time, in the order in which they come: who is first in line gets first.
        self._turn = asyncio.Lock()
        self._hung_s = float("-inf")
        # What Redis is to be told: a field, and the revision that brought its vector.
        self._untold: deque[tuple[bytes, int]] = deque(maxlen=UNTOLD_MAX)
        self._telling = asyncio.Lock()
        self._teller: asyncio.Task[None] | None = None

    # ---- taking and giving up ------------------------------------------------------------

    async def take(
        self, key: PartitionKey, hashes: Sequence[bytes], claimant: Claimant | None
    ) -> Taken:
        """NOBODY has any of them, and none is given, where Redis does not answer in time."""
        nobody = Taken([Standing.NOBODY] * len(hashes))
        try:
            async with asyncio.timeout(LOOK_S_MAX if claimant is None else None), self._turn:
                if self._problem() or self._clock() < self._hung_s + RETRY_S:
                    return nobody
                return await self._take_soon(key, hashes, claimant)
        except TimeoutError:
            return nobody
        except FAILURES as error:
            _log.warning("no claims just now, Redis does not answer: %s", reason(error))
            return nobody

    async def _take_soon(
        self, key: PartitionKey, hashes: Sequence[bytes], claimant: Claimant | None
    ) -> Taken:
        """One attempt, or two: a connection that was cut while it was idle is no outage."""
        try:
            async with asyncio.timeout(TAKE_S_MAX):
                try:
                    await self._tell()
                    return await self._take(key, hashes, claimant)
                except RedisConnectionError:
                    await self._tell()
                    return await self._take(key, hashes, claimant)
        except TimeoutError:
            _log.warning("no claims just now: Redis has not answered for %.0f s", TAKE_S_MAX)
            # Those behind in the line need not find out one after the other.
            self._hung_s = self._clock()
            raise

    async def _take(
        self, key: PartitionKey, hashes: Sequence[bytes], claimant: Claimant | None
    ) -> Taken:
        claimant_id, ttl_s, most = claimant or ("", 0.0, 0)
        revision, freed_id, *states = await self._link.run(
            TAKE, self._take_keys, claimant_id, ceil(ttl_s * 1000), most, self._table.claims_max,
            round(limits.CLAIM_TTL_S_MAX * 1000), digest_of(key), *hashes,
        )  # fmt: skip
        self._freed.looked(freed_id.decode())
        now_s = self._clock()
        standings = []
        for content_hash, state in zip(hashes, states, strict=True):
            if state > 0:
                self._table.note(key, content_hash, now_s + state / 1000)
                standings.append(Standing.OTHERS)
            else:
                standings.append(Standing.MINE if state else Standing.NOBODY)
        self._arm()
        return Taken(standings, int(revision))

    async def release(self, key: PartitionKey, hashes: Sequence[bytes], claimant_id: str) -> int:
        """Raises JournalUnavailableError where Redis does not answer: they end by time."""
        if not hashes:
            return 0
        if problem := self._problem():
            raise JournalUnavailableError(f"claims cannot be given up, Redis is away: {problem}")
        try:
            async with self._turn, asyncio.timeout(TAKE_S_MAX):
                released = await self._link.run(
                    RELEASE, self._release_keys, claimant_id, digest_of(key), *hashes
                )
        except FAILURES as error:
            raise self._link.unavailable("giving up claims", error) from error
        return int(released)

    # ---- waiting -------------------------------------------------------------------------

    @contextmanager
    def waiting(self, key: PartitionKey, *, wants: bool) -> Iterator[Waiting]:
        """Line up; who waits hears of what is given up at other servers too."""
        with super().waiting(key, wants=wants) as call, self._freed.watched(key, digest_of(key)):
            yield call

    def waits(self) -> None:
        """Read what is given up, from where calls have looked on."""
        self._freed.start()

    def loaded(self) -> None:
        """The journal was loaded anew: what came meanwhile was not told one by one."""
        self._untold.clear()
        self._table.clear()
        self._freed.begin_again()
        super().loaded()

    def close(self) -> None:
        """Nobody waits any longer."""
        super().close()
        self._freed.close()
        if self._teller is not None:
            self._teller.cancel()

    # ---- vectors that came ---------------------------------------------------------------

    def arrived(self, key: PartitionKey, hashes: Sequence[bytes], revision: int) -> None:
        """Let calls here go on at once, and tell Redis soon."""
        super().arrived(key, hashes, revision)
        digest = digest_of(key)
        self._untold.extend((digest + content_hash, revision) for content_hash in hashes)
        if self._teller is None and not self._closed:
            self._teller = asyncio.create_task(self._tell_soon())

    async def _tell_soon(self) -> None:
        try:
            await asyncio.sleep(TELL_S)
            while self._untold:
                try:
                    await self._tell()
                except FAILURES:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._teller = None

    async def _tell(self) -> None:
        """End what was claimed before the vectors came; raises FAILURES, and nothing is lost."""
        if not self._untold and not self._telling.locked():
            return
        async with self._telling:
            telling, self._untold = self._untold, deque(maxlen=UNTOLD_MAX)
            try:
                # Most vectors come without a claim, where fleets fill an index. What is claimed
                # from now on is newer than all these records.
                if telling and not await self._link.call("EXISTS", self._end_keys[0]):
                    telling.clear()
                while telling:
                    part = list(islice(telling, TOLD_PER_CALL))
                    words: list[bytes | int] = [word for pair in part for word in pair]
                    await self._link.run(END, self._end_keys, *words)
                    for _ in part:
                        telling.popleft()
            finally:
                self._untold.extendleft(reversed(telling))


def digest_of(key: PartitionKey) -> bytes:
    """What stands for a partition in Redis."""
    digest = blake2b(digest_size=DIGEST_BYTES)
    for word in key:
        data = word.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.digest()
