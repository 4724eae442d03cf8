"""PUB and replay ROUTER as engines have them, and how they lose things on demand.

Nothing here waits: batches are sent when they are published, and replays are answered when
`answer_replays` is called, between two publishes, as engines do.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import zmq

_END: Final = b"\xff" * 8
BUFFER_BATCHES_DEFAULT: Final = 10_000
_SEND_FRAMES_MAX: Final = 100_000


class Endpoints(NamedTuple):
    """Where to bind. A TCP port of 0 is any that is free."""

    live: str
    replay: str | None = None


class EventPublisher:
    """One rank's publisher. `topic_in_replay`: the replies of newer engines have the topic."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        topic: str = "",
        rank: int | None = 0,
        buffer_batches: int = BUFFER_BATCHES_DEFAULT,
        topic_in_replay: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoints = endpoints
        self._topic = topic.encode()
        self._rank = rank
        self._topic_in_replay = topic_in_replay
        self._clock = clock
        self._buffer: deque[tuple[bytes, bytes]] = deque(maxlen=buffer_batches)
        self._next = 0
        self._to_lose = 0
        self._encode = msgspec.msgpack.Encoder().encode
        self._bind()

    @property
    def endpoints(self) -> Endpoints:
        """Where it is bound."""
        return self._endpoints

    def publish(self, events: Sequence[Any]) -> int:
        """Send one batch; its number. Batches to lose go into the replay buffer alone."""
        number, self._next = self._next, self._next + 1
        payload = self._encode([self._clock(), list(events), self._rank])
        sequence = number.to_bytes(8, "big")
        self._buffer.append((sequence, payload))
        if self._to_lose:
            self._to_lose -= 1
        else:
            self._live.send_multipart([self._topic, sequence, payload])
        return number

    def lose(self, batches: int = 1) -> None:
        """Lose the next batches on the way."""
        self._to_lose += batches

    def skip(self, batches: int = 1) -> None:
        """Use numbers up for batches that nobody will ever see, as failed encodings do."""
        self._next += batches

    def restart(self) -> None:
        """Be another process: all connections end, numbers begin at 0, the buffer is empty."""
        self.close()
        self._buffer.clear()
        self._next = self._to_lose = 0
        self._bind()

    def answer_replays(self) -> int:
        """Answer what has been asked; the number of requests."""
        answered = 0
        while self._replay is not None and self._replay.poll(0):
            request = self._replay.recv_multipart()
            # An engine drops what is not framed as it expects.
            if len(request) == 3:
                self._answer(request[0], int.from_bytes(request[2], "big"))
                answered += 1
        return answered

    def close(self) -> None:
        """Be gone."""
        # Returns when the ports are free again, which closing the sockets alone does not.
        self._context.destroy(linger=0)

    def _answer(self, identity: bytes, start: int) -> None:
        assert self._replay is not None  # noqa: S101 - it asked
        topic = [self._topic] if self._topic_in_replay else []
        for sequence, payload in self._buffer:
            if int.from_bytes(sequence, "big") >= start:
                self._replay.send_multipart([identity, b"", *topic, sequence, payload])
        end = [b""] if self._topic_in_replay else []
        self._replay.send_multipart([identity, b"", *end, _END, b""])

    def _bind(self) -> None:
        self._context = zmq.Context()
        self._live = self._context.socket(zmq.PUB)
        self._live.set(zmq.SNDHWM, _SEND_FRAMES_MAX)
        self._replay: zmq.Socket[bytes] | None = None
        live = self._bind_socket(self._live, self._endpoints.live)
        replay = self._endpoints.replay
        if replay is not None:
            self._replay = self._context.socket(zmq.ROUTER)
            self._replay.set(zmq.SNDHWM, _SEND_FRAMES_MAX)
            replay = self._bind_socket(self._replay, replay)
        # The same ports in the next life.
        self._endpoints = Endpoints(live, replay)

    def _bind_socket(self, socket: zmq.Socket[bytes], endpoint: str) -> str:
        socket.set(zmq.LINGER, 0)
        socket.bind(endpoint)
        return socket.get_string(zmq.LAST_ENDPOINT)
