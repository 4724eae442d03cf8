"""What both examples' tours print, and what this package's own client sees of them."""

from __future__ import annotations

import numpy as np
from warmindex.client import IndexClient
from warmindex.event import CacheEvent, EventType, PartitionKey
from warmindex.hashing import TEXT_SHA256, text_hash, tool_text
from warmindex.identity import ModelIdentity

TOOLS = {
    "read_rain_gauge": "Say how much rain fell since midnight.",
    "open_sluice": "Open a sluice gate by so many centimetres.",
    "next_ferry": "Say when the next ferry leaves.",
}
MODEL_ID = ModelIdentity(
    provider="tei",
    model="example/harbour-letters",
    revision="1",
    dtype="float32",
    pooling="mean",
    normalized=True,
    truncation="right@512",
).model_id
TEXTS = [tool_text(name, description) for name, description in TOOLS.items()]
KEYS = [text_hash(text) for text in TEXTS]
REPLICA = "tour"


def printed(computed: int) -> list[str]:
    """The lines of a tour, the hits left out."""
    keys = [f"key {key.hex()} {name}" for key, name in zip(KEYS, TOOLS, strict=True)]
    return [f"model {MODEL_ID}", *keys, f"computed {computed} of {len(TOOLS)}"]


def letters(text: str) -> list[float]:
    """How often each letter occurs: the tours' embedding."""
    return [text.count(chr(letter)) for letter in range(ord("a"), ord("z") + 1)]


async def check_published(address: str) -> None:
    """This package finds what a tour has published, bit for bit, under keys of its own making."""
    async with IndexClient(address) as client:
        found = await client.get_embeddings(PartitionKey("", MODEL_ID, TEXT_SHA256, ""), KEYS)
    np.testing.assert_array_equal(
        found.vectors, np.array([letters(text) for text in TEXTS], np.float32)
    )


async def clear(address: str) -> None:
    """Take away what tours have published."""
    async with IndexClient(address) as client:
        await client.publish(
            CacheEvent(type=EventType.ALL_CLEARED, replica_id=REPLICA, model_id=MODEL_ID)
        )
