"""An engine's publisher as engines have it, on real sockets, and a recording sink."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

import zmq
import zmq.asyncio
from support.kv_payloads import Model
from warmindex.event import CacheEvent
from warmindex_subscriber.kv.ranks import Publisher, publishers
from warmindex_subscriber.kv.sidecar import Sidecar, SidecarOptions

END = b"\xff" * 8
PATIENCE_S = 10.0


def number(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big")


class FakePublisher:
    """One rank's sockets. `topic_in_replay` is how newer engines answer."""

    def __init__(self, *, topic: bytes = b"", topic_in_replay: bool = True) -> None:
        self.topic = topic
        self.topic_in_replay = topic_in_replay
        self.buffer: list[tuple[int, bytes]] = []
        self.requests: list[list[bytes]] = []
        self.answering = True
        self.next = 0
        self._port = self._replay_port = 0
        self._task: asyncio.Task[None] | None = None
        self.open()

    @property
    def endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    @property
    def replay_endpoint(self) -> str:
        return f"tcp://127.0.0.1:{self._replay_port}"

    def open(self) -> None:
        """Bind, on the same ports as before if there were any."""
        self._context = zmq.asyncio.Context()
        self._pub = self._context.socket(zmq.XPUB)
        self._router = self._context.socket(zmq.ROUTER)
        # A ROUTER drops what goes beyond, and cuts the replay off.
        self._router.set(zmq.SNDHWM, 0)
        self._port = self._bind(self._pub, self._port)
        self._replay_port = self._bind(self._router, self._replay_port)
        self._task = asyncio.ensure_future(self._serve())

    async def close(self) -> None:
        """Be gone, as a process is that was killed."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
            # Returns when the ports are free again.
            self._context.destroy(linger=0)

    async def restart(self) -> None:
        """A new life: numbers from 0, an empty buffer."""
        await self.close()
        self.buffer.clear()
        self.next = 0
        self.open()

    async def subscribed(self) -> None:
        """Wait until somebody has subscribed: what is sent before goes nowhere."""
        async with asyncio.timeout(PATIENCE_S):
            # A message that begins with 0 says that a subscriber has gone.
            while not (await self._pub.recv()).startswith(b"\x01"):
                pass

    async def send(self, payload: bytes, *, sequence: int | None = None, lost: bool = False) -> int:
        """Publish one batch; `lost` puts it into the buffer alone."""
        sequence = self.next if sequence is None else sequence
        self.next = sequence + 1
        self.buffer.append((sequence, payload))
        if not lost:
            await self._pub.send_multipart([self.topic, number(sequence), payload])
        return sequence

    async def send_raw(self, *frames: bytes) -> None:
        await self._pub.send_multipart(list(frames))

    async def _serve(self) -> None:
        while True:
            request = await self._router.recv_multipart()
            self.requests.append(request[1:])
            if not self.answering or len(request) != 3:
                continue
            middle = [self.topic] if self.topic_in_replay else []
            start = int.from_bytes(request[2], "big")
            for sequence, payload in list(self.buffer):
                if sequence >= start:
                    frames = [request[0], b"", *middle, number(sequence), payload]
                    await self._router.send_multipart(frames)
            await self._router.send_multipart(
                [request[0], b"", *([b""] if middle else []), END, b""]
            )

    def _bind(self, socket: zmq.asyncio.Socket, port: int) -> int:
        socket.bind(f"tcp://127.0.0.1:{port}")
        return int(socket.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


class RecordingSink:
    """Keeps what it is given, and what an index would hold of it."""

    def __init__(self) -> None:
        self.index = Model()
        self.reports: list[str] = []
        self.room = asyncio.Event()
        self.room.set()
        self._changed = asyncio.Event()

    async def publish(self, events: Sequence[CacheEvent]) -> None:
        await self.room.wait()
        self.index.take(list(events))
        self._changed.set()

    async def report(self, replica_id: str, entries: Iterable[CacheEvent]) -> None:
        first, again = list(entries), list(entries)
        assert [event.content_hashes for event in first] == [
            event.content_hashes for event in again
        ]
        self.index.drop(replica_id)
        self.index.take(first)
        self.reports.append(replica_id)
        self._changed.set()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until it is true; looked at after every change, and now and then."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self._changed.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), 0.05)


@contextlib.asynccontextmanager
async def following(
    sink: RecordingSink, *fakes: FakePublisher, replay: bool = True, **options: object
) -> AsyncIterator[Sidecar]:
    """A sidecar that follows the publishers, one rank each."""
    fields = {"replica_id": "pod", "model_id": "acme/m", "replay_silence_s": 0.5, **options}
    where: list[Publisher] = publishers(
        range(len(fakes)),
        [fake.endpoint for fake in fakes],
        [fake.replay_endpoint for fake in fakes] if replay else [],
    )
    sidecar = Sidecar(SidecarOptions(publishers=where, **fields), sink)
    running = asyncio.ensure_future(sidecar.run())
    try:
        for fake in fakes:
            await fake.subscribed()
        # Once the start is over, what is counted is counted once.
        await sink.until(lambda: len(sink.reports) == len(fakes))
        yield sidecar
        sidecar.stop()
        await asyncio.wait_for(running, PATIENCE_S)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
