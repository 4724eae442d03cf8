"""What a replay from 0 has taught so far: from which number on it is whole, and up to which."""

from __future__ import annotations

from warmindex_subscriber.kv.actions import Action, Forget, Learn
from warmindex_subscriber.kv.framing import Frame


class Lesson:
    """One attempt to learn all that a publisher holds."""

    def __init__(self) -> None:
        # Both None before the first batch.
        self.whole_since: int | None = None
        self.next: int | None = None
        self.last_payload = b""
        self.holes = 0

    def learn(self, frame: Frame) -> list[Action]:
        """Take a batch in. What is before a hole may have ended in it, and is forgotten."""
        actions: list[Action] = []
        if self.next is not None and frame.sequence != self.next:
            self.holes += 1
            self.whole_since = None
            actions.append(Forget())
        if self.whole_since is None:
            self.whole_since = frame.sequence
        self.next = frame.sequence + 1
        self.last_payload = frame.payload
        actions.append(Learn(frame.payload))
        return actions
