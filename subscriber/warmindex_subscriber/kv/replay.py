"""When the replay under way counts as failed, and when the next one is due."""

from __future__ import annotations

from typing import Final

# A replay is answered between two publishes, about 0.1 s apart, and then streams; live
# batches wait no longer than this for one that is not answered.
REPLAY_SILENCE_S: Final = 2.0
# After a replay that failed the next is tried later and later.
RETRY_S_MIN: Final = 1.0
RETRY_S_MAX: Final = 60.0

# Who has sent nothing for so long may have sent what was lost: it is asked for its last batch.
AUDIT_S: Final = 15.0
# A publisher that is gone for so long holds nothing that could be relied on; clearing
# sooner would make a broken connection cost what its replay saves.
AWAY_S: Final = 10.0
# When a publisher was lost that has been given up: its clock stands still.
GIVEN_UP: Final = float("inf")


class Replay:
    """Deadlines of one publisher's replays. Knows no clock: `now` is an argument."""

    def __init__(self, silence_s: float = REPLAY_SILENCE_S) -> None:
        self._silence_s = silence_s
        self._silent_at = 0.0
        self._retry_s = RETRY_S_MIN
        self._retry_at: float | None = None
        self._quiet_since = 0.0

    @property
    def retry_pending(self) -> bool:
        """Whether one has failed and the next has not begun."""
        return self._retry_at is not None

    def begin(self, now: float) -> None:
        """One is asked for."""
        self._silent_at = now + self._silence_s

    def live(self, now: float) -> None:
        """The publisher has sent something by itself."""
        self._quiet_since = now

    def audit_due(self, now: float) -> bool:
        """Whether it has not for so long that the end may have been lost; once each time."""
        due = now - self._quiet_since >= AUDIT_S
        if due:
            self._quiet_since = now
        return due

    def heard(self, now: float) -> None:
        """It is alive."""
        self._silent_at = now + self._silence_s

    def silent(self, now: float) -> bool:
        """Whether nothing has come of it for too long."""
        return now >= self._silent_at

    def retry_later(self, now: float) -> None:
        """It failed."""
        self._retry_at = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_S_MAX)

    def retry_due(self, now: float) -> bool:
        """Whether it is time for the next."""
        return self._retry_at is not None and now >= self._retry_at

    def retry_never(self) -> None:
        """No further one is owed."""
        self._retry_at = None

    def succeeded(self) -> None:
        """The next failure is the first again."""
        self._retry_s = RETRY_S_MIN
