"""warmindex-subscriber kv: an engine's KV-cache events, kept in the index."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from warmindex.errors import InvalidError, Reason, WarmindexError
from warmindex.options import Options, seconds, variable_of

from warmindex_subscriber.common import add_server_options, client_of
from warmindex_subscriber.kv.ranks import parse_ranks, publishers
from warmindex_subscriber.kv.replay import REPLAY_SILENCE_S
from warmindex_subscriber.kv.sink import EventSink, ResyncWanted, SinkFactory
from warmindex_subscriber.publisher import Publisher, PublisherOptions

_LEASE_S: Final = 30.0


def add_to(commands: Any) -> None:
    """Add the command to a parser."""
    command = commands.add_parser(
        "kv",
        help="publish which prompt prefixes an engine holds",
        description="Follow the KV-cache events of a vLLM or SGLang engine over ZMQ, and keep the "
        "index true to what the engine holds: for LookupRoute.",
    )
    add_arguments(command)
    command.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    options = Options(parser)
    add_server_options(options, "this host's name, which in a pod is the pod's")
    options.add(
        "--model",
        default="",
        metavar="NAME",
        help="what callers of LookupRoute name the model; required",
    )
    options.add(
        "--engine",
        default="vllm",
        choices=("vllm", "sglang"),
        help="which engine: names the scheme of --native-hashes",
    )
    _add_list(parser, "--endpoint", "tcp://HOST:PORT", "where it publishes; required")
    _add_list(
        parser,
        "--replay-endpoint",
        "tcp://HOST:PORT",
        "where it replays; without it every lost batch costs all that is known",
    )
    options.add(
        "--ranks",
        default="1",
        metavar="N|A-B|A,B,…",
        help="data-parallel ranks: how many, or which; ports count up from the endpoint's",
    )
    options.add(
        "--topic",
        default="",
        metavar="TEXT",
        help='only batches of this topic, whole or up to an "@"; if empty: of any',
    )
    options.switch("--bind", help="bind the endpoint, for engines that connect")
    _add_list(parser, "--adapter-map", "ID=NAME", "names of adapters that come as numbers alone")
    _add_list(
        parser,
        "--adapter-version",
        "NAME=VERSION",
        "makes the adapter id NAME@VERSION, for adapters that are reloaded under their name",
    )
    options.add(
        "--models-url",
        default="",
        metavar="URL",
        help="the engine's own URL: versions of adapters are read from its model list",
    )
    options.switch(
        "--native-hashes",
        help="also publish the engine's own block hashes, in the scheme ENGINE-native",
    )
    options.add(
        "--replay-timeout",
        default=REPLAY_SILENCE_S,
        type=seconds,
        metavar="SECONDS",
        help="how long live batches wait for a replay that says nothing",
    )
    options.add(
        "--lease",
        default=_LEASE_S,
        type=seconds,
        metavar="SECONDS",
        help="how long the index keeps what is published when this command is gone; 0: for ever",
    )
    options.switch(
        "--clear-at-end", help="publish at the end that nothing is held, for engines that end too"
    )


async def run(arguments: argparse.Namespace) -> None:
    """Follow the engine until cancelled."""
    async with client_of(arguments) as client:

        @asynccontextmanager
        async def publisher(
            _replica_ids: Sequence[str], resync_wanted: ResyncWanted
        ) -> AsyncIterator[EventSink]:
            async with Publisher(
                client,
                tenant_id=arguments.tenant,
                model_id=arguments.model,
                resync_wanted=resync_wanted,
                options=PublisherOptions(lease_s=arguments.lease),
            ) as opened:
                yield opened

        await run_with(arguments, publisher)


async def run_with(arguments: argparse.Namespace, sink_factory: SinkFactory) -> None:
    """The same into any sink."""
    try:
        from warmindex_subscriber.kv.sidecar import Sidecar, SidecarOptions  # noqa: PLC0415 - extra
    except ModuleNotFoundError as error:
        raise WarmindexError(
            f"{error.name} is not installed, and without it no KV-cache events can be read: "
            "pip install 'warmindex[kv]'"
        ) from error
    if not arguments.model:
        raise _bad("model", "is required: what callers of LookupRoute name the model")
    options = SidecarOptions(
        replica_id=arguments.replica or socket.gethostname(),
        model_id=arguments.model,
        tenant_id=arguments.tenant,
        publishers=publishers(
            parse_ranks(arguments.ranks),
            _list_of(arguments, "--endpoint"),
            _list_of(arguments, "--replay-endpoint"),
            bind=arguments.bind,
        ),
        topic=arguments.topic,
        name_of_id=_names_of_ids(arguments),
        version_of_name=_pairs(arguments, "--adapter-version"),
        models_url=arguments.models_url or None,
        native_scheme=f"{arguments.engine}-native" if arguments.native_hashes else None,
        clear_at_end=arguments.clear_at_end,
        replay_silence_s=arguments.replay_timeout,
    )
    followed: list[Sidecar] = []

    def resync_wanted(replica_id: str) -> None:
        for sidecar in followed:
            sidecar.resync(replica_id)

    async with sink_factory(options.replica_ids, resync_wanted) as sink:
        followed.append(Sidecar(options, sink))
        await followed[0].run()


def _add_list(parser: argparse.ArgumentParser, flag: str, metavar: str, text: str) -> None:
    parser.add_argument(
        flag,
        action="append",
        metavar=metavar,
        help=f"{text}; may be given several times, or with commas [default: none; "
        f"{variable_of(flag)}]",
    )


def _list_of(arguments: argparse.Namespace, flag: str) -> list[str]:
    given: list[str] | None = getattr(arguments, flag.lstrip("-").replace("-", "_"))
    texts = given if given is not None else [os.environ.get(variable_of(flag), "")]
    # White space stays: it may be part of an adapter's name.
    return [part for text in texts for part in text.split(",") if part]


def _pairs(arguments: argparse.Namespace, flag: str) -> dict[str, str]:
    pairs = {}
    for text in _list_of(arguments, flag):
        key, _, value = text.partition("=")
        if not key or not value:
            raise _bad(flag.lstrip("-"), f"is {text!r}; both sides of the = are needed")
        pairs[key] = value
    return pairs


def _names_of_ids(arguments: argparse.Namespace) -> dict[int, str]:
    names = {}
    for text, name in _pairs(arguments, "--adapter-map").items():
        if not (text.isascii() and text.isdigit()):
            raise _bad("adapter-map", f"has {text!r} where an adapter's number belongs")
        names[int(text)] = name
    return names


def _bad(name: str, problem: str) -> InvalidError:
    return InvalidError(f"--{name} {problem}", field=name, reason=Reason.OUT_OF_RANGE)
