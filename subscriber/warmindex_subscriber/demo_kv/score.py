"""How much of the prompts was found in caches, over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

# A rate over time is that of so many prompts.
WINDOW_PROMPTS: Final = 150


@dataclass(slots=True)
class Score:
    """One policy's. Tokens count whole blocks: the rest of a prompt is never found."""

    name: str
    prompts: int = 0
    tokens: int = 0
    tokens_found: int = 0
    prompts_of: Counter[str] = field(default_factory=Counter)
    # After each prompt: all tokens so far, and those found.
    history: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def add(self, engine: str, tokens: int, found: int) -> None:
        """A prompt was served."""
        self.prompts += 1
        self.prompts_of[engine] += 1
        self.tokens += tokens
        self.tokens_found += found
        self.history.append((self.tokens, self.tokens_found))

    @property
    def rate(self) -> float:
        """The part of all tokens that was found, 0 to 1."""
        return self.tokens_found / self.tokens if self.tokens else 0.0

    @property
    def tokens_computed(self) -> int:
        """Tokens that were not found."""
        return self.tokens - self.tokens_found

    def rate_at(self, prompts: int) -> float:
        """The rate of the last `WINDOW_PROMPTS` after so many prompts."""
        tokens, found = self.history[prompts]
        tokens_before, found_before = self.history[max(0, prompts - WINDOW_PROMPTS)]
        return (found - found_before) / (tokens - tokens_before) if tokens > tokens_before else 0.0

    def rates(self, points: int) -> list[float]:
        """The rate over time, at so many points, or at every prompt where there are fewer."""
        step = max(1, self.prompts // points)
        return [self.rate_at(at) for at in range(step, self.prompts + 1, step)][-points:]
