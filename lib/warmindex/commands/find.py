"""warmindex find: documents of a partition, by words and, with a model at hand, by meaning."""

from __future__ import annotations

import argparse
from typing import Any

from warmindex.client import IndexClient
from warmindex.commands.common import (
    add_command,
    add_partition_options,
    client_of,
    key_of,
    show_json,
    show_table,
)
from warmindex.embedders import LocalEmbedder
from warmindex.errors import InvalidError
from warmindex.event import PartitionKey
from warmindex.hashing import TEXT_SHA256


def add_to(commands: Any) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "find",
        "search a partition's documents",
        "Search the documents of one partition by words; with --local by meaning too, where "
        "the partition's vectors are the local model's.",
    )
    command.add_argument("text", help="what is looked for")
    command.add_argument("--keywords", nargs="*", default=[], metavar="WORD", help="more words")
    command.add_argument("--limit", type=int, default=8, metavar="N", help="most hits")
    command.add_argument("--local", action="store_true", help="embed the query on this machine")
    add_partition_options(command, TEXT_SHA256)
    command.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Exit code 1 where nothing was found."""
    embedding = None
    async with client_of(arguments) as client:
        if arguments.local:
            embedder = LocalEmbedder()
            identity = await embedder.identity()
            arguments.model = arguments.model or identity.model_id
            embedding = await embedder.embed_query(arguments.text)
            await embedder.close()
        partition = key_of(arguments) if arguments.model else await _only(client, arguments)
        hits = await client.search(
            partition,
            embedding=embedding,
            text=arguments.text,
            keywords=arguments.keywords,
            limit=arguments.limit,
        )
    if arguments.json:
        show_json(hits)
    else:
        show_table(
            ("score", "meaning", "words", "name", "description"),
            [
                (
                    f"{hit.score:.3f}",
                    "" if hit.distance is None else f"{1 - hit.distance:.3f}",
                    "" if hit.lexical_score is None else f"{hit.lexical_score:.2f}",
                    hit.document.name,
                    hit.document.description[:80],
                )
                for hit in hits
            ],
        )
    return 0 if hits else 1


async def _only(client: IndexClient, arguments: argparse.Namespace) -> PartitionKey:
    """The one partition that the other options leave. Raises InvalidError where there are more."""
    keys = [
        each.key
        for each in await client.partitions(arguments.tenant)
        if each.key.hash_scheme == arguments.scheme and each.key.adapter_id == arguments.adapter
    ]
    if len(keys) != 1:
        names = ", ".join(key.model_id for key in keys[:5])
        raise InvalidError(
            f"{len(keys)} models have such a partition: name one with --model ({names})"
        )
    return keys[0]
