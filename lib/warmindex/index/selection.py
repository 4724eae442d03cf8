"""What someone follows of the index: one tenant's, perhaps one model's, some adapters'."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from warmindex.event import EventType

if TYPE_CHECKING:
    from warmindex.index.change import Change


class Selection(NamedTuple):
    """A part of the index, and of what is known of it.

    An empty `model_id` is every model, empty `adapter_ids` every adapter. Where `embeddings`
    or `documents` is false, they are left out.
    """

    tenant_id: str = ""
    model_id: str = ""
    adapter_ids: frozenset[str] = frozenset()
    embeddings: bool = True
    documents: bool = True

    def has_model(self, tenant_id: str, model_id: str) -> bool:
        """Whether anything of a (tenant, model) may belong to it."""
        return tenant_id == self.tenant_id and self.model_id in ("", model_id)

    def has_adapter(self, adapter_id: str) -> bool:
        """Whether an adapter's partitions belong to it, in the models that do."""
        return not self.adapter_ids or adapter_id in self.adapter_ids

    def has(self, change: Change) -> bool:
        """Whether a change belongs to it; a clear does, whatever the adapters."""
        event = change.event
        return self.has_model(event.tenant_id, event.model_id) and (
            event.type is EventType.ALL_CLEARED or self.has_adapter(change.adapter_id)
        )
