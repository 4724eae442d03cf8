"""What was delivered of one publisher: how far it is whole, and what may still come twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import xxhash

from warmindex_subscriber.kv.actions import Deliver
from warmindex_subscriber.kv.framing import Frame
from warmindex_subscriber.kv.lesson import Lesson

# Replayed batches whose live twins may still be on their way.
TWINS_MAX: Final = 16_384


class Delivered:
    """The end of what was delivered.

    next: the number that is to come; None where whichever comes is the first.
    last_payload: the batch before it. whole_since: the number from which on none is missing.
    """

    def __init__(self) -> None:
        self.next: int | None = None
        self.last_payload = b""
        self.whole_since: int | None = None
        self._live_last = -1
        # Digests of batches that a replay brought and the live socket has not yet.
        self._twins: dict[int, int] = {}

    def live(self, frame: Frame) -> Deliver:
        """Deliver a live batch, the one that is to come."""
        self._twins.clear()
        return self.kept(frame)

    def kept(self, frame: Frame) -> Deliver:
        """The same while a replay is learned, whose batches are compared with it."""
        self._live_last = frame.sequence
        return self._go_on(frame)

    def replayed(self, frame: Frame) -> Deliver:
        """Deliver a batch of a replay."""
        self.expect_twin(frame)
        return self._go_on(frame)

    def expect_twin(self, frame: Frame) -> None:
        """Note a batch that a replay brought: the live socket may bring it too."""
        self._twins[frame.sequence] = _digest(frame)
        if len(self._twins) > TWINS_MAX:
            del self._twins[next(iter(self._twins))]

    def repeats(self, frame: Frame) -> bool:
        """Whether the live batch was delivered already: just now, or by a replay."""
        if frame.sequence + 1 == self.next and frame.payload == self.last_payload:
            return True
        if frame.sequence <= self._live_last:
            return False
        if self._twins.get(frame.sequence) != _digest(frame):
            return False
        self._live_last = frame.sequence
        return True

    def void(self) -> None:
        """Nothing that was delivered counts any more."""
        self.next = None
        self.whole_since = None
        self.forget_twins()

    def forget_twins(self) -> None:
        """A replay begins, or a life ended: what comes twice comes of what follows."""
        self._live_last = -1
        self._twins.clear()

    def adopt(self, lesson: Lesson, held: Sequence[Frame]) -> None:
        """Go on from what a replay taught. `held` are the live batches that come now."""
        self.next, self.whole_since = lesson.next, lesson.whole_since
        self.last_payload = lesson.last_payload
        if held:
            self._live_last = held[0].sequence - 1

    def knows_better_than(self, lesson: Lesson, held: Sequence[Frame]) -> bool:
        """Whether it reaches as far back as the lesson, and as far on.

        A replay that ends before what was delivered is of another life, and is believed.
        """
        if self.whole_since is None or lesson.whole_since is None:
            return False
        caught_up = bool(held) or (lesson.next or 0) >= (self.next or 0)
        return caught_up and self.whole_since <= lesson.whole_since

    def _go_on(self, frame: Frame) -> Deliver:
        if self.whole_since is None:
            self.whole_since = frame.sequence
        self.next = frame.sequence + 1
        self.last_payload = frame.payload
        return Deliver(frame.payload)


def _digest(frame: Frame) -> int:
    return xxhash.xxh3_64_intdigest(frame.payload)
