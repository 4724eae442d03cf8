"""Options that the commands of the subscriber share, and what they make of them."""

from __future__ import annotations

import argparse

from warmindex.connection import add_connection_options, client_of
from warmindex.embedders import Embedder
from warmindex.embedders.factory import AdapterRule, EmbedderOptions, open_embedder, split_urls
from warmindex.options import Options

__all__ = [
    "add_embedder_options",
    "add_server_options",
    "client_of",
    "embedder_of",
]


def add_server_options(options: Options, replica_default: str) -> None:
    """Add the index, and who publishes to it."""
    add_connection_options(options)
    options.add(
        "--replica",
        default="",
        metavar="NAME",
        help=f"who holds what is published, stable over restarts and shared by a deployment; "
        f"if empty: {replica_default}",
    )
    options.add("--tenant", default="", metavar="NAME", help="the tenant")


def add_embedder_options(options: Options) -> None:
    """Add how texts are embedded."""
    options.add("--adapter", default="", metavar="NAME", help="the adapter's partition")
    options.add(
        "--embedder",
        default="local",
        choices=("local", "tei", "openai"),
        help="what embeds: a model on this machine, or a server",
    )
    options.add(
        "--embedder-url",
        default="",
        metavar="URL[,URL…]",
        help="base URL of the embedding server; several are replicas of one backend",
    )
    options.add(
        "--model",
        default="",
        metavar="NAME",
        help="the model to ask for; for `local` the folder of one",
    )
    options.add(
        "--revision",
        default="",
        metavar="TEXT",
        help="the model's revision, where the server does not tell it",
    )
    options.add(
        "--embedder-host",
        default="",
        metavar="NAME",
        help="a name for where the model's name means something, in place of the URL's host",
    )
    options.add(
        "--document-prompt",
        default="",
        metavar="TEXT",
        help='put before each text; "name:…" is a prompt that a TEI server knows by name',
    )
    options.add(
        "--dimensions", default=0, type=int, metavar="N", help="width to ask for; 0: the model's"
    )
    options.add(
        "--truncate",
        default="right",
        choices=("right", "left", "none"),
        help="where a TEI server cuts long texts; none refuses them",
    )
    options.add(
        "--adapter-rule",
        default="",
        metavar="RULE",
        help="how the embedder is told the adapter: model, none or field:NAME; "
        "if empty: model for openai, else none",
    )
    options.add(
        "--embedder-key",
        default="",
        metavar="KEY",
        help="API key of the embedding server; better given by its variable",
    )


def embedder_of(arguments: argparse.Namespace) -> Embedder:
    """The embedder that the options name. Raises EmbedderError for what cannot be."""
    return open_embedder(
        EmbedderOptions(
            kind=arguments.embedder,
            urls=split_urls(arguments.embedder_url),
            model=arguments.model,
            revision=arguments.revision,
            host=arguments.embedder_host,
            document_prompt=arguments.document_prompt,
            dimensions=arguments.dimensions,
            truncate=arguments.truncate,
            adapter_rule=AdapterRule.parse(arguments.adapter_rule)
            if arguments.adapter_rule
            else None,
            api_key=arguments.embedder_key,
        )
    )
