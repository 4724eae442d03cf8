"""The rule of eviction: which partitions an EVICTED reaches.

    adapter_scoped   adapter_id    removes from
    --------------   -----------   -------------------------------------------------------
    true             ""            the base model's partition only
    true             "sql-lora"    "sql-lora" only
    false            "sql-lora"    "sql-lora" only (a producer older than the flag)
    false            ""            every partition (a producer older than adapters)

Within its hash scheme; where `adapter_scoped` is false and `hash_scheme` is empty, within
every scheme of the model (a producer older than schemes).

An EVICTED removes the holds of its own replica and of nobody else, in the tier it names, or
in every tier. ALL_CLEARED has no reach to work out: it takes all that the replica holds in
the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warmindex.event import CacheEvent
    from warmindex.index.partition import Partition
    from warmindex.index.scope import Scope


class Reached(NamedTuple):
    """A partition that an EVICTED reaches, and where it is."""

    hash_scheme: str
    adapter_id: str
    scope: Scope
    partition: Partition


def reached(schemes: Mapping[str, Scope], event: CacheEvent) -> list[Reached]:
    """The partitions of one model that an EVICTED removes from, as they are now."""
    names = list(schemes) if event.every_scheme else [event.hash_scheme]
    found = []
    for name in names:
        scope = schemes.get(name)
        if scope is None:
            continue
        adapters = list(scope.partitions) if event.sweeps_adapters else [event.adapter_id]
        found += [
            Reached(name, adapter, scope, scope.partitions[adapter])
            for adapter in adapters
            if adapter in scope.partitions
        ]
    return found
