"""ZMQ frames -> topic, sequence number, payload. Pure.

    live     [topic, sequence, payload]
    replay   [b"", sequence, payload], newer engines [b"", topic, sequence, payload]
    its end  [b"", ff*8, b""], newer engines [b"", b"", ff*8, b""]

Both are read from the end, where they agree. A request is [b"", start]: without the empty
frame in front the engine does not answer at all.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

_SEQUENCE: Final = struct.Struct(">Q")
END_SEQUENCE: Final = 2**64 - 1
TOPIC_PARTS_MAX: Final = 3
_SEPARATOR: Final = "@"


class Frame(NamedTuple):
    """One batch on the wire."""

    sequence: int
    payload: bytes


class ReplayEnd(NamedTuple):
    """The engine has sent all that it still has."""


class Topic(NamedTuple):
    """A topic of the form kind@address@model; what is missing is empty."""

    kind: str
    address: str = ""
    model: str = ""


def parse_live(parts: Sequence[bytes]) -> tuple[bytes, Frame] | None:
    """Topic and frame; None where it is no live message."""
    if len(parts) < 2:
        return None
    sequence = _sequence(parts[-2])
    if sequence is None or sequence == END_SEQUENCE:
        return None
    return (parts[0] if len(parts) > 2 else b""), Frame(sequence, parts[-1])


def parse_replay(parts: Sequence[bytes]) -> Frame | ReplayEnd | None:
    """A frame or the end of a replay; None where it is neither."""
    if len(parts) < 2:
        return None
    sequence = _sequence(parts[-2])
    if sequence is None:
        return None
    if sequence == END_SEQUENCE:
        return ReplayEnd() if not parts[-1] else None
    return Frame(sequence, parts[-1])


def replay_request(start: int) -> list[bytes]:
    """What a DEALER sends to ask for everything from `start` on."""
    return [b"", _SEQUENCE.pack(start)]


def parse_topic(topic: str) -> Topic:
    """Split from the left, so that a model's name keeps its own "@"."""
    return Topic(*topic.split(_SEPARATOR, TOPIC_PARTS_MAX - 1))


def topic_matches(wanted: bytes, topic: bytes) -> bool:
    """Whether a message with `topic` is for a subscriber of `wanted`; empty wants all.

    ZMQ compares prefixes of bytes, so that "kv" is sent "kv-other" too. Here whole parts
    count: "kv" is "kv" and "kv@10.0.0.9@acme/m", and not "kv-other".
    """
    if not wanted or topic == wanted:
        return True
    return topic.startswith(wanted + _SEPARATOR.encode())


def _sequence(part: bytes) -> int | None:
    if len(part) != _SEQUENCE.size:
        return None
    number: int = _SEQUENCE.unpack(part)[0]
    return number
