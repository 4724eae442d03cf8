"""What of a build goes into one event: as much as an event may hold, and no text too long.

A text that is too long for the index is embedded like any other. Its document is for finding
it by words, and the beginning of it will do: a vector must not stay away for its sake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from warmindex import limits
from warmindex.build.result import Item
from warmindex.event import Document

# What the vectors and texts of one event may come to: a third of what an event may be, so that
# names and lengths, and the one row that is always taken, find room.
PART_BYTES_MAX: Final = limits.MIB
# However small the rows are, an answer about so many is soon there.
PART_ROWS_MAX: Final = 1024
_FLOAT_BYTES: Final = 4


def parts(
    hashes: Sequence[bytes], items: Mapping[bytes, Item], dimensions: int
) -> Iterator[tuple[Sequence[bytes], Sequence[Document]]]:
    """The hashes of each event, in order, with one document for each hash, or with none."""
    start, size = 0, 0
    documents: list[Document] = []
    for position, content_hash in enumerate(hashes):
        document = fitting(items[content_hash].document or Document())
        row = dimensions * _FLOAT_BYTES + len(content_hash) + sum(map(_length, document))
        full = position - start == PART_ROWS_MAX or size + row > PART_BYTES_MAX
        if documents and full:
            yield hashes[start:position], _some(documents)
            start, size, documents = position, 0, []
        documents.append(document)
        size += row
    if documents:
        yield hashes[start:], _some(documents)


def fitting(document: Document) -> Document:
    """The document, its name and description cut to what the contract takes."""
    return Document(
        _cut(document.name, limits.DOCUMENT_NAME_BYTES_MAX),
        _cut(document.description, limits.DOCUMENT_DESCRIPTION_BYTES_MAX),
    )


def _some(documents: Sequence[Document]) -> Sequence[Document]:
    return documents if any(any(each) for each in documents) else ()


def _cut(text: str, bytes_max: int) -> str:
    if len(text) * 4 <= bytes_max:
        return text
    encoded = text.encode()
    if len(encoded) <= bytes_max:
        return text
    return encoded[:bytes_max].decode(errors="ignore")


def _length(text: str) -> int:
    return len(text.encode())
