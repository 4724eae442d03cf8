"""Options that the commands of the subscriber share, and what they make of them."""

from __future__ import annotations

import argparse

from warmindex.client import DEFAULT_SERVER, IndexClient
from warmindex.embedders import Embedder
from warmindex.embedders.factory import EmbedderOptions, open_embedder
from warmindex.options import Options


def add_server_options(options: Options, replica_default: str) -> None:
    """Add the index, and who publishes to it."""
    options.add(
        "--server",
        default=DEFAULT_SERVER,
        metavar="HOST:PORT[,HOST:PORT…]",
        help="the index; several servers must share one journal",
    )
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
        "--embedder-key",
        default="",
        metavar="KEY",
        help="API key of the embedding server; better given by its variable",
    )


def client_of(arguments: argparse.Namespace) -> IndexClient:
    """The index that the options name."""
    return IndexClient(arguments.server)


def embedder_of(arguments: argparse.Namespace) -> Embedder:
    """The embedder that the options name. Raises EmbedderError for what cannot be."""
    return open_embedder(
        EmbedderOptions(
            kind=arguments.embedder,
            urls=tuple(each.strip() for each in arguments.embedder_url.split(",") if each.strip()),
            model=arguments.model,
            revision=arguments.revision,
            api_key=arguments.embedder_key,
        )
    )
