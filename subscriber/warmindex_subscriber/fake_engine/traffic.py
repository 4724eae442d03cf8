"""Prompts as chats make them: a few system prompts that all share, and turns that grow.

Each application has a system prompt and an adapter. A conversation begins with its
application's system prompt; each turn adds what the user says, and the prompt of the next turn
has the answer in it too. Popular applications have more conversations.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

VOCABULARY: Final = 32_000
# Lengths in tokens: system prompts with tools and examples are long, chat messages short.
_SYSTEM: Final = (300, 1500)
_USER: Final = (20, 200)
_ANSWER: Final = (40, 300)
# After each turn a conversation ends with this chance: five turns on average.
_ENDS: Final = 0.2
# A conversation longer than this ends: contexts are bounded.
PROMPT_TOKENS_MAX: Final = 8192


class Prompt(NamedTuple):
    """One request: the whole prompt, the adapter that serves it, and the answer to come."""

    tokens: list[int]
    adapter: str
    answer: list[int]
    conversation: int
    turn: int


@dataclass(slots=True)
class _Conversation:
    number: int
    adapter: str
    tokens: list[int]
    turn: int = field(default=0)


class Traffic:
    """An endless stream of prompts, the same for the same seed.

    `adapters` are dealt to the `applications` in turn; "" is the base model. `conversations`
    go on at once. Two streams with one `world_seed` share their applications.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        applications: int = 6,
        adapters: Sequence[str] = ("",),
        conversations: int = 32,
        world_seed: int = 0,
    ) -> None:
        world = random.Random(f"applications of {world_seed}")  # noqa: S311 - no secret
        self._random = random.Random(f"conversations of {seed}")  # noqa: S311 - no secret
        self._applications = [
            (adapters[number % len(adapters)], _tokens(world, _SYSTEM))
            for number in range(applications)
        ]
        # The nth application is asked for 1/n as often as the first.
        self._weights = [1 / (number + 1) for number in range(applications)]
        self._begun = 0
        self._conversations = [self._begin() for _ in range(conversations)]

    def __iter__(self) -> Iterator[Prompt]:
        """The prompts, for ever."""
        while True:
            yield self.next()

    def next(self) -> Prompt:
        """The next prompt, of a conversation that goes on or begins."""
        rng = self._random
        place = rng.randrange(len(self._conversations))
        conversation = self._conversations[place]
        conversation.tokens = conversation.tokens + _tokens(rng, _USER)
        conversation.turn += 1
        answer = _tokens(rng, _ANSWER)
        prompt = Prompt(
            conversation.tokens,
            conversation.adapter,
            answer,
            conversation.number,
            conversation.turn,
        )
        conversation.tokens = conversation.tokens + answer
        if rng.random() < _ENDS or len(conversation.tokens) > PROMPT_TOKENS_MAX:
            self._conversations[place] = self._begin()
        return prompt

    def _begin(self) -> _Conversation:
        (adapter, system), *_ = self._random.choices(self._applications, self._weights)
        self._begun += 1
        return _Conversation(self._begun, adapter, list(system))


def _tokens(rng: random.Random, lengths: tuple[int, int]) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(rng.randint(*lengths))]
