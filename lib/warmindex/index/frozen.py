"""One partition as it was when a layer of versions began, read while it goes on changing.

For each key the oldest image that knows it has its say; where none does, what is there now
has not changed. Lists of values follow the keys asked for.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from warmindex.index.versions import Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from warmindex.event import Document
    from warmindex.index.partition import Partition
    from warmindex.index.vectors import VectorStore
    from warmindex.index.versions import Image, Layer

Value = TypeVar("Value")
# Many keys (n,). Not a list, because the garbage collector would look through its millions,
# 8 ms each, and never looks into an array.
Keys: TypeAlias = "NDArray[np.object_]"


class Frozen:
    """What a partition held when `layer` began; see the module's text."""

    __slots__ = ("_layer", "_partition")

    def __init__(self, partition: Partition, layer: Layer) -> None:
        self._partition = partition
        self._layer = layer

    def keys_present(self) -> Keys:
        """All keys that are there now, also those that were not."""
        entries = self._partition.entries
        return np.fromiter(entries, np.object_, len(entries))

    def keys_touched(self) -> Keys:
        """All keys put aside so far, some of them twice, also those that were not there."""
        kept = [image.bits for image in self._images()]
        return np.fromiter(chain.from_iterable(kept), np.object_, sum(map(len, kept)))

    def touched_of(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of some keys that were put aside."""
        kept = [image.bits for image in self._images()]
        return [key for key in keys if any(key in bits for bits in kept)]

    def bits(self, keys: Sequence[bytes]) -> list[int | None]:
        """The bits of the entries; 0 or None where there was none."""
        now: list[int | None] = list(map(self._partition.entries.get, keys))
        return _overridden(now, keys, [image.bits for image in self._images()])

    def tokens(self, keys: Sequence[bytes]) -> Sequence[int]:
        """The token counts of keys that were there."""
        tokens = self._partition.tokens
        kept = [image.tokens for image in self._images() if image.tokens]
        if tokens.uniform and not kept:
            return [tokens.get(keys[0])] * len(keys)
        return _overridden([tokens.get(key) for key in keys], keys, kept)

    def documents(self, keys: Sequence[bytes]) -> Sequence[Document | None]:
        """The documents of keys that were there."""
        kept = [image.documents for image in self._images() if image.documents]
        documents = self._partition.documents
        if not documents and not kept:
            return ()
        return _overridden([documents.get(key) for key in keys], keys, kept)

    @property
    def dimensions(self) -> int:
        """The width of the vectors; 0 where there was none."""
        stores = [image.store for image in self._images() if image.store is not None]
        store = stores[0] if stores else self._partition.vectors
        return 0 if store is None else store.dimensions

    def vectors(self, keys: Sequence[bytes]) -> Rows:
        """The vectors of keys that were there."""
        dimensions = self.dimensions
        store = self._partition.vectors
        images = list(self._images())
        changed = [
            image
            for image in images
            if image.store is not None or not image.vectors.keys().isdisjoint(keys)
        ]
        if not changed:
            found, values = store.gather(keys) if store is not None else ([False] * len(keys), b"")
            return Rows(found, dimensions, values)
        rows = _rows(store, keys, 4 * dimensions)
        for image in reversed(changed):
            if image.store is not None:
                # Nothing has changed in there since it was replaced.
                rows = _rows(image.store, keys, 4 * dimensions)
            rows = _overridden(rows, keys, [image.vectors])
        return Rows(
            [row is not None for row in rows], dimensions, b"".join(row for row in rows if row)
        )

    def _images(self) -> Iterable[Image]:
        return self._layer.images_since(self._partition)


def _overridden(
    values: list[Value], keys: Sequence[bytes], kept: Sequence[Mapping[bytes, Value]]
) -> list[Value]:
    """The values with those of `kept` in their place; of several, the first dictionary's."""
    for before in reversed(kept):
        if before.keys().isdisjoint(keys):
            continue
        for position, key in enumerate(keys):
            values[position] = before.get(key, values[position])
    return values


def _rows(store: VectorStore | None, keys: Sequence[bytes], width: int) -> list[bytes | None]:
    """Each key's row of `width` bytes, None where it has none."""
    if store is None or 4 * store.dimensions != width:
        # Another width came later: it is of none of these keys.
        return [None] * len(keys)
    found, values = store.gather(keys)
    starts = iter(range(0, len(values), width))
    return [values[(at := next(starts)) : at + width] if has else None for has in found]
