"""What a publisher has done, as plain numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class PublisherCounters:
    """Counts since the start, of events except where something else is said."""

    accepted: int = 0
    acknowledged: int = 0
    # Sent again where a connection was lost, or a quota was reached.
    repeated: int = 0
    # Dropped, for a report includes them.
    superseded: int = 0
    refused: int = 0
    limited: int = 0
    fenced: int = 0
    reports: int = 0
    reports_wanted: int = 0
    probes: int = 0
    streams: int = 0
    streams_failed: int = 0
    histories: int = 0

    def seen(self) -> dict[str, int]:
        """Those above zero, for a line of the log."""
        return {name: value for name, value in asdict(self).items() if value}
