"""The demo of routes: its policies and scores, and the whole story with its picture."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from warmindex_subscriber.demo_kv import policies
from warmindex_subscriber.demo_kv.engines import BLOCK_TOKENS, Fleet
from warmindex_subscriber.demo_kv.picture import draw
from warmindex_subscriber.demo_kv.policies import FirstToAnswer, RoundRobin
from warmindex_subscriber.demo_kv.score import WINDOW_PROMPTS, Score
from warmindex_subscriber.demo_kv.screen import Screen, sparkline, summary
from warmindex_subscriber.demo_kv.story import Story
from warmindex_subscriber.fake_engine.traffic import Prompt

PNG = b"\x89PNG\r\n\x1a\n"


class TestPolicies:
    def test_in_turn(self):
        """One after the other, again and again."""
        turns = RoundRobin(["a", "b", "c"])
        assert [turns.choose() for _ in range(5)] == ["a", "b", "c", "a", "b"]

    def test_who_holds_the_most_answers_first(self):
        """As long as nobody has anything else to do."""
        router = FirstToAnswer(["a", "b", "c"])
        assert router.choose(100, {"b": 48, "c": 64}, 0.0) == "c"

    def test_nobody_waits_behind_a_queue(self):
        """Another engine computes the whole prompt sooner than the first one gets to it."""
        router = FirstToAnswer(["a", "b"])
        assert router.choose(1000, {}, 0.0) == "a"
        assert router.choose(1000, {"a": 900}, 0.0) == "b", "1100 tokens to go at a"
        assert router.choose(1000, {"a": 900}, 0.0) == "a", "2000 at b"

    def test_queues_shorten_with_time(self, monkeypatch: pytest.MonkeyPatch):
        """What an engine was given before it has computed by now."""
        monkeypatch.setattr(policies, "PREFILL_TOKENS_PER_S", 100.0)
        router = FirstToAnswer(["a", "b"])
        assert router.choose(1000, {}, 0.0) == "a"
        assert router.choose(1000, {"a": 500}, 4.0) == "b", "600 + 500 at a"
        assert router.choose(1000, {"a": 500}, 11.0) == "a"


class TestScore:
    def test_what_is_found_is_saved(self):
        """In tokens, of all and lately."""
        score = Score("one")
        score.add("a", 100, 0)
        score.add("b", 300, 300)
        assert (score.prompts, score.rate, score.tokens_computed) == (2, 0.75, 100)
        assert (score.rate_at(0), score.rate_at(1), score.rate_at(2)) == (0, 0, 0.75)
        assert dict(score.prompts_of) == {"a": 1, "b": 1}

    def test_the_rate_over_time_forgets(self):
        """It is that of the last prompts alone."""
        score = Score("one")
        for found in [0] * WINDOW_PROMPTS + [10] * WINDOW_PROMPTS:
            score.add("a", 10, found)
        assert score.rate_at(WINDOW_PROMPTS) == 0
        assert score.rate_at(2 * WINDOW_PROMPTS) == 1
        assert score.rates(4) == [0.0, 0.0, 0.5, 1.0]
        assert Score("none").rates(4) == []

    def test_a_line_of_rates(self):
        """From nothing to everything."""
        assert sparkline([0, 0.5, 1]) == "▁▅█"


def test_a_fleet_finds_what_its_engine_has_served():
    """Each engine has a cache of its own; what is found counts in tokens."""
    fleet = Fleet(["a", "b"])
    prompt = Prompt(list(range(5 * BLOCK_TOKENS)), "", [], 1, 1)
    assert fleet.serve("a", prompt) == 0
    assert fleet.serve("b", prompt) == 0
    assert fleet.serve("a", prompt) == 5 * BLOCK_TOKENS


def story_of(prompts: int) -> Story:
    story = Story(doing="serving prompts")
    for number in range(prompts):
        story.in_turn.add(f"engine-{number % 4 + 1}", 160, 16 * (number % 3))
        story.routed.add("engine-1", 160, 16 * (number % 9))
        story.at_best.add("everything", 160, 16 * (number % 10))
        story.lookups_s.append(0.001)
    return story


def test_the_picture_is_a_png(tmp_path: Path):
    """Of a long story, and of one with a single prompt."""
    pytest.importorskip("matplotlib", reason="the extra `demo` is not installed")
    for prompts in (1, 500):
        path = tmp_path / f"{prompts}.png"
        draw(story_of(prompts), path)
        assert path.read_bytes().startswith(PNG)


@pytest.mark.parametrize("terminal", [True, False])
def test_the_screen_shows_both(terminal: bool):
    """Live on a terminal, else in a line now and then; and a table at the end."""
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100)
    with Screen(console) as screen:
        screen.show(Story())
        screen._shown_s = 0.0
        screen.show(story_of(100))
    story = story_of(100)
    story.claims_not_met = 3
    console.print(summary(story))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    live, _, end = shown.partition("computed")
    assert live.count("round-robin") >= 1
    assert "LookupRoute" in live
    assert "3 of 100 prompts found less" in end


@pytest.mark.slow
async def test_the_story_ends_well(tmp_path: Path):
    """As people run it: the index was right, routing found more, and there is a picture."""
    pytest.importorskip("matplotlib", reason="the extra `demo` is not installed")
    path = tmp_path / "routes.png"
    command = ["demo-kv", "--seconds", "4", "--picture", str(path)]
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "warmindex_subscriber", *command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "right about every engine to the end" in ended.stdout
    assert str(path) in ended.stdout.replace("\n", "")
    assert path.read_bytes().startswith(PNG)


@pytest.mark.slow
async def test_a_story_without_an_end_is_a_failure():
    """Nothing was served, so that routing found no more than taking turns."""
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "warmindex_subscriber", "demo-kv", "--seconds", "0", "--picture="],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 1
    assert "did not find more" in ended.stdout
