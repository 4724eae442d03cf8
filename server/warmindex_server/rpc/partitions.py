"""The partition that a call names, where the caller may see its tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmindex.wire import partition_from_wire

from warmindex_server.access import allow_tenant

if TYPE_CHECKING:
    from warmindex.event import PartitionKey
    from warmindex.v1 import event_pb2


def partition_of(message: event_pb2.PartitionKey) -> PartitionKey:
    """The key, its hash scheme filled in. Raises InvalidError and ForbiddenError."""
    allow_tenant(message.tenant_id, "partition.tenant_id")
    return partition_from_wire(message)
