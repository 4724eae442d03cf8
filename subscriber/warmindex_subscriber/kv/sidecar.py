"""All publishers of one engine, from their endpoints to the sink."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import zmq.asyncio
from warmindex.event import check_producer

from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.counters import Counters
from warmindex_subscriber.kv.models import AdapterVersions
from warmindex_subscriber.kv.order import Order
from warmindex_subscriber.kv.ranks import Publisher, replica_name
from warmindex_subscriber.kv.replay import REPLAY_SILENCE_S
from warmindex_subscriber.kv.replicas import Replicas, residence_factory
from warmindex_subscriber.kv.sink import EventSink
from warmindex_subscriber.kv.sockets import Sockets
from warmindex_subscriber.kv.stream import Stream

_log = logging.getLogger(__name__)

COUNTERS_LOGGED_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarOptions:
    """What an engine is called and where it publishes.

    `publishers` has one address per rank (`ranks.publishers` makes them). `model_id` must be
    what callers of LookupRoute name. `native_scheme` adds the engine's own hashes as a second
    scheme. With `models_url` adapter versions come from the engine's model list.
    """

    replica_id: str
    model_id: str
    publishers: Sequence[Publisher]
    tenant_id: str = ""
    topic: str = ""
    name_of_id: Mapping[int, str] = field(default_factory=dict)
    version_of_name: Mapping[str, str] = field(default_factory=dict)
    models_url: str | None = None
    native_scheme: str | None = None
    clear_at_end: bool = False
    replay_silence_s: float = REPLAY_SILENCE_S

    @property
    def replica_ids(self) -> list[str]:
        """The replicas known before any batch has come."""
        several = len(self.publishers) > 1
        return [replica_name(self.replica_id, one.rank, several) for one in self.publishers]


class Sidecar:
    """Follows an engine's publishers until stopped. Raises InvalidError for bad names."""

    def __init__(self, options: SidecarOptions, sink: EventSink) -> None:
        for replica_id in options.replica_ids:
            check_producer(options.tenant_id, options.model_id, replica_id, "kv")
        self.counters = Counters()
        self._options = options
        self._adapters = Adapters(
            options.name_of_id,
            options.version_of_name,
            versions_required=options.models_url is not None,
        )
        self._versions = (
            AdapterVersions(options.models_url, self._adapters, options.version_of_name)
            if options.models_url is not None
            else None
        )
        self._context = zmq.asyncio.Context()
        self._streams = {one.rank: self._stream(one, sink) for one in options.publishers}

    def resync(self, replica_id: str) -> None:
        """Report all that the replica holds, soon: what the sink's `ResyncWanted` calls."""
        for stream in self._streams.values():
            if replica_id in stream.replica_ids:
                stream.resync(replica_id)

    def stop(self) -> None:
        """End `run`, soon."""
        for stream in self._streams.values():
            stream.stop()

    def unregister(self, rank: int) -> None:
        """Follow one rank no longer, and publish that it holds nothing."""
        self._streams[rank].stop(clear=True)

    async def run(self) -> None:
        """Follow the engine until `stop`. The first error of any part ends it, and is raised."""
        try:
            async with asyncio.TaskGroup() as group:
                background = [group.create_task(self._log_counters())]
                if self._versions is not None:
                    background.append(group.create_task(self._versions.run()))
                await asyncio.wait([group.create_task(one.run()) for one in self._streams.values()])
                for task in background:
                    task.cancel()
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._context.destroy(linger=0)
            self._log_line()

    def _stream(self, publisher: Publisher, sink: EventSink) -> Stream:
        options = self._options
        replicas = Replicas(
            options.tenant_id,
            options.model_id,
            self._naming(publisher),
            residence_factory(self._adapters, self.counters, options.native_scheme),
        )
        order = Order(
            self.counters,
            has_replay=publisher.address.replay is not None,
            replay_silence_s=options.replay_silence_s,
        )
        topic = options.topic.encode()
        return Stream(
            publisher.address.live,
            Sockets(self._context, publisher.address, topic),
            order,
            replicas,
            sink,
            self.counters,
            topic,
            self._versions,
            clear_at_end=options.clear_at_end,
        )

    def _naming(self, publisher: Publisher) -> Callable[[int | None], str]:
        """Which replica a batch is of.

        With several publishers the endpoint tells: some engines put the same rank into
        the batches of all. With one, its batches do.
        """
        options = self._options
        if len(options.publishers) > 1:
            name = replica_name(options.replica_id, publisher.rank, several=True)
            return lambda _rank: name
        return lambda rank: replica_name(
            options.replica_id, publisher.rank if rank is None else rank, several=False
        )

    async def _log_counters(self) -> None:
        while True:
            await asyncio.sleep(COUNTERS_LOGGED_EVERY_S)
            self._log_line()

    def _log_line(self) -> None:
        seen = " ".join(f"{name}={value}" for name, value in self.counters.seen().items())
        _log.info("%s: %s", self._options.replica_id, seen or "nothing yet")
