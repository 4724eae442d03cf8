"""Who serves a prompt: each engine in turn, or the one that would have answered first.

The second is a policy of this demo's own, and a plain one: what an engine has to compute before
it answers is the part of the prompt that it does not hold, and what it was given before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

# How fast an engine computes prompts here, in tokens per second. It sets how many prompts may
# pile up on one engine before another without their prefix is the better choice.
PREFILL_TOKENS_PER_S: Final = 10_000.0


class RoundRobin:
    """One after the other."""

    def __init__(self, engines: Sequence[str]) -> None:
        self._engines = engines
        self._next = 0

    def choose(self) -> str:
        """The next one."""
        engine = self._engines[self._next]
        self._next = (self._next + 1) % len(self._engines)
        return engine


class FirstToAnswer:
    """The engine with the least to do before it could answer."""

    def __init__(self, engines: Sequence[str]) -> None:
        # What each has yet to compute, in tokens, at `_at_s`.
        self._backlog = dict.fromkeys(engines, 0.0)
        self._at_s = 0.0

    def choose(self, tokens: int, matched: Mapping[str, int], now_s: float) -> str:
        """Choose for a prompt of so many tokens; `matched` is how many of them each one holds.

        Of equals, the one that has had the least to do, then the first.
        """
        done = (now_s - self._at_s) * PREFILL_TOKENS_PER_S
        self._at_s = now_s
        for engine, backlog in self._backlog.items():
            self._backlog[engine] = max(0.0, backlog - done)
        costs = {
            engine: backlog + tokens - matched.get(engine, 0)
            for engine, backlog in self._backlog.items()
        }
        chosen = min(costs, key=lambda engine: (costs[engine], self._backlog[engine]))
        self._backlog[chosen] = costs[chosen]
        return chosen
