"""Fleets of engines without a model: with caches alone, or with events over ZMQ as well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from warmindex_subscriber.fake_engine.cache import Engine
from warmindex_subscriber.fake_engine.publisher import Endpoints, EventPublisher
from warmindex_subscriber.fake_engine.shapes import Writer
from warmindex_subscriber.fake_engine.traffic import Prompt

ADAPTERS: Final = ("sql-lora", "chat-lora")
BLOCK_TOKENS: Final = 16
# An engine has room for 32,000 tokens: what all conversations share and say is several times that.
BLOCKS_MAX: Final = 2000
NAMES: Final = ("engine-1", "engine-2", "engine-3", "engine-4")
_REPLAY_POLL_S: Final = 0.01


def whole_tokens(tokens: Sequence[int]) -> int:
    """The tokens of a prompt's whole blocks."""
    return len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS


class Fleet:
    """Engines with caches and no events."""

    def __init__(self, names: Sequence[str] = NAMES, blocks_max: int = BLOCKS_MAX) -> None:
        self.engines = {
            name: Engine(block_tokens=BLOCK_TOKENS, blocks_max=blocks_max, seed=number)
            for number, name in enumerate(names)
        }

    def serve(self, name: str, prompt: Prompt) -> int:
        """Let an engine serve a prompt; how many of its tokens were in the cache."""
        engine = self.engines[name]
        found = engine.serve_prompt(prompt.tokens, prompt.adapter, prompt.answer)
        self._changed(name)
        return found * BLOCK_TOKENS

    def _changed(self, name: str) -> None:
        self.engines[name].take_changes()


class PublishingFleet(Fleet):
    """Engines that publish what changes in their caches, as vLLM does."""

    def __init__(self) -> None:
        super().__init__()
        self._writer = Writer(block_tokens=BLOCK_TOKENS, adapters=ADAPTERS)
        anywhere = Endpoints("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
        self._publishers = {name: EventPublisher(anywhere) for name in self.engines}
        self._replays = dict.fromkeys(self.engines, 0)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Answer replays meanwhile, and close the sockets at the end. In an event loop."""
        answering = asyncio.get_running_loop().create_task(self._answer_replays())
        try:
            yield
        finally:
            answering.cancel()
            for publisher in self._publishers.values():
                publisher.close()

    def endpoints(self, name: str) -> Endpoints:
        """Where an engine publishes."""
        return self._publishers[name].endpoints

    @property
    def followed(self) -> bool:
        """Whether somebody has asked each of them for all that it has said."""
        return all(self._replays.values())

    def _changed(self, name: str) -> None:
        changes = self.engines[name].take_changes()
        if changes:
            self._publishers[name].publish(self._writer.events(changes))

    async def _answer_replays(self) -> None:
        while True:
            for name, publisher in self._publishers.items():
                self._replays[name] += publisher.answer_replays()
            await asyncio.sleep(_REPLAY_POLL_S)
