"""Who holds which claim until when: the rules, without a clock of their own.

    take      free, or its time is over   MINE, while `most` and the table's limit allow
              the claimant's own          MINE, for another `ttl_s`
              another's                   OTHERS
    end       a vector has come           gone, whoever holds it
    release   by its claimant             gone; by anybody else nothing happens
    expire    its time is over            gone

A claim whose time is over counts as gone at once, also before `expire` has taken it out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

from warmindex.event import PartitionKey

from warmindex_server.claims.base import Claimant, Standing
from warmindex_server.deadlines import Deadlines, Timed

# A claim takes about 400 bytes: 50 MB in all. No fleet computes as many texts in the half
# minute that a claim lives; past it callers compute without one.
CLAIMS_MAX: Final = 2**17
# So many are taken out in about a millisecond.
EXPIRED_PER_STEP: Final = 1024


class Claim(Timed):
    """One key in one claimant's hands, until `due_s`."""

    __slots__ = ("claimant_id", "content_hash", "key")

    def __init__(
        self, key: PartitionKey, content_hash: bytes, claimant_id: str, due_s: float
    ) -> None:
        super().__init__(due_s)
        self.key = key
        self.content_hash = content_hash
        self.claimant_id = claimant_id


class ClaimTable:
    """The claims of all partitions; every time is `now_s`, in seconds of one steady clock."""

    def __init__(self, claims_max: int = CLAIMS_MAX) -> None:
        self.claims_max = claims_max
        self._partitions: dict[PartitionKey, dict[bytes, Claim]] = {}
        self._deadlines: Deadlines[Claim] = Deadlines()
        self._count = 0

    def __len__(self) -> int:
        """Count the claims, those among them whose time is just over."""
        return self._count

    @property
    def next_s(self) -> float | None:
        """When to call `expire` again; None while there is nothing to expire."""
        return self._deadlines.next_s

    def take(
        self, key: PartitionKey, hashes: Iterable[bytes], claimant: Claimant, now_s: float
    ) -> list[Standing]:
        """Give the claimant what is free, in order; the standing of each of the keys."""
        claims = self._partitions.setdefault(key, {})
        left = claimant.most
        due_s = now_s + claimant.ttl_s
        standings = []
        for content_hash in hashes:
            claim = claims.get(content_hash)
            if claim is not None and claim.due_s > now_s:
                mine = claim.claimant_id == claimant.claimant_id
                standings.append(Standing.MINE if mine else Standing.OTHERS)
                if mine:
                    claim.due_s = due_s
                    self._deadlines.put(claim)
            elif left and (claim is not None or self._count < self.claims_max):
                if claim is not None:
                    self._drop(claims, claim)
                left -= 1
                claim = claims[content_hash] = Claim(key, content_hash, claimant.claimant_id, due_s)
                self._count += 1
                self._deadlines.put(claim)
                standings.append(Standing.MINE)
            else:
                standings.append(Standing.NOBODY)
        self._forget_if_empty(key)
        return standings

    def look(self, key: PartitionKey, hashes: Iterable[bytes], now_s: float) -> list[Standing]:
        """The standing of keys for a caller that asks for no claims."""
        return [
            Standing.OTHERS if self.holds(key, content_hash, now_s) else Standing.NOBODY
            for content_hash in hashes
        ]

    def note(self, key: PartitionKey, content_hash: bytes, due_s: float) -> None:
        """Somebody elsewhere has a key until then, as another table says."""
        claims = self._partitions.setdefault(key, {})
        claim = claims.get(content_hash)
        if claim is None:
            claim = claims[content_hash] = Claim(key, content_hash, "", due_s)
            self._count += 1
        claim.due_s = due_s
        self._deadlines.put(claim)

    def clear(self) -> None:
        """Forget all."""
        self._partitions.clear()
        self._deadlines = Deadlines()
        self._count = 0

    def holds(self, key: PartitionKey, content_hash: bytes, now_s: float) -> bool:
        """Whether somebody computes the key."""
        claims = self._partitions.get(key)
        claim = claims.get(content_hash) if claims else None
        return claim is not None and claim.due_s > now_s

    def claimed(self, key: PartitionKey) -> Container[bytes]:
        """The keys of a partition that have a claim, or had one until `expire` is called."""
        return self._partitions.get(key, ())

    def end(self, key: PartitionKey, hashes: Sequence[bytes]) -> list[bytes]:
        """Vectors have come for some keys: end their claims. Those that had one."""
        claims = self._partitions.get(key)
        if not claims:
            return []
        ended = [content_hash for content_hash in hashes if content_hash in claims]
        for content_hash in ended:
            self._drop(claims, claims[content_hash])
        self._forget_if_empty(key)
        return ended

    def release(
        self, key: PartitionKey, hashes: Iterable[bytes], claimant_id: str, now_s: float
    ) -> list[bytes]:
        """End the claimant's own claims on some keys. Those that it had."""
        claims = self._partitions.get(key, {})
        released = []
        for content_hash in hashes:
            claim = claims.get(content_hash)
            if claim is not None and claim.claimant_id == claimant_id and claim.due_s > now_s:
                self._drop(claims, claim)
                released.append(content_hash)
        self._forget_if_empty(key)
        return released

    def expire(self, now_s: float) -> dict[PartitionKey, list[bytes]]:
        """Take out claims whose time is over, EXPIRED_PER_STEP at most. What has become free."""
        freed: dict[PartitionKey, list[bytes]] = {}
        for claim in self._deadlines.due(now_s, EXPIRED_PER_STEP):
            self._drop(self._partitions[claim.key], claim)
            self._forget_if_empty(claim.key)
            freed.setdefault(claim.key, []).append(claim.content_hash)
        return freed

    def _drop(self, claims: dict[bytes, Claim], claim: Claim) -> None:
        del claims[claim.content_hash]
        self._deadlines.drop(claim)
        self._count -= 1

    def _forget_if_empty(self, key: PartitionKey) -> None:
        if not self._partitions.get(key, True):
            del self._partitions[key]
