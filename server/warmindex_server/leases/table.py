"""Which leases run, and which are over: the rules, without a clock of their own.

A lease ends `ttl_s` after its replica's last sign of life, or after it began here: when it
was set, when the server started, or when the server took part again after it had been held
up. Signs of life are not counted here: the table asks for the last one when the lease's time
has come, so a renewal costs the lease nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from warmindex.record import LeaseState

from warmindex_server.deadlines import Deadlines, Timed
from warmindex_server.replicas import ReplicaKey

# More than these wait for the next step; each takes records of its own.
ENDED_PER_STEP: Final = 256


class RunningLease(Timed):
    """A lease as it runs on this server; `generation` is the revision that set it."""

    __slots__ = ("began_s", "generation", "key", "ttl_s")

    def __init__(self, state: LeaseState, began_s: float) -> None:
        self.ttl_s = state.ttl_ms / 1000
        super().__init__(began_s + self.ttl_s)
        self.key: ReplicaKey = (state.tenant_id, state.replica_id)
        self.generation = state.generation
        self.began_s = began_s


class LeaseTable:
    """The leases; `last_heard_s` gives a replica's last sign of life. Times are in seconds."""

    def __init__(self, last_heard_s: Callable[[ReplicaKey], float | None]) -> None:
        self._last_heard_s = last_heard_s
        self._leases: dict[ReplicaKey, RunningLease] = {}
        self._deadlines: Deadlines[RunningLease] = Deadlines()

    @property
    def next_s(self) -> float | None:
        """When to call `over` again; None while no lease runs."""
        return self._deadlines.next_s

    def begin_all(self, leases: Iterable[LeaseState], now_s: float) -> None:
        """Forget what there was; each of these runs from now on."""
        for lease in self._leases.values():
            self._deadlines.drop(lease)
        self._leases.clear()
        for state in leases:
            self.set(state, now_s)

    def set(self, state: LeaseState, now_s: float) -> None:
        """A lease was set, or replaced."""
        lease = RunningLease(state, now_s)
        self.end(lease.key)
        self._leases[lease.key] = lease
        self._deadlines.put(lease)

    def end(self, key: ReplicaKey) -> None:
        """A lease has been ended."""
        lease = self._leases.pop(key, None)
        if lease is not None:
            self._deadlines.drop(lease)

    def begin_again(self, from_s: float) -> None:
        """The server could not listen for a while: silence up to then proves nothing."""
        for lease in self._leases.values():
            lease.began_s = max(lease.began_s, from_s)

    def late(self, key: ReplicaKey, now_s: float) -> bool:
        """Whether a lease's replica was silent for as long as it lasts, or since ever.

        By what was heard alone, whenever the lease began here: another server may be about to
        end it.
        """
        lease = self._leases.get(key)
        if lease is None:
            return False
        heard_s = self._last_heard_s(key)
        return heard_s is None or heard_s + lease.ttl_s <= now_s

    def ends_s(self, key: ReplicaKey) -> float | None:
        """When a lease is over if nothing more is heard; None where there is none."""
        lease = self._leases.get(key)
        return self._ends_s(lease) if lease is not None else None

    def over(self, now_s: float) -> list[RunningLease]:
        """Leases that are over, a few at a time; each is to be ended, or put back."""
        found = []
        for lease in self._deadlines.due(now_s, ENDED_PER_STEP):
            lease.due_s = self._ends_s(lease)
            if lease.due_s > now_s:
                self._deadlines.put(lease)
            else:
                found.append(lease)
        return found

    def put_back(self, lease: RunningLease, look_s: float) -> None:
        """Look at a lease again at `look_s`, where it still runs and has not been replaced."""
        if self._leases.get(lease.key) is lease:
            lease.due_s = max(look_s, self._ends_s(lease))
            self._deadlines.put(lease)

    def _ends_s(self, lease: RunningLease) -> float:
        heard_s = self._last_heard_s(lease.key)
        began_s = lease.began_s if heard_s is None else max(lease.began_s, heard_s)
        return began_s + lease.ttl_s
