"""PublishEvent and PublishEvents."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from warmindex import limits
from warmindex.errors import ForbiddenError, InvalidError, Reason, WarmindexError
from warmindex.index import Outcome
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import event_from_wire, used_number_from_wire

from warmindex_server.access import allow_tenant

# Messages of one stream that are being written: enough to fill the next write of a disk while
# the last one is under way, and not so many that a client's memory stands here.
MESSAGES_UNDER_WAY_MAX: Final = 64

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable

    from warmindex.event import CacheEvent
    from warmindex.index import Applied
    from warmindex.record import Lease, Record, UsedNumber
    from warmindex.v1.error_reason_pb2 import ErrorReason

    from warmindex_server.leases.keeper import LeaseKeeper
    from warmindex_server.replicas import Heard
    from warmindex_server.rpc.stream_leases import StreamLeases
    from warmindex_server.store import Store


async def publish_event(
    store: Store, heard: Heard, leases: LeaseKeeper, request: pb.PublishEventRequest
) -> pb.PublishEventResponse:
    """Apply one event; an invalid one is an error, after its number is used up."""
    if not request.HasField("event"):
        raise InvalidError(
            "event is required: put the event into the request's field `event`",
            field="event",
            reason=Reason.FIELD_REQUIRED,
        )
    allow_tenant(request.event.tenant_id, "event.tenant_id")
    try:
        event = event_from_wire(request.event)
    except InvalidError:
        used = used_number_from_wire(request.event)
        if used is not None:
            await store.publish(used)
        raise
    producer = [(event.tenant_id, event.replica_id)]
    first = leases.to_renew(producer)
    with heard.during(producer):
        *_, applied = await store.publish_all([*first, event])
    if applied.outcome is Outcome.REFUSED:
        field = "event.embeddings.dimensions"
        raise InvalidError(applied.error, field=field, reason=applied.reason)
    return pb.PublishEventResponse(result=result_to_wire(applied), history_id=store.history_id)


async def publish_stream(
    store: Store, leases: StreamLeases, requests: AsyncIterator[pb.PublishEventsRequest]
) -> AsyncGenerator[pb.PublishEventsResponse, None]:
    """Answer the messages of a stream, in order.

    Where appending waits, the next messages are taken in while it does, so that they share
    its next write; each has taken its place in the journal's order before the next is read.
    """
    if store.journal.immediate:
        async for request in requests:
            batch = await _take(store, leases, request)
            yield await batch.answer(store.submit(batch.records))
        return
    under_way: asyncio.Queue[tuple[_Batch, Awaitable[list[Applied]]] | None] = asyncio.Queue()
    room = asyncio.Semaphore(MESSAGES_UNDER_WAY_MAX)

    async def read() -> None:
        try:
            async for request in requests:
                await room.acquire()
                batch = await _take(store, leases, request)
                under_way.put_nowait((batch, store.submit(batch.records)))
        finally:
            under_way.put_nowait(None)

    reader = asyncio.create_task(read())
    try:
        while (taken := await under_way.get()) is not None:
            batch, submitted = taken
            yield await batch.answer(submitted)
            room.release()
        await reader
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)


class _Batch:
    """One message that is valid: what to journal of it, and how to answer it."""

    def __init__(
        self,
        store: Store,
        leases: StreamLeases,
        first: list[Lease],
        records: dict[int, CacheEvent | UsedNumber],
        faults: dict[int, WarmindexError],
    ) -> None:
        self._store = store
        self._leases = leases
        self._first = first
        self._by_position = records
        self._faults = faults
        # Leases go first: a crash in between leaves a lease without holds, never the reverse.
        self.records: list[Record] = [*first, *records.values()]

    async def answer(self, submitted: Awaitable[list[Applied]]) -> pb.PublishEventsResponse:
        """The answer to the message, once its records are applied."""
        faults = self._faults
        with self._leases.renewed():
            results = await submitted
        applied = dict(zip(self._by_position, results[len(self._first) :], strict=True))
        revision = self._store.revision
        return pb.PublishEventsResponse(
            results=[
                _refusal(faults[position], applied.get(position), revision)
                if position in faults
                else result_to_wire(applied[position])
                for position in range(len(faults.keys() | applied.keys()))
            ],
            history_id=self._store.history_id,
            resync_required=self._leases.resync_required,
        )


async def _take(store: Store, leases: StreamLeases, request: pb.PublishEventsRequest) -> _Batch:
    """Take in one message. Raises InvalidError for a fault of the message itself."""
    if len(request.events) > limits.EVENTS_PER_MESSAGE_MAX:
        raise InvalidError(
            f"events has {len(request.events)} events; at most {limits.EVENTS_PER_MESSAGE_MAX} "
            "go into one message: send several",
            field="events",
            reason=Reason.TOO_MANY,
        )
    told = leases.take(request.leases)
    with leases.renewed():
        records, faults = await _records(store, request)
        first = leases.to_journal(told, records.values())
    return _Batch(store, leases, first, records, faults)


async def _records(
    store: Store, request: pb.PublishEventsRequest
) -> tuple[dict[int, CacheEvent | UsedNumber], dict[int, WarmindexError]]:
    """What to journal of a message's events, and what is wrong with some, by position."""
    faults: dict[int, WarmindexError] = {}
    records: dict[int, CacheEvent | UsedNumber] = {}
    for position, message in enumerate(request.events):
        try:
            allow_tenant(message.tenant_id, "event.tenant_id")
            records[position] = event_from_wire(message)
        except ForbiddenError as error:
            faults[position] = error
        except InvalidError as error:
            faults[position] = error
            used = used_number_from_wire(message)
            if used is not None:
                records[position] = used
        await store.give_way()
    return records, faults


def _refusal(error: WarmindexError, applied: Applied | None, revision: int) -> pb.EventResult:
    """The answer to an invalid event; `applied` is what became of its number, if it had one."""
    return pb.EventResult(
        outcome=pb.EventResult.OUTCOME_REFUSED,
        revision=applied.revision if applied else revision,
        resync_required=applied.resync_required if applied else False,
        error=error.message,
        reason=cast("ErrorReason.ValueType", int(error.reason)),
    )


def result_to_wire(applied: Applied) -> pb.EventResult:
    """The answer to one event."""
    return pb.EventResult(
        outcome=cast("pb.EventResult.Outcome.ValueType", int(applied.outcome)),
        revision=applied.revision,
        holds_changed=applied.holds_added + applied.holds_removed,
        resync_required=applied.resync_required,
        error=applied.error,
        current_epoch=applied.current_epoch,
        reason=cast("ErrorReason.ValueType", int(applied.reason)),
    )
