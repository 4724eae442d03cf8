"""What `order` asks of the shell, in order."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Deliver(NamedTuple):
    """Apply the payload to what is published."""

    payload: bytes


class Clear(NamedTuple):
    """What was published can no longer be vouched for: nothing is held."""

    reason: str


class Learn(NamedTuple):
    """Apply the payload to what is being learned, beside what is published."""

    payload: bytes


class Forget(NamedTuple):
    """What is being learned is void: begin with nothing."""


class Adopt(NamedTuple):
    """What was learned takes the place of what is published, and is reported in full."""


class StartReplay(NamedTuple):
    """Ask for all batches from a number on, over a fresh connection."""

    start: int


class StopReplay(NamedTuple):
    """Nothing of the replay is needed any more."""


Action: TypeAlias = Deliver | Clear | Learn | Forget | Adopt | StartReplay | StopReplay
