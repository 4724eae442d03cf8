"""Sequence numbers of one publisher -> what to do: loss, replay, restarts. Pure.

An engine numbers its batches 0, 1, 2, … anew in each of its lives, sends each once, and
says nothing when one is lost. What is lost may be an eviction, so that nothing that was
known may be claimed until the loss is filled. The machine is told what arrives and what
time it is, and answers with actions; it opens no socket and reads no clock.

States, and what becomes of a live batch in each:

    LIVE        all is in order                                     delivered
    STARTING    nothing is known, a replay from 0 is under way      held back
    FILLING     a replay of what is missing is under way            held back
    REBUILDING  as LIVE, and a replay from 0 is learned beside it   delivered, and kept

    STARTING    replay done: adopt. Failed: adopt the live batches alone, try again later
    LIVE        gap, reconnected, or long quiet     -> FILLING
                number falls back                   -> clear, STARTING
                a failed replay's time has come     -> REBUILDING
    FILLING     filled                              -> LIVE
                holed, short, silent, cut off       -> clear, LIVE from the live batches on
                the publisher is in another life    -> clear, STARTING
                silent, and nothing known missing   -> LIVE
    REBUILDING  done: adopt. Failed: as before, try again later

Without a replay endpoint there are LIVE and clears.

Who is there. A replay for FILLING starts one batch early: if the batch that comes is the one
that was last delivered, byte for byte (each carries a time), the publisher is still in the
same life; if not, it has restarted and counted up past the gap unseen.

Twins. A replay may run ahead of the live socket, whose batch then comes after its replay:
its number is above the last live one and its bytes are the replay's. Any other number that
falls back is a restart.
"""

from __future__ import annotations

from enum import Enum, auto

from warmindex_subscriber.kv.actions import Action, Adopt, Clear, Forget, StartReplay, StopReplay
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.delivered import Delivered
from warmindex_subscriber.kv.framing import Frame
from warmindex_subscriber.kv.held import Held
from warmindex_subscriber.kv.lesson import Lesson
from warmindex_subscriber.kv.replay import AWAY_S, GIVEN_UP, REPLAY_SILENCE_S, Replay


class State(Enum):
    """Where a publisher's order stands."""

    LIVE = auto()
    STARTING = auto()
    FILLING = auto()
    REBUILDING = auto()


