"""An order of batches that is driven by hand, and what it asks for, in short words."""

from __future__ import annotations

from warmindex_subscriber.kv.actions import (
    Action,
    Adopt,
    Clear,
    Deliver,
    Forget,
    Learn,
    StartReplay,
    StopReplay,
)
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.framing import Frame
from warmindex_subscriber.kv.order import Order

END = "end"


def batch(sequence: int, life: str = "") -> Frame:
    return Frame(sequence, f"{life}{sequence}".encode())


class Driver:
    """Feeds an order and writes down what it asks for, in short."""

    def __init__(self, *, has_replay: bool = True) -> None:
        self.counters = Counters()
        self.order = Order(self.counters, has_replay=has_replay)
        self.now = 0.0
        self.started = self.short(self.order.start(self.now))

    def short(self, actions: list[Action]) -> list[str]:
        words = {Clear: "clear", Forget: "forget", Adopt: "adopt", StopReplay: "stop"}
        said = []
        for action in actions:
            if isinstance(action, Deliver):
                said.append(f"deliver {action.payload.decode()}")
            elif isinstance(action, Learn):
                said.append(f"learn {action.payload.decode()}")
            elif isinstance(action, StartReplay):
                said.append(f"replay {action.start}")
            else:
                said.append(words[type(action)])
        return said

    def live(self, *sequences: int, life: str = "") -> list[str]:
        said = []
        for sequence in sequences:
            said += self.short(self.order.live(batch(sequence, life), self.now))
        return said

    def replay(self, *sequences: int | str, life: str = "") -> list[str]:
        said = []
        for sequence in sequences:
            if isinstance(sequence, str):
                said += self.short(self.order.replay_ended(self.now))
            else:
                said += self.short(self.order.replayed(batch(sequence, life), self.now))
        return said

    def wait(self, seconds: float) -> list[str]:
        self.now += seconds
        return self.short(self.order.tick(self.now))

    def disconnect(self) -> list[str]:
        return self.short(self.order.disconnected(self.now))

    def connect(self) -> list[str]:
        return self.short(self.order.connected(self.now))


def following_to_4() -> Driver:
    """Live and in order, with 0 to 4 delivered."""
    driver = Driver()
    driver.replay(END)
    assert driver.live(0, 1, 2, 3, 4) == [f"deliver {i}" for i in range(5)]
    return driver
