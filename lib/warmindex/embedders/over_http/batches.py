"""How texts are cut into requests, and how a request is cut again. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

# A server that says nothing, or nonsense, is taken to be a TEI with its default.
BATCH_TEXTS_DEFAULT: Final = 32
# Fewer texts than this are not spread over replicas: the request would cost more.
_SPREAD_TEXTS_MIN: Final = 8


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold: texts, and bytes of JSON."""

    texts: int
    body_bytes: int


def json_bytes(text: str) -> int:
    """The bytes of a text in a JSON body, with quotes and comma."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8")) + 1


def cut(sizes: Sequence[int], limits: Limits, replica_count: int = 1) -> list[tuple[int, ...]]:
    """Places in batches that keep both limits, largest texts first.

    `sizes` are the texts' bytes. Texts of like size stand together, so that a server pads
    little, and the largest come first, so that no replica is left with one at the end. With
    several replicas the number of batches is a multiple of theirs where that is worth it. A
    text above `body_bytes` is a batch of its own: the server decides about it.
    """
    most = _batch_texts(len(sizes), limits.texts, replica_count)
    result: list[list[int]] = []
    room = 0
    for place in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        if not result or len(result[-1]) == most or sizes[place] > room:
            result.append([])
            room = limits.body_bytes
        result[-1].append(place)
        room -= sizes[place]
    return [tuple(places) for places in result]


def fits(places: Sequence[int], sizes: Sequence[int], limits: Limits) -> bool:
    """Whether a batch may be sent as it is; one text always may."""
    if len(places) == 1:
        return True
    return len(places) <= limits.texts and sum(sizes[p] for p in places) <= limits.body_bytes


def halves(places: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two batches of about the same bytes, both with at least one text. Needs two texts."""
    total = sum(sizes[place] for place in places)
    taken, middle = 0, 0
    while middle < len(places) - 1 and taken * 2 < total:
        taken += sizes[places[middle]]
        middle += 1
    return tuple(places[:middle]), tuple(places[middle:])


def with_fewer_texts(limits: Limits, sent: int, texts_max: int | None) -> Limits:
    """The limits after a server found `sent` texts too many; `texts_max` is what it said."""
    texts = texts_max if texts_max and texts_max < sent else max(1, sent // 2)
    return replace(limits, texts=min(limits.texts, texts))


def with_fewer_bytes(limits: Limits, sent_bytes: int) -> Limits:
    """The limits after a server found a body of `sent_bytes` too big."""
    return replace(limits, body_bytes=min(limits.body_bytes, sent_bytes // 2))


def _batch_texts(count: int, texts_max: int, replica_count: int) -> int:
    """The texts of one batch: the limit, or fewer where that keeps all replicas busy."""
    if replica_count == 1 or count == 0:
        return texts_max
    rounds = -(-count // (texts_max * replica_count))
    even = -(-count // (rounds * replica_count))
    return min(texts_max, max(even, _SPREAD_TEXTS_MIN))
