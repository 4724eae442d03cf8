"""PublishEvent and PublishEvents."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from warmindex import limits
from warmindex.errors import ForbiddenError, InvalidError, Reason, WarmindexError
from warmindex.index import Outcome
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import event_from_wire, used_number_from_wire

from warmindex_server.access import allow_tenant

if TYPE_CHECKING:
    from warmindex.event import CacheEvent
    from warmindex.index import Applied
    from warmindex.record import UsedNumber
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


async def publish_batch(
    store: Store, leases: StreamLeases, request: pb.PublishEventsRequest
) -> pb.PublishEventsResponse:
    """Apply one message: its leases, which may not be bad, and its events in order.

    A bad event is REFUSED beside its neighbours.
    """
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
        # Leases go first: a crash in between leaves a lease without holds, never the reverse.
        first = leases.to_journal(told, records.values())
        results = await store.publish_all([*first, *records.values()])
    applied = dict(zip(records, results[len(first) :], strict=True))
    revision = store.revision
    return pb.PublishEventsResponse(
        results=[
            _refusal(faults[position], applied.get(position), revision)
            if position in faults
            else result_to_wire(applied[position])
            for position in range(len(request.events))
        ],
        history_id=store.history_id,
        resync_required=leases.resync_required,
    )


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
