"""warmindex evict: take one replica's holds out of one partition. Shows first what would go."""

from __future__ import annotations

import argparse
from typing import Any

from warmindex.commands.common import (
    add_command,
    add_partition_options,
    client_of,
    content_hash,
    key_of,
    show_json,
    show_table,
)
from warmindex.event import CacheEvent, EventType
from warmindex.hashing import TEXT_SHA256
from warmindex.options import Options


def add_to(commands: Any) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "evict",
        "take one replica's holds out of one partition",
        "Take a replica's holds on some content hashes out of one partition, and of no other. "
        "Without --yes it only shows what would go.",
    )
    command.add_argument(
        "hashes", nargs="+", type=content_hash, metavar="HEX", help="the content hashes"
    )
    Options(command).add("--replica", default="", metavar="NAME", help="whose holds go")
    add_partition_options(command, TEXT_SHA256)
    command.add_argument("--yes", action="store_true", help="do it")
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where there is nothing to evict."""
    key = key_of(arguments)
    event = CacheEvent(
        type=EventType.EVICTED,
        replica_id=arguments.replica,
        model_id=key.model_id,
        tenant_id=key.tenant_id,
        adapter_id=key.adapter_id,
        adapter_scoped=True,
        hash_scheme=key.hash_scheme,
        content_hashes=arguments.hashes,
    )
    async with client_of(arguments) as client:
        held = [
            (content_hash, tier)
            for content_hash in event.content_hashes
            for entry in await client.entries(content_hash, key.tenant_id)
            if entry.partition == key
            for name, tier in entry.holds
            if name == arguments.replica
        ]
        result = await client.publish(event) if arguments.yes else None
    if arguments.json:
        show_json({"held": held, "evicted": result.holds_changed if result else 0})
    else:
        show_table(
            ("hash", "tier"),
            [(content_hash.hex(), tier.name.lower()) for content_hash, tier in held],
        )
        if result is None:
            print(f"{len(held)} holds would go; say --yes to evict them")
        else:
            print(f"{result.holds_changed} holds evicted, at revision {result.revision}")
    return 0 if held else 1