class Order:
    """The order of one publisher's batches. Each input returns what to do, in order."""

    def __init__(
        self,
        counters: Counters,
        *,
        has_replay: bool,
        replay_silence_s: float = REPLAY_SILENCE_S,
    ) -> None:
        self._counters = counters
        self._has_replay = has_replay
        self.state = State.LIVE
        self._delivered = Delivered()
        self._lesson = Lesson()
        self._held = Held()
        self._replay = Replay(replay_silence_s)
        # Whether the replay under way is of the life that was delivered, and must show it.
        self._same_life = self._proof_needed = self._audit = False
        self._asked_again = False
        self._lost_at: float | None = None

    @property
    def lost(self) -> bool:
        """Whether the connection was lost, and there is no other yet."""
        return self._lost_at is not None

    # ------------------------------------------------------------------ inputs

    def start(self, now: float) -> list[Action]:
        """Come to life; the first input."""
        return self._begin(now) if self._has_replay else [Forget(), Adopt()]

    def live(self, frame: Frame, now: float) -> list[Action]:
        """Take a batch of the live socket."""
        self._replay.live(now)
        if self.state is State.LIVE:
            return self._in_order(frame, now)
        if self.state is State.REBUILDING:
            return self._live_while_rebuilding(frame, now)
        if self.state is State.FILLING:
            return self._live_while_filling(frame, now)
        return self._live_while_starting(frame, now)

    def replayed(self, frame: Frame, now: float) -> list[Action]:
        """Take a batch of the replay."""
        self._replay.heard(now)
        if self.state is State.LIVE:
            return []
        return self._fill(frame, now) if self.state is State.FILLING else self._learn(frame, now)

    def replay_ended(self, now: float) -> list[Action]:
        """Take note that the engine has sent all that it still has."""
        if self.state is State.LIVE:
            return []
        return self._fill_ended(now) if self.state is State.FILLING else self._learn_ended(now)

    def disconnected(self, now: float) -> list[Action]:
        """Take note that the connection to the publisher is gone."""
        self._counters.disconnects += 1
        if self._lost_at is None:
            self._lost_at = now
        return []

    def connected(self, now: float) -> list[Action]:
        """Take note of a connection, the first or another: who is at its end is not known.

        What came over the connection that was lost must not come after this.
        """
        lost_at, self._lost_at = self._lost_at, None
        if lost_at is None:
            # The start was too early for a replay: now there is somebody to ask.
            return self._begin(now) if self._replay.retry_pending else []
        known = self._delivered.next and self.state is not State.STARTING and lost_at < GIVEN_UP
        if self._has_replay and not known:
            return self._begin(now)
        if not self._has_replay:
            return self._clear("reconnected, without a replay to tell what was missed")
        abandoned = self._failed(now) if self.state is State.REBUILDING else []
        return abandoned + self._begin_fill(now, proof_needed=True)

    def tick(self, now: float) -> list[Action]:
        """Take note of the time."""
        if self._lost_at is not None and now - self._lost_at >= AWAY_S:
            return self._give_up()
        if self.state is not State.LIVE:
            return self._failed(now) if self._replay.silent(now) else []
        if self._lost_at is not None or not self._has_replay:
            return []
        if self._replay.retry_pending:
            return self._retry(now)
        if self._delivered.next and self._replay.audit_due(now):
            return self._begin_fill(now, audit=True)
        return []

    def _retry(self, now: float) -> list[Action]:
        if not self._replay.retry_due(now):
            return []
        if self._delivered.whole_since == 0:
            # Nothing could be learned that is not known.
            self._replay.retry_never()
            return []
        return self._begin(now, State.REBUILDING)

    # -------------------------------------------------------------------- LIVE

    def _in_order(self, frame: Frame, now: float) -> list[Action]:
        if self._delivered.next is None or frame.sequence == self._delivered.next:
            return [self._delivered.live(frame)]
        if frame.sequence > self._delivered.next:
            return self._gap(frame, now)
        return [] if self._repeats(frame) else self._restarted(frame, now)

    def _repeats(self, frame: Frame) -> bool:
        repeats = self._delivered.repeats(frame)
        self._counters.duplicates += repeats
        return repeats

    def _gap(self, frame: Frame, now: float) -> list[Action]:
        self._counters.gaps += 1
        if not self._has_replay or self._replay.retry_pending:
            return [*self._clear("batches are missing"), self._delivered.live(frame)]
        actions = self._begin_fill(now) if self._delivered.next else self._begin(now)
        self._held.add(frame)
        return actions

    def _restarted(self, frame: Frame, now: float) -> list[Action]:
        """A new life. Its batch 0 is all that it has said; a later one wants a replay."""
        self._counters.restarts += 1
        actions = self._clear("the publisher has restarted")
        if frame.sequence == 0 or not self._has_replay:
            return [*actions, self._delivered.live(frame)]
        actions += self._begin(now)
        self._held.add(frame)
        return actions

    def _clear(self, reason: str) -> list[Action]:
        """What was delivered is void; whichever batch comes next is the first."""
        self._counters.clears += 1
        self._delivered.void()
        return [Clear(reason)]

    def _give_up(self) -> list[Action]:
        """Nobody has been there for too long."""
        self._lost_at = GIVEN_UP
        actions: list[Action] = [StopReplay(), Forget()] if self.state is not State.LIVE else []
        starting = self.state is State.STARTING
        self.state = State.LIVE
        self._replay.retry_never()
        self._held.take()
        actions += self._clear("the publisher is away")
        return [*actions, Adopt()] if starting else actions

    # ---------------------------------------------- STARTING, REBUILDING: learn

    def _begin(self, now: float, state: State = State.STARTING) -> list[Action]:
        """Learn everything from 0 on. What is held was published before, and comes again."""
        if state is State.STARTING:
            self._delivered.void()
        self.state = state
        self._asked_again = False
        self._replay.retry_never()
        self._held.take()
        return [Forget(), self._start_replay(0, now)]

    def _start_replay(self, start: int, now: float) -> Action:
        self._counters.replays += 1
        self._lesson = Lesson()
        self._replay.begin(now)
        return StartReplay(start)

    def _live_while_starting(self, frame: Frame, now: float) -> list[Action]:
        if self._held.falls_back(frame):
            # Restarted meanwhile: what was learned is of its last life.
            self._counters.restarts += 1
            actions = self._begin(now)
            self._held.add(frame)
            return actions
        self._held.add(frame)
        return self._failed(now) if self._held.full else self._try_adopt(now)

    def _live_while_rebuilding(self, frame: Frame, now: float) -> list[Action]:
        if self._delivered.next is not None and frame.sequence != self._delivered.next:
            # Out of order again, and so is what is kept.
            return [*self._failed(now), *self._in_order(frame, now)]
        delivery = self._delivered.kept(frame)
        self._held.add(frame)
        return [delivery, *(self._failed(now) if self._held.full else self._try_adopt(now))]

    def _learn(self, frame: Frame, now: float) -> list[Action]:
        actions = self._lesson.learn(frame)
        self._delivered.expect_twin(frame)
        return actions + self._try_adopt(now)

    def _try_adopt(self, now: float) -> list[Action]:
        """Adopt as soon as the replay has met the live batches."""
        met = self._lesson.next is not None and self._held and self._held.first <= self._lesson.next
        return self._adopt(now) if met else []

    def _learn_ended(self, now: float) -> list[Action]:
        if self.state is State.REBUILDING and (self._held or self._lesson.next is None):
            # It ended before the live batches that are kept: they are all that is known.
            return self._failed(now, retry=False)
        if self._lesson.next is None and self._held and not self._asked_again:
            # It was asked before it had said anything, and has since.
            self._asked_again = True
            return [self._start_replay(0, now)]
        if self._lesson.next is None and not self._held:
            # It has said nothing yet: its first batch will be 0.
            self._lesson.next = self._lesson.whole_since = 0
        return self._adopt(now)

    def _adopt(self, now: float) -> list[Action]:
        """Go on from what was learned, with the live batches that were held."""
        self._replay.succeeded()
        rebuilding = self.state is State.REBUILDING
        self.state = State.LIVE
        if rebuilding and self._delivered.knows_better_than(self._lesson, self._held.frames):
            self._held.take()
            return [StopReplay(), Forget()]
        actions: list[Action] = [StopReplay()]
        since = self._lesson.whole_since
        if self._held and since is not None and self._held.first <= since:
            # The live batches alone reach farther back.
            actions.append(Forget())
            self._lesson = Lesson()
        return [*actions, *self._go_on_from_lesson(now)]

    def _go_on_from_lesson(self, now: float) -> list[Action]:
        self._counters.replay_holes += self._lesson.holes
        self._delivered.adopt(self._lesson, self._held.frames)
        return [Adopt(), *self._release(now)]

    # ----------------------------------------------------------------- FILLING

    def _begin_fill(
        self, now: float, *, proof_needed: bool = False, audit: bool = False
    ) -> list[Action]:
        """Ask for what is missing, and for the batch before it: it tells the life.

        Without `proof_needed` a replay is believed that begins just behind that batch: the
        connection held, and an engine's buffer may end there. With `audit` nothing is known
        to be missing, and no answer is no reason to clear.
        """
        assert self._delivered.next is not None  # noqa: S101 - only what was delivered can have a gap
        self.state = State.FILLING
        self._same_life = False
        self._proof_needed, self._audit = proof_needed, audit
        self._held.take()
        return [self._start_replay(self._delivered.next - 1, now)]

    def _live_while_filling(self, frame: Frame, now: float) -> list[Action]:
        assert self._delivered.next is not None  # noqa: S101 - as above
        fell_back = self._held.falls_back(frame)
        if not self._held and frame.sequence < self._delivered.next:
            if self._repeats(frame):
                return []
            fell_back = True
        if fell_back:
            self.state = State.LIVE
            self._held.take()
            return [StopReplay(), *self._restarted(frame, now)]
        self._held.add(frame)
        return self._failed(now) if self._held.full else self._try_fill(now)

    def _fill(self, frame: Frame, now: float) -> list[Action]:
        assert self._delivered.next is not None  # noqa: S101 - as above
        if not self._same_life and frame.sequence >= self._delivered.next - 1:
            is_last = frame.sequence < self._delivered.next
            if (is_last and frame.payload != self._delivered.last_payload) or (
                self._proof_needed and not is_last
            ):
                return self._other_life(now)
            self._same_life = True
        if frame.sequence < self._delivered.next:
            return self._try_fill(now)
        actions: list[Action] = []
        if frame.sequence > self._delivered.next:
            self._counters.replay_holes += 1
            actions += self._clear("the replay has a hole")
        actions.append(self._delivered.replayed(frame))
        return actions + self._try_fill(now)

    def _other_life(self, now: float) -> list[Action]:
        self._counters.restarts += 1
        return [*self._clear("the publisher has restarted unseen"), *self._begin(now)]

    def _try_fill(self, now: float) -> list[Action]:
        """Go on with the live batches as soon as the replay has met them."""
        assert self._delivered.next is not None  # noqa: S101 - as above
        if not self._same_life or not self._held or self._held.first > self._delivered.next:
            return []
        self._counters.gaps_filled += 1
        self.state = State.LIVE
        return [StopReplay(), *self._release(now)]

    def _fill_ended(self, now: float) -> list[Action]:
        if not self._same_life:
            # Not even the last batch that it sent: it does not know of it.
            return self._other_life(now)
        self.state = State.LIVE
        actions: list[Action] = [StopReplay()]
        if self._held:
            self._counters.replay_holes += 1
            actions += self._clear("the replay ended too soon")
        return actions + self._release(now)

    def _release(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for frame in self._held.take():
            actions += self.live(frame, now)
        return actions

    def _held_beyond_next(self) -> bool:
        """Whether something is missing before the live batches that are held."""
        return bool(self._held) and self._held.first != self._delivered.next

    # ------------------------------------------------------------------ failure

    def _failed(self, now: float, *, retry: bool = True) -> list[Action]:
        """The replay under way is of no use: silent, cut off, or overtaken."""
        state, self.state = self.state, State.LIVE
        if state is State.FILLING and self._audit and not self._held_beyond_next():
            return [StopReplay(), *self._release(now)]
        if retry:
            self._counters.replays_failed += 1
            self._replay.retry_later(now)
        actions: list[Action] = [StopReplay()]
        if state is State.FILLING:
            return [*actions, *self._clear("the replay failed"), *self._release(now)]
        actions.append(Forget())
        if state is State.STARTING:
            self._delivered.forget_twins()
            self._lesson = Lesson()
            return [*actions, *self._go_on_from_lesson(now)]
        self._held.take()
        return actions
