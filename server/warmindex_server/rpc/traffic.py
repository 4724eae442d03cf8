"""The calls under way, counted, so that a server can leave when nobody is in the middle of one.

gRPC's own way to stop cancels what has reached the machine and not yet a handler: on a busy
server hundreds of publishes, each told CANCELLED, which nobody retries. So a server that
leaves first goes on answering until what had arrived is answered, then refuses what still
comes with UNAVAILABLE, which sends callers elsewhere, and stops when that has ebbed away.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Final

from warmindex.errors import ShuttingDownError

# A handler is begun for whatever has arrived, one after the other. Where none is begun for
# this long, nothing is waiting, also on a machine that is busy with other things.
QUIET_S: Final = 0.1
# Callers that never look at health, and never stop, are answered for this long.
ANSWERED_S_MAX: Final = 1.0


class Traffic:
    """Counts calls: `with traffic:` is one. Refuses them where the server has said goodbye."""

    def __init__(self) -> None:
        self._begun = 0
        self._active = 0
        self._refusing = False
        self._idle = asyncio.Event()

    def __enter__(self) -> None:
        if self._refusing:
            raise ShuttingDownError("the server is going away: ask another one, or again")
        self._begun += 1
        self._active += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._active -= 1
        if self._refusing and not self._active:
            self._idle.set()

    async def ebb(self, within_s: float) -> None:
        """Return when all that has arrived is answered, or when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._quiet(min(ANSWERED_S_MAX, within_s / 2))
                self._refusing = True
                if self._active:
                    await self._idle.wait()
                # What is refused is told so before the connection goes.
                await asyncio.sleep(QUIET_S)

    async def _quiet(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                begun = -1
                while begun != self._begun:
                    begun = self._begun
                    await asyncio.sleep(QUIET_S)
