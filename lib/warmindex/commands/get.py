"""warmindex get: one content hash, wherever it is."""

from __future__ import annotations

import argparse
from typing import Any

from warmindex.commands.common import add_command, client_of, content_hash, show_json, show_table
from warmindex.options import Options


def add_to(commands: Any) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "get",
        "show a content hash in every partition that has it",
        "Show who holds a content hash, in every model, hash scheme and adapter of a tenant.",
    )
    command.add_argument("hash", type=content_hash, metavar="HEX", help="the content hash")
    Options(command).add("--tenant", default="", metavar="NAME", help="the tenant")
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where nobody holds it."""
    async with client_of(arguments) as client:
        entries = await client.entries(arguments.hash, arguments.tenant)
    if arguments.json:
        show_json(entries)
    else:
        show_table(
            ("model", "scheme", "adapter", "held by", "width", "name"),
            [
                (
                    entry.partition.model_id,
                    entry.partition.hash_scheme,
                    repr(entry.partition.adapter_id),
                    ", ".join(f"{name} ({tier.name.lower()})" for name, tier in entry.holds),
                    entry.dimensions or "",
                    entry.document.name if entry.document else "",
                )
                for entry in entries
            ],
        )
    return 0 if entries else 1
