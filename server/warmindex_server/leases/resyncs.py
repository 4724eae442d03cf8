"""Which producers owe a report, by replica: what a stream that only renews leases is told."""

from __future__ import annotations

from collections.abc import Iterable

from warmindex.event import CacheEvent
from warmindex.index import Applied, Index
from warmindex.record import Report, UsedNumber

from warmindex_server.replicas import ReplicaKey


class Resyncs:
    """The models in which each replica owes a report; kept beside the index, record by record."""

    def __init__(self) -> None:
        self._models: dict[ReplicaKey, set[str]] = {}

    def owed_by_any(self, keys: Iterable[ReplicaKey]) -> bool:
        """Whether one of these replicas owes a report in some model."""
        return bool(self._models) and any(key in self._models for key in keys)

    def read(self, index: Index) -> None:
        """Begin with what an index says."""
        self._models.clear()
        for (tenant_id, model_id), model in index.models.items():
            for replica_id, producer in model.producers.items():
                if producer.resync_required:
                    self._models.setdefault((tenant_id, replica_id), set()).add(model_id)

    def applied(
        self, record: CacheEvent | UsedNumber | Report, applied: Applied, index: Index
    ) -> None:
        """Take note of what a record made of its producer."""
        key = (record.tenant_id, record.replica_id)
        owing = self._models.get(key)
        if owing is None and not applied.resync_required:
            return
        producer = index.producer(record.tenant_id, record.model_id, record.replica_id)
        if producer is not None and producer.resync_required:
            self._models.setdefault(key, set()).add(record.model_id)
        elif owing is not None:
            owing.discard(record.model_id)
            if not owing:
                del self._models[key]
