"""The story on a terminal: both policies, live, and a table at the end."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from warmindex_subscriber.demo_kv.engines import NAMES
from warmindex_subscriber.demo_kv.score import Score
from warmindex_subscriber.demo_kv.story import Story

FRAMES_PER_S: Final = 8
# Where there is no terminal, a line in so long.
LINE_S: Final = 5.0
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_POINTS: Final = 24
_STYLES: Final = {"round-robin": "yellow", "LookupRoute": "green"}


class Screen:
    """Shows a story as it goes on; to be entered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(
            console=console, auto_refresh=False, transient=True, vertical_overflow="visible"
        )
        self._shown_s = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, story: Story) -> None:
        """Show how far it is, unless that was only just shown."""
        now_s = time.monotonic()
        pause_s = 1 / FRAMES_PER_S if self._console.is_terminal else LINE_S
        if now_s - self._shown_s < pause_s:
            return
        self._shown_s = now_s
        if self._console.is_terminal:
            self._live.update(_frame(story), refresh=True)
        elif story.routed.prompts:
            rates = ", ".join(f"{each.name} {each.rate:.0%}" for each in _both(story))
            self._console.print(f"{story.routed.prompts} prompts: {rates}", highlight=False)


def summary(story: Story) -> RenderableType:
    """The end of the story."""
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for column in ("", "prefix hit rate", "tokens saved", "computed", "prompts an engine"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for score in _both(story):
        counts = [score.prompts_of[name] for name in NAMES]
        table.add_row(
            Text(score.name, _STYLES[score.name]),
            f"{score.rate:.1%}",
            f"{score.tokens_found:,}",
            f"{score.tokens_computed:,}",
            f"{min(counts)} to {max(counts)}",
        )
    lines = [f"At best, with one cache that forgets nothing: {story.at_best.rate:.1%}."]
    if story.lookups_s:
        p50_ms, p99_ms = _milliseconds(story.lookups_s)
        lines.append(f"LookupRoute by token ids: p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms.")
    if story.claims_not_met:
        lines.append(
            f"{story.claims_not_met} of {story.routed.prompts} prompts found less than it had "
            "said: an eviction was still on its way."
        )
    return Group(table, Text(), *map(Text, lines))


def _frame(story: Story) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for column in ("", "prefix hit rate", "over time", "tokens saved"):
        table.add_column(column, justify="right" if column == "tokens saved" else "left")
    for score in _both(story):
        style = _STYLES[score.name]
        table.add_row(
            Text(score.name, style),
            Text(f"{score.rate:6.1%}", f"bold {style}"),
            Text(sparkline(score.rates(_POINTS)).ljust(_POINTS), style),
            f"{score.tokens_found:,}",
        )
    head = Text.assemble((f"{story.doing} ", "bold"), f"{story.routed.prompts:,} prompts")
    return Group(head, Text(), table)


def sparkline(rates: Sequence[float]) -> str:
    """Rates of 0 to 1 as a line of blocks."""
    return "".join(_LEVELS[min(int(rate * len(_LEVELS)), len(_LEVELS) - 1)] for rate in rates)


def _both(story: Story) -> tuple[Score, Score]:
    return story.in_turn, story.routed


def _milliseconds(seconds: Sequence[float]) -> tuple[float, float]:
    """Their median and 99th percentile."""
    ordered = sorted(seconds)
    return statistics.median(ordered) * 1000, ordered[int(len(ordered) * 0.99)] * 1000
