"""warmindex lookup: who holds the longest beginning of a prompt."""

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
from warmindex.errors import InvalidError


def add_to(commands: Any) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "lookup",
        "rank replicas by the longest prefix of a prompt that they hold",
        "Rank replicas by the longest leading run of a prompt that they hold, in one adapter's "
        "partition. Give the prompt's block hashes, or its token ids.",
    )
    add_partition_options(command)
    command.add_argument(
        "hashes", nargs="*", type=content_hash, metavar="HEX", help="block hashes, first first"
    )
    command.add_argument(
        "--tokens",
        type=_tokens,
        default=[],
        metavar="N,N,…",
        help="token ids instead; without --scheme every block size of the model is tried",
    )
    command.add_argument("--limit", type=int, default=0, metavar="N", help="most replicas; 0: all")
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where no replica holds the first block."""
    if bool(arguments.hashes) == bool(arguments.tokens):
        raise InvalidError("give either block hashes or --tokens")
    async with client_of(arguments) as client:
        answer = await client.lookup_route(
            key_of(arguments),
            block_hashes=arguments.hashes,
            token_ids=arguments.tokens,
            limit=arguments.limit,
        )
    if arguments.json:
        show_json(answer)
    else:
        print(
            f"{answer.reason.name.lower().replace('_', ' ')}; {answer.replicas_in_scope} replicas "
            "hold something of the model"
        )
        show_table(
            ("replica", "blocks", "tokens", "tier"),
            [
                (match.replica_id, match.blocks, match.tokens or "", match.tier.name.lower())
                for match in answer.matches
            ],
        )
    return 0 if answer.matches else 1


def _tokens(text: str) -> list[int]:
    try:
        return [int(each) for each in text.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError("token ids are whole numbers, with commas") from None
