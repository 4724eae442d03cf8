"""Texts to build."""

from __future__ import annotations

from warmindex.build import Item
from warmindex.event import Document
from warmindex.hashing import text_hash


def items_of(*texts: str) -> dict[bytes, Item]:
    """Items by content hash, each with a document."""
    return {text_hash(text): Item(text, Document(text, "")) for text in texts}


def numbered(count: int) -> dict[bytes, Item]:
    """So many different texts."""
    return items_of(*(f"tool number {n} does a thing of its own" for n in range(count)))
