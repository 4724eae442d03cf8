"""Payloads as engines write them, in each version's shape, and what the project makes of them."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import msgspec
from warmindex.event import CacheEvent, EventType
from warmindex.hashing import chain_hashes
from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.decode import decode_batch
from warmindex_subscriber.kv.outbox import Outbox, Producer
from warmindex_subscriber.kv.residence import Residence

H1, H2, H3, H4 = 0x1111111111111111, 0xFFFFFFFFFFFFFFF0, 7, 0x8000000000000001
TOKENS = [11, 12, 13, 14]
KEY = chain_hashes(TOKENS, 4)[0]
SCHEME = "xxh3-chain/4"
# Engines date each batch: no two payloads of a life are equal.
_clock = itertools.count(1_700_000_000)


def encode(*events: Any, rank: Any = 0, ts: Any = None) -> bytes:
    """One batch of today's shape."""
    return msgspec.msgpack.encode([next(_clock) + 0.5 if ts is None else ts, list(events), rank])


def stored(
    hashes: list[Any] | None = None, tokens: list[Any] | None = None, **fields: Any
) -> dict[str, Any]:
    """A BlockStored of one block of four tokens, as a map; fields as named on the wire."""
    event: dict[str, Any] = {
        "type": "BlockStored",
        "block_hashes": [H1] if hashes is None else hashes,
        "parent_block_hash": None,
        "token_ids": TOKENS if tokens is None else tokens,
        "block_size": 4,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "group_idx": 0,
    }
    return {**event, **fields}


def stored_array(length: int, **fields: Any) -> list[Any]:
    """The same as an array of `length` elements, type included."""
    event = stored(**fields)
    names = [*list(event)[:8], "extra_keys", "group_idx", "kind", "window", "locality"]
    return [event.get(name) for name in names][:length]


def removed(*hashes: Any, **fields: Any) -> dict[str, Any]:
    """A BlockRemoved as a map."""
    event = {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": "GPU", "group_idx": 0}
    return {**event, **fields}


def cleared() -> dict[str, Any]:
    return {"type": "AllBlocksCleared"}


def without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


def signed(number: int) -> int:
    return int(struct.unpack(">q", struct.pack(">Q", number))[0])


def digest(number: int) -> bytes:
    """A digest of 32 bytes, no valid text, whose last 8 are the number."""
    return b"\xff\xfe" * 12 + number.to_bytes(8, "big")


class Model:
    """What an index would hold after some events: (replica, adapter, scheme, tier, key)."""

    def __init__(self) -> None:
        self.holds: set[tuple[str, str, str, int, bytes]] = set()
        self.events: list[CacheEvent] = []

    def take(self, events: list[CacheEvent]) -> None:
        for event in events:
            self.events.append(event)
            if event.type is EventType.ALL_CLEARED:
                self.drop(event.replica_id)
                continue
            assert event.adapter_scoped
            assert event.hash_scheme
            for key in event.content_hashes:
                hold = (event.replica_id, event.adapter_id, event.hash_scheme, event.tier, key)
                if event.type is EventType.EMBEDDED:
                    self.holds.add(hold)
                else:
                    self.holds.discard(hold)

    def drop(self, replica_id: str) -> None:
        self.holds = {hold for hold in self.holds if hold[0] != replica_id}

    def keys(self, adapter: str = "", scheme: str = SCHEME, replica: str = "pod") -> set[bytes]:
        wanted = (replica, adapter, scheme)
        return {hold[4] for hold in self.holds if hold[:3] == wanted}

    def tiers(self, key: bytes) -> set[int]:
        return {hold[3] for hold in self.holds if hold[4] == key}


class Engine:
    """One rank's payloads through decoding and residence, as a stream applies them."""

    def __init__(self, adapters: Adapters | None = None, native: str | None = None) -> None:
        self.counters = Counters()
        self.index = Model()
        self.residence = Residence(adapters or Adapters(), self.counters, native)
        self._outbox = Outbox(Producer("", "acme/m", "pod"))

    def send(self, payload: bytes) -> list[CacheEvent]:
        batch = decode_batch(payload)
        self.counters.batches_undecodable += batch.undecodable
        self.counters.malformed += batch.malformed
        self.counters.unknown += batch.unknown
        self._outbox.timestamp_us = batch.timestamp_us
        self.residence.apply(batch.events, self._outbox)
        events = self._outbox.take()
        self.index.take(events)
        return events

    def say(self, *events: Any) -> list[CacheEvent]:
        return self.send(encode(*events))

    def keys(self, adapter: str = "", scheme: str = SCHEME) -> set[bytes]:
        return self.index.keys(adapter, scheme)
