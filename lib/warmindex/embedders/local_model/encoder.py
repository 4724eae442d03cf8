"""What a model in this process is: plan texts into batches, compute a batch. Synchronous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from warmindex.embedders.base import FloatMatrix
from warmindex.identity import ModelIdentity


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts that one run computes.

    `places` are their places in the planned list; `payload` is what the encoder made of
    them; `truncated_count` is how many were cut, None where nothing is ever cut.
    """

    places: tuple[int, ...]
    payload: Any
    truncated_count: int | None


class Encoder(Protocol):
    """A loaded model. `identity` has no prompt in it: prompts are part of the texts here."""

    identity: ModelIdentity

    def plan(self, texts: Sequence[str]) -> list[Batch]:
        """Every text in exactly one batch, small enough that others get a turn between two."""
        ...

    def encode(self, batch: Batch) -> FloatMatrix:
        """Float32 (len(batch.places), d), rows in the batch's order."""
        ...
