"""The order of a publisher's batches: each loss, and exactly what is done about it."""

from __future__ import annotations

import pytest
from support.kv_order import END, Driver, following_to_4
from warmindex_subscriber.kv.held import HELD_FRAMES_MAX
from warmindex_subscriber.kv.order import State
from warmindex_subscriber.kv.replay import REPLAY_SILENCE_S, RETRY_S_MIN


@pytest.fixture
def following() -> Driver:
    """Live and in order, with 0 to 4 delivered."""
    return following_to_4()


class TestStart:
    def test_everything_is_asked_for_and_the_live_batches_wait(self):
        """The replay is learned until it meets the first live batch, then all is reported."""
        driver = Driver()
        assert driver.started == ["forget", "replay 0"]
        assert driver.live(3, 4) == []
        assert driver.replay(0, 1) == ["learn 0", "learn 1"]
        assert driver.replay(2) == ["learn 2", "stop", "adopt", "deliver 3", "deliver 4"]
        assert driver.live(5) == ["deliver 5"]

    def test_without_live_batches_the_end_of_the_replay_is_enough(self):
        """An idle engine says all that it has to say."""
        driver = Driver()
        assert driver.replay(0, 1, END) == ["learn 0", "learn 1", "stop", "adopt"]
        assert driver.live(2) == ["deliver 2"]

    def test_a_buffer_that_does_not_reach_back_gives_what_it_has(self):
        """From nothing on, later batches alone are no loss."""
        driver = Driver()
        assert driver.replay(7, 8, END) == ["learn 7", "learn 8", "stop", "adopt"]

    def test_what_is_before_a_hole_is_forgotten(self):
        """An eviction may have been in it."""
        driver = Driver()
        assert driver.replay(0, 2, END) == ["learn 0", "forget", "learn 2", "stop", "adopt"]
        assert driver.counters.replay_holes == 1

    def test_a_silent_replay_delays_live_batches_once(self):
        """Nothing is known then, which is reported; what is live flows, and later it is retried."""
        driver = Driver()
        driver.live(5, 6)
        assert driver.wait(REPLAY_SILENCE_S) == [
            "stop",
            "forget",
            "adopt",
            "deliver 5",
            "deliver 6",
        ]
        assert driver.live(7) == ["deliver 7"]
        assert driver.wait(RETRY_S_MIN) == ["forget", "replay 0"]
        assert driver.live(8) == ["deliver 8"]

    def test_a_replay_that_is_cut_off_is_not_believed(self):
        """Without its end, and with nothing live behind it, more may have happened."""
        driver = Driver()
        driver.replay(0, 1)
        assert driver.wait(REPLAY_SILENCE_S) == ["stop", "forget", "adopt"]

    def test_a_replay_that_is_alive_is_not_silent(self):
        """Silence counts from the last batch."""
        driver = Driver()
        driver.wait(REPLAY_SILENCE_S - 0.1)
        driver.replay(0)
        assert driver.wait(REPLAY_SILENCE_S - 0.1) == []

    def test_live_batches_that_reach_farther_back_are_enough(self):
        """A short buffer takes nothing from what was seen live."""
        driver = Driver()
        driver.live(0, 1, 2)
        said = driver.replay(2)
        assert said == ["learn 2", "stop", "forget", "adopt", "deliver 0", "deliver 1", "deliver 2"]

    def test_a_hole_between_replay_and_live_is_a_gap(self):
        """The replay was answered before the lost batch: it is asked for."""
        driver = Driver()
        driver.live(3, 4)
        assert driver.replay(0, 1, END) == ["learn 0", "learn 1", "stop", "adopt", "replay 1"]
        assert driver.replay(1, 2) == ["deliver 2", "stop", "deliver 3", "deliver 4"]

    def test_an_engine_that_was_asked_too_early_is_asked_again_once(self):
        """An empty answer beside a live batch may be older than the batch."""
        driver = Driver()
        driver.live(1)
        assert driver.replay(END) == ["replay 0"]
        assert driver.replay(END) == ["stop", "adopt", "deliver 1"]

    def test_the_first_batch_of_an_engine_that_has_said_nothing_is_0(self):
        """Another one means that some were lost."""
        driver = Driver()
        driver.replay(END)
        assert driver.live(2) == ["forget", "replay 0"]
        assert driver.replay(0, 1) == ["learn 0", "learn 1", "stop", "adopt", "deliver 2"]

    def test_a_restart_meanwhile_begins_again(self):
        """What was learned was of the last life."""
        driver = Driver()
        driver.live(7)
        driver.replay(0)
        assert driver.live(0, life="b") == ["forget", "replay 0"]
        assert driver.counters.restarts == 1

    def test_too_many_held_batches_end_the_waiting(self):
        """Memory is bounded whatever the replay does."""
        driver = Driver()
        said = driver.live(*range(1, HELD_FRAMES_MAX + 1))
        assert said[:4] == ["stop", "forget", "adopt", "deliver 1"]
        assert len(said) == 3 + HELD_FRAMES_MAX

    def test_without_a_replay_endpoint_the_report_is_empty(self):
        """Nothing is vouched for, and everything live flows, from whatever number on."""
        driver = Driver(has_replay=False)
        assert driver.started == ["forget", "adopt"]
        assert driver.live(9, 10) == ["deliver 9", "deliver 10"]


