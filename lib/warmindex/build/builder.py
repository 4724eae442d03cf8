"""Builds for one holder: reads the model's identity, and starts over when it changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from warmindex.build.result import Built, Counts, Item
from warmindex.build.run import PATIENCE_S, Run
from warmindex.client import IndexClient
from warmindex.embedders import Embedder, EmbedderError, FailureKind, TextFailure
from warmindex.event import PartitionKey
from warmindex.hashing import TEXT_SHA256
from warmindex.mirror import Mirror

_log = logging.getLogger(__name__)

# The design allows starting over twice when the model is swapped in the middle.
SWAPS_MAX: Final = 2


class Builder:
    """Builds for one holder in one tenant and adapter.

    `client` None works without an index. `hold_found`: publish this holder's hold on what
    the index has already, which a catalogue needs and a gateway does not. Such a builder has
    no use for a vector that cannot be published, and computes none while the index is away or
    the model's identity cannot be read. `mirror`, where it is usable, is asked before any
    server.
    """

    def __init__(
        self,
        embedder: Embedder,
        client: IndexClient | None = None,
        *,
        replica_id: str,
        tenant_id: str = "",
        adapter_id: str = "",
        hold_found: bool = False,
        mirror: Mirror | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.embedder = embedder
        self.client = client
        self.replica_id = replica_id
        self.tenant_id = tenant_id
        self.adapter_id = adapter_id
        self.hold_found = hold_found
        self.mirror = mirror
        self.patience_s = patience_s
        self._verified = ""
        self.counts = Counts()

    @property
    def verified_model_id(self) -> str:
        """The last identity that was read from the backend; "" before the first."""
        return self._verified

    def partition(self, model_id: str) -> PartitionKey:
        """Where this builder's vectors of a model are."""
        return PartitionKey(self.tenant_id, model_id, TEXT_SHA256, self.adapter_id)

    async def build(
        self,
        items: Mapping[bytes, Item],
        progress: Callable[[int], None] = lambda _done: None,
    ) -> Built:
        """The vectors of texts by content hash. Raises nothing but what a bug raises.

        `progress` is told how many texts are settled.
        """
        built = Built()
        for _ in range(SWAPS_MAX + 1):
            built.model_id, verified = await self._identity(built)
            run = Run(self, built, items, progress, publish=verified)
            if await run.finished():
                break
            built.counts.swaps += 1
            built.vectors.clear()
            built.failures.clear()
            _log.warning("the model changed during a build: starting over")
        else:
            built.problems.append(
                f"the model changed {SWAPS_MAX + 1} times during one build: its backends differ"
            )
            built.failures = dict.fromkeys(
                items, TextFailure(FailureKind.UNAVAILABLE, "the model keeps changing")
            )
        counts = built.counts
        counts.failed = len(built.failures)
        for failure in built.failures.values():
            kind = failure.kind.value
            counts.failures[kind] = counts.failures.get(kind, 0) + 1
        self.counts.add(counts)
        return built

    async def current_model_id(self) -> str:
        """The identity as the backend gives it now. Raises EmbedderError."""
        identity = await self.embedder.identity()
        self._verified = identity.model_id
        return self._verified

    async def _identity(self, built: Built) -> tuple[str, bool]:
        """The identity to work under, and whether it was read just now."""
        try:
            return await self.current_model_id(), True
        except EmbedderError as error:
            built.problems.append(f"the model's identity cannot be read: {error.message}")
            return self._verified, False
