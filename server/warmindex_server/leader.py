"""Who does what only one server is to do: ending leases, taking snapshots.

Servers that share a journal have one leader among them. It is a matter of saving work: whatever
a leader does by itself holds also where two servers take themselves for it for a moment, for
its records carry what they were judged on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Leadership(Protocol):
    """What a server knows of the leader, and of what the others have heard."""

    @property
    def leads(self) -> bool:
        """Whether it is this server, as far as it knows without asking."""

    @property
    def in_touch(self) -> bool:
        """Whether the others will learn of what is heard here, and soon enough."""

    @property
    def snapshot_revision(self) -> int:
        """The revision of the newest snapshot that anyone has taken; 0 where none is known."""

    async def judges_until_s(self) -> float | None:
        """Ask. None where another server leads, or where nobody can be asked.

        Else a time on this server's clock: of all that any server has heard up to then, this
        one knows, so up to then silence is silence.
        """


class Alone:
    """A server that shares its journal with no one."""

    leads = True
    in_touch = True
    snapshot_revision = 0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    async def judges_until_s(self) -> float | None:
        """It hears everybody itself."""
        return self._clock()
