"""Which texts are computed, and where their vectors go. Pure.

caller's list  ->  prepare  ->  distinct readable texts  ->  (an embedder)  ->  assemble
"a"  0                        0  "a"                     0  [.1 .2]          [.1 .2]
""   1  blank                 1  "b"                     1  [.3 .4]          nan nan
"b"  2                                                                      [.3 .4]
"a"  3                                                                      [.1 .2]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from warmindex.embedders.base import Embedded, FailureKind, FloatVector, TextFailure

_ABSENT = -1


@dataclass(frozen=True, slots=True)
class Prepared:
    """The distinct texts to compute, and for each text of the caller's its place among them.

    `slots[i]` is the place of the caller's text i in `unique`, or -1 where it is in `failures`.
    """

    unique: tuple[str, ...]
    slots: tuple[int, ...]
    failures: Mapping[int, TextFailure]


def prepare(texts: Sequence[str]) -> Prepared:
    """Sort out what cannot be sent, and what is the same text again. Nothing is trimmed."""
    place: dict[str, int] = {}
    slots: list[int] = []
    failures: dict[int, TextFailure] = {}
    for index, text in enumerate(texts):
        failure = unreadable(text)
        if failure is None:
            slots.append(place.setdefault(text, len(place)))
        else:
            slots.append(_ABSENT)
            failures[index] = failure
    return Prepared(tuple(place), tuple(slots), failures)


def unreadable(text: str) -> TextFailure | None:
    """Why a text is never sent, or None. Servers differ on blanks, and none takes surrogates."""
    if not text or text.isspace():
        return TextFailure(FailureKind.BLANK, "is empty or white space; there is nothing to embed")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        return TextFailure(
            FailureKind.NOT_UNICODE,
            f"has a lone surrogate at character {error.start}, so it is not valid Unicode",
        )
    return None


def assemble(
    prepared: Prepared,
    vectors: Mapping[int, FloatVector],
    failures: Mapping[int, TextFailure],
    *,
    truncated_count: int | None = None,
) -> Embedded:
    """Put vectors and failures, by place in `prepared.unique`, in the caller's order.

    Every place must be in exactly one of the two: a text without an outcome would be a
    lost one.
    """
    width = next((len(vector) for vector in vectors.values()), 0)
    rows = np.full((len(prepared.slots), width), np.nan, dtype=np.float32)
    all_failures = dict(prepared.failures)
    for index, slot in enumerate(prepared.slots):
        if slot == _ABSENT:
            continue
        if slot in vectors:
            rows[index] = vectors[slot]
        else:
            all_failures[index] = failures[slot]
    return Embedded(
        vectors=rows,
        failures=MappingProxyType(all_failures),
        sent_count=len(prepared.unique),
        truncated_count=truncated_count,
    )
