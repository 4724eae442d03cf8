"""The sockets to one publisher of an engine: live batches, replays, and whether it is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from warmindex_subscriber.kv.framing import replay_request
from warmindex_subscriber.kv.ranks import Address

# What this side queues while the index does not take events: about what an engine keeps for
# a replay, so that what is dropped beyond it can be asked for. 0 would be no limit.
RECEIVE_FRAMES_MAX: Final = 10_000
# The whole replay of an engine that keeps more batches than usual.
REPLAY_FRAMES_MAX: Final = 100_000
# A publisher whose host is gone does not close its connection: heartbeats find out.
HEARTBEAT_MS: Final = 2_000
HEARTBEAT_TIMEOUT_MS: Final = 6_000
RECONNECT_MS_MIN: Final = 100
RECONNECT_MS_MAX: Final = 2_000

_MONITORED: Final = zmq.Event.HANDSHAKE_SUCCEEDED | zmq.Event.DISCONNECTED


class Sockets:
    """SUB, its monitor, and a DEALER while a replay is under way. To be used in one thread.

    Waiting goes through asyncio; receiving does not: a burst of batches is taken with one
    turn of the event loop, which is several times faster than one turn each.
    """

    def __init__(self, context: zmq.asyncio.Context, address: Address, topic: bytes) -> None:
        self._context = context
        self._address = address
        self._poller = zmq.asyncio.Poller()
        self._replay: zmq.asyncio.Socket | None = None
        # Counts the replays begun and ended: what was received of an earlier one is void.
        self.replay_run = 0
        self._live = context.socket(zmq.SUB)
        self._live.set(zmq.RCVHWM, RECEIVE_FRAMES_MAX)
        _configure(self._live)
        # The events come before what the connection that they tell of carries.
        self._monitor = self._live.get_monitor_socket(_MONITORED)
        self._live.subscribe(topic)
        if address.bind:
            self._live.bind(address.live)
        else:
            self._live.connect(address.live)
        self._poller.register(self._live, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    async def wait(self, timeout_s: float) -> None:
        """Return when there is something to receive, or when the time is over."""
        await self._poller.poll(max(1, int(timeout_s * 1000)))

    def live(self, messages_max: int) -> list[list[bytes]]:
        """Take the live messages that are here, as frames."""
        return list(_receive(self._live, messages_max))

    def discard_live(self) -> None:
        """Drop the live messages that are here, at most as many as can have queued."""
        for _ in _receive(self._live, RECEIVE_FRAMES_MAX):
            pass

    def connections(self) -> list[bool]:
        """Take what has become of the connection: True for a new one, False for its end."""
        return [
            parse_monitor_message(message)["event"] == zmq.Event.HANDSHAKE_SUCCEEDED
            for message in _receive(self._monitor, RECEIVE_FRAMES_MAX)
        ]

    def replay(self, messages_max: int) -> list[list[bytes]]:
        """Take the replay's messages that are here, as frames."""
        return [] if self._replay is None else list(_receive(self._replay, messages_max))

    def start_replay(self, start: int) -> None:
        """Ask for a replay. A fresh socket each time: late answers to another go nowhere."""
        self.stop_replay()
        if self._address.replay is None:
            return
        self._replay = self._context.socket(zmq.DEALER)
        self._replay.set(zmq.RCVHWM, REPLAY_FRAMES_MAX)
        _configure(self._replay)
        self._replay.connect(self._address.replay)
        # Not async: a DEALER that has no connection yet queues its first message.
        zmq.Socket.shadow(self._replay).send_multipart(replay_request(start), zmq.NOBLOCK)
        self._poller.register(self._replay, zmq.POLLIN)

    def stop_replay(self) -> None:
        """End the replay under way, if there is one."""
        self.replay_run += 1
        if self._replay is not None:
            self._poller.unregister(self._replay)
            self._replay.close(linger=0)
            self._replay = None

    def close(self) -> None:
        """Close them all."""
        self.stop_replay()
        self._live.disable_monitor()
        self._monitor.close(linger=0)
        self._live.close(linger=0)


def _configure(socket: zmq.asyncio.Socket) -> None:
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_MS_MIN)
    socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
    socket.set(zmq.IPV6, 1)


def _receive(socket: zmq.asyncio.Socket, messages_max: int) -> Iterator[list[bytes]]:
    plain: zmq.Socket[bytes] = zmq.Socket.shadow(socket)
    for _ in range(messages_max):
        try:
            yield plain.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
