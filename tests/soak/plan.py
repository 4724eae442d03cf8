"""What one run is made of; the seed decides all of it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

JOURNALS: Final = ("memory", "sqlite", "redis")
# More than any run writes: the whole log stays, and everything can be held against it.
KEEP_ALL: Final = 10**9
VIEWS: Final = (
    ("", (), True),
    ("blue", (), True),
    ("", ("sql-lora",), True),
    ("", (), False),
    ("blue", ("", "chat-lora"), False),
)
SECONDS_DEFAULT: Final = 8.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run."""

    seed: int
    journal: str
    seconds: float
    servers: int
    snapshot_records: int
    keep_records: int
    # Of the effects, for watchers: with little, one that lags begins anew.
    keep_bytes: int
    # Whether Redis may come back without its data; then histories change.
    loses_data: bool
    lease_s: float
    # Tenants of the speakers, by their replica's name; a name may be in both.
    speakers: tuple[tuple[str, str], ...]
    sources: int
    views: tuple[tuple[str, tuple[str, ...], bool], ...]


def plan_of(seed: int, journal: str = "", seconds: float = SECONDS_DEFAULT) -> Plan:
    """The plan of a seed; another journal or length makes another plan of it."""
    chance = random.Random(seed)
    kind = chance.choice(JOURNALS)
    servers = chance.randint(1, 3)
    journal = journal or kind
    cut = chance.random() < 0.4
    return Plan(
        seed=seed,
        journal=journal,
        seconds=seconds,
        servers=servers if journal == "redis" else 1,
        snapshot_records=chance.choice((60, 200, 800)),
        keep_records=chance.choice((0, 20, 200)) if cut else KEEP_ALL,
        keep_bytes=chance.choice((30_000, 200_000, 64 * 2**20)),
        loses_data=chance.random() < 0.35,
        lease_s=chance.choice((0.0, 0.0, 1.0)),
        speakers=tuple(chance.sample((("s1", ""), ("s2", ""), ("s1", "blue")), k=2)),
        sources=chance.randint(0, 1),
        views=tuple(chance.sample(VIEWS, k=2)),
    )
