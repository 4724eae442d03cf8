"""Events over keys that are numbers, in a scheme of their own: `embedded(1, 2)`."""

from __future__ import annotations

from typing import Any

import numpy as np
from warmindex.event import CacheEvent, EventType, FloatMatrix

OWN = "own"


def key(number: int) -> bytes:
    """The key of a number."""
    return number.to_bytes(8, "big")


def embedded(*numbers: int, **fields: Any) -> CacheEvent:
    """An EMBEDDED of replica "r" in model "m", unless `fields` say otherwise."""
    return CacheEvent(
        **{
            "type": EventType.EMBEDDED,
            "replica_id": "r",
            "model_id": "m",
            "hash_scheme": OWN,
            "content_hashes": [key(number) for number in numbers],
            **fields,
        }
    )


def evicted(*numbers: int, **fields: Any) -> CacheEvent:
    """An EVICTED of the same."""
    return embedded(*numbers, **{"type": EventType.EVICTED, **fields})


def cleared(**fields: Any) -> CacheEvent:
    """An ALL_CLEARED of the same."""
    return embedded(**{"type": EventType.ALL_CLEARED, **fields})


def vectors(count: int, dimensions: int = 2) -> FloatMatrix:
    """Rows that are all different."""
    matrix = np.ones((count, dimensions), np.float32)
    matrix[:, 0] = np.arange(count)
    return matrix


def row(*values: float) -> FloatMatrix:
    """One row."""
    return np.array([values], np.float32)
