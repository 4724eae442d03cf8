"""warmindex-subscriber fake-engine: KV-cache events without an engine."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Any, Final

from warmindex.errors import WarmindexError
from warmindex.options import Options

if TYPE_CHECKING:
    from warmindex_subscriber.fake_engine.cache import Engine
    from warmindex_subscriber.fake_engine.publisher import EventPublisher
    from warmindex_subscriber.fake_engine.shapes import Writer

_log = logging.getLogger(__name__)

_SHAPES: Final = ("vllm", "vllm-arrays", "sglang")
_NUMBERS: Final = (
    ("--rank", 0, "the data-parallel rank in the batches"),
    ("--block-size", 16, "tokens of a block"),
    ("--blocks", 4096, "blocks that the cache has room for"),
    ("--buffer", 10_000, "batches kept for replays"),
    ("--applications", 6, "system prompts that chats share"),
    ("--conversations", 32, "chats that go on at once"),
    ("--prompts", 0, "end after so many; 0: go on"),
    ("--seed", 0, "the same seed makes the same chats"),
    ("--lose-every", 0, "lose a batch on the way after N prompts, again and again"),
    ("--clear-every", 0, "reset the cache after N prompts, again and again"),
    ("--restart-every", 0, "restart after N prompts, again and again"),
)
# How often replays are answered while nothing is published.
_REPLAY_POLL_S: Final = 0.1


def add_to(commands: Any) -> None:
    """Add the command to a parser."""
    command = commands.add_parser(
        "fake-engine",
        help="publish KV-cache events as an engine does, without one",
        description="A prefix cache that serves made-up chats and publishes what changes in it, "
        "over ZMQ, as vLLM or SGLang do. SIGUSR1 restarts it, SIGUSR2 loses a batch.",
    )
    add_arguments(command)
    command.set_defaults(run=run)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    options = Options(parser)
    options.add(
        "--endpoint", default="tcp://127.0.0.1:5557", metavar="URL", help="where to publish"
    )
    options.add(
        "--replay-endpoint", default="", metavar="URL", help="where to answer replays; if empty: no"
    )
    options.add("--topic", default="", metavar="TEXT", help="the topic of all batches")
    options.add("--shape", default="vllm", choices=_SHAPES, help="whose events they look like")
    options.add(
        "--adapters", default="", metavar="A,B,…", help="adapters beside the base model, as loaded"
    )
    options.switch("--adapter-ids-only", help="say adapters by number, as old engines do")
    options.add("--rate", default=20.0, type=float, metavar="N", help="prompts a second; 0: all")
    for flag, default, text in _NUMBERS:
        options.add(flag, default=default, type=int, metavar="N", help=text)


async def run(arguments: argparse.Namespace) -> None:
    """Serve prompts until cancelled, or until there have been enough."""
    try:
        from warmindex_subscriber.fake_engine.publisher import (  # noqa: PLC0415 - an extra
            Endpoints,
            EventPublisher,
        )
    except ModuleNotFoundError as error:
        raise WarmindexError(
            f"{error.name} is not installed, and without it no events can be published: "
            "pip install 'warmindex[kv]'"
        ) from error
    from warmindex_subscriber.fake_engine.cache import Engine  # noqa: PLC0415 - beside it
    from warmindex_subscriber.fake_engine.shapes import Shape, Writer  # noqa: PLC0415 - beside it

    adapters = [name for name in arguments.adapters.split(",") if name]
    shape = Shape(arguments.shape)
    engine = Engine(
        block_tokens=arguments.block_size, blocks_max=arguments.blocks, seed=arguments.seed
    )
    publisher = EventPublisher(
        Endpoints(arguments.endpoint, arguments.replay_endpoint or None),
        topic=arguments.topic,
        rank=arguments.rank,
        buffer_batches=arguments.buffer,
        topic_in_replay=shape is not Shape.VLLM_ARRAYS,
    )
    writer = Writer(shape, arguments.block_size, adapters, not arguments.adapter_ids_only)
    try:
        live, replay = publisher.endpoints
        text = f"publishing on {live}" + (f", replays on {replay}" if replay else "")
        print(text, flush=True)  # noqa: T201 - the line that people and scripts wait for
        await _serve(arguments, engine, publisher, writer)
    finally:
        publisher.close()


async def _serve(
    arguments: argparse.Namespace, engine: Engine, publisher: EventPublisher, writer: Writer
) -> None:
    from warmindex_subscriber.fake_engine.traffic import Traffic  # noqa: PLC0415 - beside it

    def restart() -> None:
        engine.restart()
        publisher.restart()
        _log.info("restarted")

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, restart)
    loop.add_signal_handler(signal.SIGUSR2, publisher.lose)
    traffic = Traffic(
        seed=arguments.seed,
        applications=arguments.applications,
        adapters=("", *writer.adapters),
        conversations=arguments.conversations,
    )
    served = hits = blocks = 0
    while not arguments.prompts or served < arguments.prompts:
        prompt = traffic.next()
        served += 1
        hits += engine.serve_prompt(prompt.tokens, prompt.adapter, prompt.answer)
        blocks += len(prompt.tokens) // arguments.block_size
        if _due(arguments.clear_every, served):
            engine.clear()
        if _due(arguments.lose_every, served):
            publisher.lose()
        changes = engine.take_changes()
        if changes:
            # An engine has nothing to say of a prompt that it has whole.
            publisher.publish(writer.events(changes))
        if _due(arguments.restart_every, served):
            restart()
        await _pause(publisher, 1 / arguments.rate if arguments.rate else 0)
    _log.info("%d prompts, %d of %d blocks found", served, hits, blocks)


def _due(every: int, count: int) -> bool:
    return bool(every) and count % every == 0


async def _pause(publisher: EventPublisher, seconds: float) -> None:
    """Let time pass, and answer replays meanwhile."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        publisher.answer_replays()
        left = end - loop.time()
        await asyncio.sleep(max(0.0, min(left, _REPLAY_POLL_S)))
        if left <= 0:
            return