class TestGap:
    def test_what_is_missing_comes_before_what_is_live(self, following: Driver):
        """Gap, then replay, then live."""
        assert following.live(7, 8) == ["replay 4"]
        assert following.replay(4, 5) == ["deliver 5"]
        assert following.replay(6) == ["deliver 6", "stop", "deliver 7", "deliver 8"]
        assert following.counters.gaps == following.counters.gaps_filled == 1

    def test_a_replay_that_begins_just_behind_the_last_batch_is_believed(self, following: Driver):
        """The connection held, and the buffer may end right there."""
        following.live(7)
        assert following.replay(5, 6) == ["deliver 5", "deliver 6", "stop", "deliver 7"]

    def test_a_replay_that_begins_before_it_was_asked_to_is_read_from_there(
        self, following: Driver
    ):
        """What was delivered is passed over."""
        following.live(6)
        assert following.replay(2, 3, 4, 5) == ["deliver 5", "stop", "deliver 6"]

    def test_a_replay_that_is_too_short_clears(self, following: Driver):
        """The buffer no longer has what is missing."""
        following.live(9)
        assert following.replay(7, 8) == ["clear", "deliver 7", "deliver 8", "stop", "deliver 9"]

    def test_a_replay_with_a_hole_clears(self, following: Driver):
        """A batch that could not be encoded can never be replayed."""
        following.live(8)
        assert following.replay(4, 5, 7) == ["deliver 5", "clear", "deliver 7", "stop", "deliver 8"]

    def test_a_replay_that_ends_too_soon_clears(self, following: Driver):
        """What is between its end and the live batches is lost."""
        following.live(8)
        assert following.replay(4, 5, END) == ["deliver 5", "stop", "clear", "deliver 8"]

    def test_a_silent_replay_clears_and_is_tried_again(self, following: Driver):
        """Live batches go on at once, and later everything is learned anew beside them."""
        following.live(7, 8)
        said = following.wait(REPLAY_SILENCE_S)
        assert said == ["stop", "clear", "deliver 7", "deliver 8"]
        assert following.wait(RETRY_S_MIN) == ["forget", "replay 0"]
        assert following.order.state is State.REBUILDING

    def test_a_replay_that_is_cut_off_clears(self, following: Driver):
        """Half of what is missing is not what is missing."""
        following.live(8)
        following.replay(4, 5)
        assert following.wait(REPLAY_SILENCE_S) == ["stop", "clear", "deliver 8"]

    def test_a_restart_behind_the_gap_is_found_out(self, following: Driver):
        """The batch before the gap has the same number and other bytes: another life."""
        following.live(7, life="b")
        assert following.replay(4, life="b") == ["clear", "forget", "replay 0"]
        assert following.counters.restarts == 1
        following.live(8, life="b")
        said = following.replay(*range(8), life="b")
        assert said[-3:] == ["stop", "adopt", "deliver b8"]

    def test_a_number_that_falls_back_meanwhile_is_a_restart(self, following: Driver):
        """The gap no longer matters."""
        following.live(7)
        assert following.live(1, life="b") == ["stop", "clear", "forget", "replay 0"]

    def test_too_many_held_batches_clear(self, following: Driver):
        """A replay that takes for ever must not fill the memory."""
        said = following.live(*range(6, 6 + HELD_FRAMES_MAX))
        assert said[:4] == ["replay 4", "stop", "clear", "deliver 6"]

    def test_without_a_replay_endpoint_it_clears(self):
        """There is nobody to ask."""
        driver = Driver(has_replay=False)
        driver.live(0)
        assert driver.live(2, 3) == ["clear", "deliver 2", "deliver 3"]

    def test_while_the_last_replay_has_failed_it_clears(self, following: Driver):
        """Live batches do not wait twice for an endpoint that does not answer."""
        following.live(7)
        following.wait(REPLAY_SILENCE_S)
        assert following.live(9) == ["clear", "deliver 9"]


class TestRestart:
    def test_the_first_batch_of_a_new_life_clears(self, following: Driver):
        """0 again: all that was known is gone, and all that is new is here."""
        assert following.live(0, 1, life="b") == ["clear", "deliver b0", "deliver b1"]
        assert following.counters.restarts == 1

    def test_a_later_batch_of_a_new_life_wants_a_replay(self, following: Driver):
        """What came before it was lost."""
        assert following.live(2, life="b") == ["clear", "forget", "replay 0"]
        said = following.replay(0, 1, life="b")
        assert said == ["learn b0", "learn b1", "stop", "adopt", "deliver b2"]

    def test_without_a_replay_endpoint_it_goes_on_from_there(self):
        """Cleared, and the later batch delivered."""
        driver = Driver(has_replay=False)
        driver.live(0, 1, 2)
        assert driver.live(1, life="b") == ["clear", "deliver b1"]

    def test_a_batch_that_comes_twice_is_no_restart(self, following: Driver):
        """Same number, same bytes."""
        assert following.live(4) == []
        assert following.counters.duplicates == 1

    def test_a_live_batch_that_its_replay_overtook_is_no_restart(self, following: Driver):
        """The replay may be faster than the live socket."""
        following.disconnect()
        following.connect()
        assert following.replay(4, 5, 6, END) == ["deliver 5", "deliver 6", "stop"]
        assert following.live(5, 6, 7) == ["deliver 7"]
        assert (following.counters.restarts, following.counters.duplicates) == (0, 2)

    def test_another_batch_of_an_overtaken_number_is_a_restart(self):
        """Same number, other bytes."""
        driver = Driver()
        driver.replay(0, 1, 2, END)
        assert driver.live(0, life="b") == ["clear", "deliver b0"]

    def test_a_live_number_never_falls_back_in_one_life(self):
        """Even with the bytes of a replayed batch: live batches come in order."""
        driver = Driver()
        driver.replay(0, 1, 2, END)
        assert driver.live(1) == []
        assert driver.live(0) == ["clear", "deliver 0"]
