"""What goes into a build, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from warmindex.embedders import TextFailure
from warmindex.event import Document, FloatMatrix


class Item(NamedTuple):
    """A text to embed, and the document to publish with it (None: keep the text at home)."""

    text: str
    document: Document | None = None


@dataclass(slots=True)
class Counts:
    """What became of the texts of one build, or of many, added up.

    Each distinct text ends in one of `reused` (the index had it), `waited` (another
    computed it meanwhile), `embedded` (computed here) or `failed`. `refused` counts
    publishes that the index refused, `swaps` batches thrown away because the model changed.
    """

    reused: int = 0
    waited: int = 0
    embedded: int = 0
    failed: int = 0
    claimed: int = 0
    refused: int = 0
    swaps: int = 0
    index_errors: int = 0
    failures: dict[str, int] = field(default_factory=dict)

    def add(self, other: Counts) -> None:
        """Add another build's counts."""
        for name in ("reused", "waited", "embedded", "failed", "claimed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("refused", "swaps", "index_errors"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for kind, count in other.failures.items():
            self.failures[kind] = self.failures.get(kind, 0) + count


@dataclass(slots=True)
class Built:
    """What a build came to.

    `vectors` has one float32 row (dimensions,) for each content hash that has one,
    `failures` says why the others have none. `model_id` is the identity under which they
    were found or published, "" where it could never be read. `problems` is for people.
    """

    model_id: str = ""
    vectors: dict[bytes, FloatMatrix] = field(default_factory=dict)
    failures: dict[bytes, TextFailure] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    problems: list[str] = field(default_factory=list)
    history_id: str = ""
