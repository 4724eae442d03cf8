"""Live batches that wait for a replay."""

from __future__ import annotations

from typing import Final

from warmindex_subscriber.kv.framing import Frame

# As many batches as engines keep for a replay: what overflows could be asked for again.
HELD_FRAMES_MAX: Final = 10_000
HELD_BYTES_MAX: Final = 256 * 2**20


class Held:
    """Live batches in order. Bounded: `full` is the caller's to heed."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.frames)

    @property
    def first(self) -> int:
        """The lowest number."""
        return self.frames[0].sequence

    @property
    def full(self) -> bool:
        """Whether no more should be held."""
        return len(self.frames) >= HELD_FRAMES_MAX or self._bytes >= HELD_BYTES_MAX

    def falls_back(self, frame: Frame) -> bool:
        """Whether the batch cannot come after these."""
        return bool(self.frames) and frame.sequence <= self.frames[-1].sequence

    def add(self, frame: Frame) -> None:
        """Hold one more."""
        self.frames.append(frame)
        self._bytes += len(frame.payload)

    def take(self) -> list[Frame]:
        """All of them, held no longer."""
        frames, self.frames = self.frames, []
        self._bytes = 0
        return frames
