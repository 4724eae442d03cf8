"""The same prompts through two fleets of four engines, each empty at the beginning.

One serves them in turn. The engines of the other publish their events; a sidecar beside each
keeps the index true to its cache, and LookupRoute says of each prompt who holds how much:

    prompt ──LookupRoute──> server <── sidecar <──ZMQ── engine
       └────────────────── served by the first to answer ──┘

A third fleet, of one engine that forgets nothing, shows what could be found at best.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from warmindex.client import IndexClient
from warmindex.demo.processes import line_with, running
from warmindex.event import PartitionKey

from warmindex_subscriber.demo_kv.engines import (
    ADAPTERS,
    BLOCK_TOKENS,
    NAMES,
    Fleet,
    PublishingFleet,
    whole_tokens,
)
from warmindex_subscriber.demo_kv.policies import FirstToAnswer, RoundRobin
from warmindex_subscriber.demo_kv.score import Score
from warmindex_subscriber.fake_engine.traffic import Prompt, Traffic

MODEL: Final = "demo/chat"
APPLICATIONS: Final = 12
CONVERSATIONS: Final = 64
PROMPTS_PER_S: Final = 80.0
START_S_MAX: Final = 30.0
# At the end the index and the engines are compared on so many of the last prompts.
PROMPTS_COMPARED: Final = 100
AGREE_S_MAX: Final = 10.0
_POLL_S: Final = 0.02


@dataclass(slots=True)
class Story:
    """How far it is. `problems` are told at the end; without any, all is well."""

    in_turn: Score = field(default_factory=lambda: Score("round-robin"))
    routed: Score = field(default_factory=lambda: Score("LookupRoute"))
    at_best: Score = field(default_factory=lambda: Score("one cache that forgets nothing"))
    lookups_s: list[float] = field(default_factory=list)
    # Prompts of which an engine held less than the index had said: events were under way.
    claims_not_met: int = 0
    doing: str = "starting"
    problems: list[str] = field(default_factory=list)

    @property
    def won(self) -> bool:
        """Whether routing by LookupRoute found more."""
        return self.routed.rate > self.in_turn.rate


async def tell(seconds: float, seed: int, told: Callable[[Story], None]) -> Story:
    """Run it for so long; `told` is called after every prompt."""
    story = Story()
    told(story)
    fleet = PublishingFleet()
    with fleet.open():
        async with _followed(fleet, story) as client:
            run = _Run(story, fleet, client, seed)
            await run.serve(seconds, told)
            story.doing = "comparing the index with the engines"
            told(story)
            await run.compare()
    if not story.won:
        story.problems.append("routing by LookupRoute did not find more than taking turns")
    story.doing = "done"
    told(story)
    return story


@asynccontextmanager
async def _followed(fleet: PublishingFleet, story: Story) -> AsyncIterator[IndexClient]:
    """A server, and a sidecar beside each engine, as processes; told if one ends by itself."""
    async with AsyncExitStack() as stack:
        flags = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
        server = await stack.enter_async_context(running("warmindex_server", flags))
        address = (await line_with(server, "listening on")).rpartition(" ")[2]
        sidecars = []
        for name in fleet.engines:
            live, replay = fleet.endpoints(name)
            assert replay is not None  # noqa: S101 - the fleet gives it one
            arguments = [
                *("kv", "--server", address, "--replica", name, "--model", MODEL),
                *("--endpoint", live, "--replay-endpoint", replay),
            ]
            sidecars.append(
                await stack.enter_async_context(running("warmindex_subscriber", arguments))
            )
        async with asyncio.timeout(START_S_MAX):
            while not fleet.followed:  # noqa: ASYNC110 - replays are polled
                await asyncio.sleep(_POLL_S)
        yield await stack.enter_async_context(IndexClient(address))
        if any(process.returncode is not None for process in (server, *sidecars)):
            story.problems.append("the server or a sidecar has ended by itself")


class _Run:
    """Prompts through all fleets."""

    def __init__(
        self, story: Story, fleet: PublishingFleet, client: IndexClient, seed: int
    ) -> None:
        self._story = story
        self._client = client
        self._routed, self._router = fleet, FirstToAnswer(NAMES)
        self._in_turn, self._turns = Fleet(), RoundRobin(NAMES)
        self._at_best = Fleet(("everything",), blocks_max=10**9)
        self._traffic = Traffic(
            seed=seed,
            applications=APPLICATIONS,
            adapters=("", *ADAPTERS),
            conversations=CONVERSATIONS,
        )
        self._prompts: list[Prompt] = []

    async def serve(self, seconds: float, told: Callable[[Story], None]) -> None:
        """Serve prompts at a steady rate."""
        story = self._story
        story.doing = "serving prompts"
        began_s = time.monotonic()
        while (now_s := time.monotonic()) < began_s + seconds:
            prompt = self._traffic.next()
            self._prompts.append(prompt)
            await self._serve_one(prompt, now_s)
            told(story)
            due_s = began_s + story.routed.prompts / PROMPTS_PER_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _serve_one(self, prompt: Prompt, now_s: float) -> None:
        story, tokens = self._story, whole_tokens(prompt.tokens)
        engine = self._turns.choose()
        story.in_turn.add(engine, tokens, self._in_turn.serve(engine, prompt))
        story.at_best.add("everything", tokens, self._at_best.serve("everything", prompt))

        began_s = time.perf_counter()
        matched = await self._matched(prompt, prompt.adapter)
        story.lookups_s.append(time.perf_counter() - began_s)
        engine = self._router.choose(tokens, matched, now_s)
        found = self._routed.serve(engine, prompt)
        story.claims_not_met += found < matched.get(engine, 0)
        story.routed.add(engine, tokens, found)

    async def _matched(self, prompt: Prompt, adapter: str) -> dict[str, int]:
        """Of each engine, how many of the prompt's tokens it holds, by what the index knows."""
        key = PartitionKey("", MODEL, "", adapter)
        answer = await self._client.lookup_route(key, token_ids=prompt.tokens)
        return {match.replica_id: match.tokens for match in answer.matches}

    async def compare(self) -> None:
        """Once its events have arrived, the index says of each engine exactly what it holds."""
        prompts = self._prompts[-PROMPTS_COMPARED:]
        give_up_s = time.monotonic() + AGREE_S_MAX
        while differing := [prompt for prompt in prompts if not await self._agrees(prompt)]:
            if time.monotonic() > give_up_s:
                self._story.problems.append(
                    f"of {len(prompts)} prompts, the index is wrong about {len(differing)}"
                )
                return
            await asyncio.sleep(_POLL_S)

    async def _agrees(self, prompt: Prompt) -> bool:
        for adapter in ("", *ADAPTERS):
            held = {
                name: found * BLOCK_TOKENS
                for name, engine in self._routed.engines.items()
                if (found := engine.find_prompt(prompt.tokens, adapter))
            }
            if held != await self._matched(prompt, adapter):
                return False
        return True
