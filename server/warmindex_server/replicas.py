"""When each replica was last heard from. A matter of this server's clock, never of the index."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from warmindex.event import CacheEvent, Cause
from warmindex.record import Conditional, Report, UsedNumber

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmindex.index import Applied
    from warmindex.record import Record


class Heard:
    """Notes each producer's last sign of life; a listener of the store."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at_s: dict[tuple[str, str], float] = {}

    def applied(self, record: Record, applied: Applied) -> None:  # noqa: ARG002 - any verdict counts
        """A record of the producer's own is a sign of life; one that a server made is not."""
        if isinstance(record, Conditional):
            record = record.record
        if (isinstance(record, CacheEvent) and record.cause is Cause.NONE) or isinstance(
            record, UsedNumber | Report
        ):
            self.note(record.tenant_id, record.replica_id)

    def note(self, tenant_id: str, replica_id: str) -> None:
        """The replica has just been heard from."""
        self._at_s[tenant_id, replica_id] = self._clock()

    def ago_s(self, tenant_id: str, replica_id: str) -> float | None:
        """Seconds since the replica was heard from; None if it never was since the start."""
        at_s = self._at_s.get((tenant_id, replica_id))
        return None if at_s is None else max(0.0, self._clock() - at_s)
