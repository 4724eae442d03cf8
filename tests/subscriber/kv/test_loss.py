"""Whatever is lost on the way, the index never claims what the engine does not hold."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kv_world import World

# What may happen, and how often it does by itself.
STEPS = {
    "publish": (12, lambda w: w.engine.publish()),
    "publish what cannot be encoded": (1, lambda w: w.engine.publish(lost_for_ever=True)),
    "deliver": (8, World.deliver),
    "deliver all": (4, lambda w: w.deliver(100)),
    "lose a batch": (2, World.lose),
    "answer the replay": (5, World.answer_replay),
    "cut the replay off": (1, World.cut_replay),
    "receive some replay": (8, World.receive_replay),
    "receive all replay": (3, lambda w: w.receive_replay(100)),
    "disconnect": (0.5, World.disconnect),
    "connect": (1, World.connect),
    "restart": (0.3, lambda w: w.restart(late_batches=False)),
    "restart, batches still to be read": (0.3, lambda w: w.restart(late_batches=True)),
    "restart behind a proxy": (0, World.restart_unseen),
    "wait": (3, lambda w: w.wait(0.5)),
    "wait long": (1, lambda w: w.wait(3.0)),
    "sidecar restarts": (0.1, World.attach),
}
LOSSLESS = ("publish", "deliver", "deliver all", "wait")


def walk(
    world: World, seed: int, steps: int, *, without: tuple[str, ...] = (), **chances: float
) -> None:
    """A random life: each one has its own taste in misfortunes."""
    rng = random.Random(seed)
    names = [name for name in STEPS if name not in without]
    chance = {name: STEPS[name][0] for name in names} | {
        name.replace("_", " "): value for name, value in chances.items()
    }
    weights = [chance[name] * rng.choice((0.2, 1, 1, 4)) for name in names]
    for name in rng.choices(names, weights, k=steps):
        STEPS[name][1](world)


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([0, 1, 3, 8, 1000]))
@settings(max_examples=250, deadline=None)
def test_after_the_dust_settles_nothing_is_claimed_that_is_not_held(
    seed: int, has_replay: bool, buffer_batches: int
):
    """Loss, restarts, cut and silent replays in any order end in claims that are all true."""
    world = World(seed=seed, has_replay=has_replay, buffer_batches=buffer_batches)
    for phase in range(3):
        walk(world, seed + phase, 80)
        world.settle()
        assert world.claims <= world.engine.holds


@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([1, 3, 8, 1000]))
@settings(max_examples=250, deadline=None)
def test_a_restart_behind_a_proxy_is_seen_by_its_numbers_alone(
    seed: int, has_replay: bool, buffer_batches: int
):
    """Where the connection outlives the engine, a new life shows by falling back or by a gap.

    It does not where its numbers go on from the last ones by chance, which is left out here.
    """
    world = World(seed=seed, has_replay=has_replay, buffer_batches=buffer_batches)
    for phase in range(3):
        walk(world, seed + phase, 80, restart_behind_a_proxy=1.0)
        world.settle()
        assert world.claims <= world.engine.holds or world.coincidence


@given(st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_a_complete_replay_gives_back_everything(seed: int):
    """With a replay buffer that reaches back, all that the engine holds is claimed again."""
    world = World(seed=seed, buffer_batches=10_000)
    walk(world, seed, 150, without=("publish what cannot be encoded",))
    world.settle()
    assert world.claims == world.engine.holds
    world.attach()
    world.settle()
    assert world.claims == world.engine.holds


@given(st.integers(0, 2**32), st.sampled_from([1, 3, 8, 1000]))
@settings(max_examples=150, deadline=None)
def test_an_engine_that_falls_silent_is_asked_for_what_it_said_last(seed: int, buffer_batches: int):
    """Where the last batches are lost no later one tells, and yet nothing false is claimed."""
    world = World(seed=seed, buffer_batches=buffer_batches)
    for phase in range(2):
        walk(world, seed + phase, 80, without=("publish what cannot be encoded",))
        world.settle(quiet=True)
        assert world.claims <= world.engine.holds


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=100, deadline=None)
def test_without_loss_the_index_is_the_engine(seed: int, has_replay: bool):
    """An index that has seen every batch claims exactly what the engine holds."""
    world = World(seed=seed, has_replay=has_replay)
    walk(world, seed, 100, without=tuple(name for name in STEPS if name not in LOSSLESS))
    world.settle()
    assert world.claims == world.engine.holds


@pytest.mark.parametrize("has_replay", [True, False])
def test_a_clear_is_what_a_lost_batch_costs_without_a_replay(has_replay: bool):
    """Where nothing can be asked for, everything goes; where it can, everything stays."""
    world = World(seed=3, has_replay=has_replay, buffer_batches=1000)
    world.settle()
    for _ in range(30):
        world.engine.publish()
    world.deliver(100)
    assert world.claims == world.engine.holds != set()
    world.engine.say_nothing()
    world.lose()
    world.engine.say_nothing()
    world.deliver()
    world.answer_replay()
    world.receive_replay(100)
    assert world.claims == (world.engine.holds if has_replay else set())
