"""The two policies over time, as a PNG."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

from warmindex.errors import WarmindexError

from warmindex_subscriber.demo_kv.engines import ADAPTERS, BLOCK_TOKENS, BLOCKS_MAX, NAMES
from warmindex_subscriber.demo_kv.score import WINDOW_PROMPTS, Score
from warmindex_subscriber.demo_kv.story import APPLICATIONS, CONVERSATIONS, Story

# Told apart by those who do not see all colours, too.
_BLUE: Final = "#0072b2"
_ORANGE: Final = "#d55e00"
_GREY: Final = "#666666"
_INCHES: Final = (9.0, 6.2)
_DOTS_PER_INCH: Final = 144


def draw(story: Story, path: Path) -> None:
    """Write the picture of a story in which prompts were served.

    Raises WarmindexError without matplotlib, OSError where the path cannot be written.
    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise WarmindexError(
            f"{error.name} is not installed, and without it there is no picture: "
            "pip install 'warmindex[demo]'"
        ) from error
    # It tells of its cache of fonts, once on every machine.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    rates, saved = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    figure.suptitle(
        "Prompts routed by LookupRoute beside round-robin", x=0.01, ha="left", weight="bold"
    )
    rates.set_title(
        f"{len(NAMES)} engines with room for {BLOCKS_MAX * BLOCK_TOKENS:,} tokens each; "
        f"{CONVERSATIONS} chats of {APPLICATIONS} applications at once, base model and "
        f"{len(ADAPTERS)} adapters",
        loc="left",
        fontsize="medium",
        color=_GREY,
    )
    _draw_rates(rates, story)
    _draw_saved(saved, story)
    for axes in (rates, saved):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#dddddd")
        axes.set_axisbelow(True)
    figure.savefig(path, format="png")


def _draw_rates(axes: Any, story: Story) -> None:
    prompts = range(1, story.routed.prompts + 1)
    for score, colour, style in (
        (story.at_best, _GREY, ":"),
        (story.routed, _BLUE, "-"),
        (story.in_turn, _ORANGE, "-"),
    ):
        rates = [100 * score.rate_at(at) for at in prompts]
        axes.plot(prompts, rates, color=colour, linestyle=style, linewidth=2)
        if score is not story.at_best:
            text = f"{score.name}\n{score.rate:.0%} of all"
            _beside(axes, text, (prompts[-1], rates[-1]), colour)
    axes.text(
        0.99,
        0.04,
        f"dotted: {story.at_best.name}, {story.at_best.rate:.0%} of all",
        transform=axes.transAxes,
        ha="right",
        color=_GREY,
    )
    axes.set_ylim(0, 100)
    axes.set_ylabel(f"prefix hit rate, %\n(last {WINDOW_PROMPTS} prompts)")


def _draw_saved(axes: Any, story: Story) -> None:
    prompts = range(story.routed.prompts + 1)
    routed, in_turn = (_millions(score) for score in (story.routed, story.in_turn))
    axes.plot(prompts, routed, color=_BLUE, linewidth=2)
    axes.plot(prompts, in_turn, color=_ORANGE, linewidth=2)
    axes.fill_between(prompts, in_turn, routed, color=_BLUE, alpha=0.12, linewidth=0)
    text = f"{routed[-1] - in_turn[-1]:+.2f} million"
    _beside(axes, text, (prompts[-1], (routed[-1] + in_turn[-1]) / 2), _BLUE)
    axes.set_xlim(0, prompts[-1])
    axes.set_ylim(0)
    axes.set_xlabel("prompts served")
    axes.set_ylabel("tokens saved,\nmillions")


def _beside(axes: Any, text: str, where: tuple[float, float], colour: str) -> None:
    """A line's name at its end, in place of a legend."""
    axes.annotate(
        text,
        where,
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        annotation_clip=False,
    )


def _millions(score: Score) -> list[float]:
    return [found / 1e6 for _, found in score.history]
