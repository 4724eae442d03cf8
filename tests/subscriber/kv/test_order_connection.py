"""The order of batches when the publisher goes away, comes again, or owes a replay."""

from __future__ import annotations

import pytest
from support.kv_order import END, Driver, following_to_4
from warmindex_subscriber.kv.order import State
from warmindex_subscriber.kv.replay import (
    AUDIT_S,
    AWAY_S,
    REPLAY_SILENCE_S,
    RETRY_S_MAX,
    RETRY_S_MIN,
)


@pytest.fixture
def following() -> Driver:
    """Live and in order, with 0 to 4 delivered."""
    return following_to_4()


class TestConnection:
    def test_a_new_connection_is_asked_who_it_is(self, following: Driver):
        """The same life answers with the last batch, and with what was missed."""
        following.disconnect()
        assert following.connect() == ["replay 4"]
        assert following.replay(4, 5, END) == ["deliver 5", "stop"]
        assert following.live(6) == ["deliver 6"]

    def test_live_batches_wait_for_the_answer(self, following: Driver):
        """They may be of another life, although the number goes on."""
        following.disconnect()
        following.connect()
        assert following.live(5, life="b") == []
        assert following.replay(4, life="b") == ["clear", "forget", "replay 0"]

    def test_who_does_not_answer_is_not_believed(self, following: Driver):
        """Cleared, although no number is missing."""
        following.disconnect()
        following.connect()
        assert following.wait(REPLAY_SILENCE_S) == ["stop", "clear"]

    def test_who_falls_back_has_answered(self, following: Driver):
        """The live batch of another life is faster than the replay."""
        following.disconnect()
        following.connect()
        assert following.live(4) == []
        assert following.live(1, life="b") == ["stop", "clear", "forget", "replay 0"]

    def test_who_does_not_know_the_last_batch_is_another(self, following: Driver):
        """A new life that has not come so far, and one whose buffer does not reach back."""
        following.disconnect()
        following.connect()
        assert following.replay(END) == ["clear", "forget", "replay 0"]
        other = Driver()
        other.replay(END)
        other.live(0, 1, 2, 3, 4)
        other.disconnect()
        other.connect()
        assert other.replay(5, life="b") == ["clear", "forget", "replay 0"]

    def test_a_publisher_that_stays_away_holds_nothing(self, following: Driver):
        """Cleared once; when somebody comes, everything is learned anew."""
        following.disconnect()
        assert following.wait(AWAY_S - 0.1) == []
        assert following.wait(0.2) == ["clear"]
        assert following.wait(1000) == []
        assert following.connect() == ["forget", "replay 0"]

    def test_a_publisher_that_goes_away_at_the_start_is_reported_empty(self):
        """The index keeps nothing of an earlier life."""
        driver = Driver()
        driver.disconnect()
        assert driver.wait(AWAY_S) == ["stop", "forget", "clear", "adopt"]

    def test_without_a_replay_endpoint_a_new_connection_clears(self):
        """What happened in between cannot be told."""
        driver = Driver(has_replay=False)
        driver.live(0, 1)
        driver.disconnect()
        assert driver.connect() == ["clear"]
        assert driver.live(5) == ["deliver 5"]

    def test_the_first_connection_after_a_start_that_was_too_early_asks_again(self):
        """The engine comes up after the sidecar."""
        driver = Driver()
        driver.wait(REPLAY_SILENCE_S)
        assert driver.connect() == ["forget", "replay 0"]

    def test_the_first_connection_during_the_start_changes_nothing(self):
        """The replay is under way."""
        assert Driver().connect() == []


class TestAudit:
    def test_who_is_quiet_is_asked_for_the_end(self, following: Driver):
        """The last batches may have been lost, and no later one tells."""
        assert following.wait(AUDIT_S) == ["replay 4"]
        assert following.replay(4, 5, END) == ["deliver 5", "stop"]
        assert following.live(6) == ["deliver 6"]
        assert following.counters.clears == 0

    def test_it_is_asked_again_after_as_much_quiet(self, following: Driver):
        """Not with every tick, and not while batches come."""
        following.wait(AUDIT_S)
        following.replay(4, END)
        assert following.wait(AUDIT_S - 1) == []
        assert following.live(5) == ["deliver 5"]
        assert following.wait(AUDIT_S - 1) == []
        assert following.wait(1) == ["replay 5"]

    def test_no_answer_is_no_reason_to_clear(self, following: Driver):
        """Nothing is known to be missing; what came meanwhile goes on."""
        following.wait(AUDIT_S)
        assert following.live(5) == []
        assert following.wait(REPLAY_SILENCE_S) == ["stop", "deliver 5"]
        assert following.wait(RETRY_S_MIN) == []

    def test_no_answer_and_a_gap_are_one(self, following: Driver):
        """Then something is known to be missing."""
        following.wait(AUDIT_S)
        following.live(6)
        assert following.wait(REPLAY_SILENCE_S) == ["stop", "clear", "deliver 6"]

    def test_another_life_is_found_out(self, following: Driver):
        """Behind a proxy a restart may show in nothing else."""
        following.wait(AUDIT_S)
        assert following.replay(4, life="b") == ["clear", "forget", "replay 0"]

    def test_nobody_is_asked_who_is_away_or_has_no_replay(self):
        """There is nobody to answer."""
        driver = Driver(has_replay=False)
        driver.live(0)
        assert driver.wait(AUDIT_S) == []
        idle = Driver()
        idle.replay(END)
        assert idle.wait(AUDIT_S) == []


