"""The removal table, live: one content under three adapters, and one EVICTED for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from warmindex.client import IndexClient
from warmindex.event import CacheEvent, EventType
from warmindex.hashing import text_hash

ADAPTERS: Final = ("", "sql-lora", "chat-lora")
MODEL_ID: Final = "demo-llm"
REPLICA_ID: Final = "engine-1"


class Row(NamedTuple):
    """An EVICTED by its two fields, and the adapters under which the content survives it."""

    adapter_scoped: bool
    adapter_id: str
    survives: Sequence[str]


ROWS: Final = (
    Row(adapter_scoped=True, adapter_id="", survives=("sql-lora", "chat-lora")),
    Row(adapter_scoped=True, adapter_id="sql-lora", survives=("", "chat-lora")),
    Row(adapter_scoped=False, adapter_id="sql-lora", survives=("", "chat-lora")),
    Row(adapter_scoped=False, adapter_id="", survives=()),
)


async def survivors(client: IndexClient, row: Row) -> list[str]:
    """Publish the content under every adapter, then the row's EVICTED; what is left."""
    content = text_hash("the same prompt, under three adapters")
    for adapter_id in ADAPTERS:
        await client.publish(_event(EventType.EMBEDDED, content, adapter_id, scoped=True))
    await client.publish(
        _event(EventType.EVICTED, content, row.adapter_id, scoped=row.adapter_scoped)
    )
    entries = await client.entries(content)
    return [each.partition.adapter_id for each in entries]


def _event(kind: EventType, content: bytes, adapter_id: str, *, scoped: bool) -> CacheEvent:
    return CacheEvent(
        type=kind,
        replica_id=REPLICA_ID,
        model_id=MODEL_ID,
        content_hashes=(content,),
        adapter_id=adapter_id,
        adapter_scoped=scoped,
    )