class TestRebuilding:
    @pytest.fixture
    def rebuilding(self, following: Driver) -> Driver:
        """Cleared by a silent replay, live from 7 on, and learning beside it."""
        following.live(7)
        following.wait(REPLAY_SILENCE_S)
        assert following.wait(RETRY_S_MIN) == ["forget", "replay 0"]
        return following

    def test_live_batches_flow_and_what_was_learned_takes_their_place(self, rebuilding: Driver):
        """The replay meets what was kept, and all of it is reported."""
        assert rebuilding.live(8, 9) == ["deliver 8", "deliver 9"]
        said = rebuilding.replay(*range(8))
        assert said[:8] == [f"learn {i}" for i in range(8)]
        assert said[8:] == ["stop", "adopt", "deliver 8", "deliver 9"]
        assert rebuilding.live(10) == ["deliver 10"]
        assert rebuilding.counters.restarts == 0

    def test_a_live_batch_that_was_learned_already_is_no_restart(self, rebuilding: Driver):
        """The replay overtook it, and it is not applied again on top."""
        rebuilding.replay(*range(10))
        assert rebuilding.live(8) == ["deliver 8", "stop", "adopt"]
        assert rebuilding.live(9, 10) == ["deliver 10"]
        assert rebuilding.counters.restarts == 0

    def test_what_is_learned_reaches_back_to_its_last_hole(self, rebuilding: Driver):
        """Which may be no farther than what was seen live."""
        said = rebuilding.replay(0, 7, 8, END)
        assert said == ["learn 0", "forget", "learn 7", "learn 8", "stop", "forget"]

    def test_what_reaches_no_farther_back_is_not_taken(self, rebuilding: Driver):
        """A short buffer knows less than what was seen live."""
        assert rebuilding.replay(7, 8, END) == ["learn 7", "learn 8", "stop", "forget"]
        assert rebuilding.live(8) == ["deliver 8"]

    def test_a_replay_that_ends_before_the_kept_batches_is_dropped(self, rebuilding: Driver):
        """What is between them is lost, and what is live knows as much."""
        rebuilding.live(8)
        assert rebuilding.replay(0, 1, END) == ["learn 0", "learn 1", "stop", "forget"]

    def test_a_replay_that_ends_before_what_was_delivered_is_of_another_life(
        self, rebuilding: Driver
    ):
        """The publisher knows best what it holds."""
        assert rebuilding.replay(0, 1, END, life="b")[-2:] == ["stop", "adopt"]

    def test_even_where_it_reaches_no_farther_back(self, following: Driver):
        """It is the end that tells."""
        following.live(7)
        following.wait(REPLAY_SILENCE_S)
        following.live(8, 9)
        following.wait(RETRY_S_MIN)
        assert following.replay(7, END, life="b") == ["learn b7", "stop", "adopt"]

    def test_it_is_tried_again_later_and_later(self, rebuilding: Driver):
        """Doubling, up to a limit."""
        waits = []
        for _ in range(8):
            rebuilding.wait(REPLAY_SILENCE_S)
            waited = 0.0
            while not rebuilding.wait(0.5):
                waited += 0.5
            waits.append(waited + 0.5)
        assert waits == [2, 4, 8, 16, 32, RETRY_S_MAX, RETRY_S_MAX, RETRY_S_MAX]

    def test_a_gap_ends_it(self, rebuilding: Driver):
        """What is kept is no longer whole either."""
        assert rebuilding.live(10) == ["stop", "forget", "clear", "deliver 10"]

    def test_a_lost_connection_ends_it(self, rebuilding: Driver):
        """Who is there comes first."""
        rebuilding.disconnect()
        assert rebuilding.connect() == ["stop", "forget", "replay 7"]

    def test_nothing_is_learned_that_is_known(self):
        """Who has seen batch 0 and lost nothing since owes no replay."""
        driver = Driver()
        driver.live(0)
        driver.wait(REPLAY_SILENCE_S)
        assert driver.wait(RETRY_S_MIN) == []
        assert driver.order.state is State.LIVE
