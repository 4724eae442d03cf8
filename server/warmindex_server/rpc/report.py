"""ReportState: a header, entries, an end; then one record, or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NoReturn

from warmindex.errors import FencedError, InvalidError, OvertakenError, Reason, required
from warmindex.event import CacheEvent, check_producer
from warmindex.index import Applied, Outcome
from warmindex.record import Report
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import event_from_wire

from warmindex_server.access import allow_tenant
from warmindex_server.reports.staging import Budget, StagedReport, index_replaced

if TYPE_CHECKING:
    from warmindex_server.leases.keeper import LeaseKeeper
    from warmindex_server.replicas import Heard
    from warmindex_server.store import Store

ENTRIES = "entries"


async def report_state(
    store: Store,
    heard: Heard,
    leases: LeaseKeeper,
    budget: Budget,
    parts: AsyncIterator[pb.ReportStateRequest],
) -> pb.ReportStateResponse:
    """Replace what a producer holds by what the parts list, when the end part has come."""
    head = _head_from_wire(await anext(parts, None))
    producer = (head.tenant_id, head.replica_id)
    first = leases.to_renew([producer])
    heard.note(producer)
    if first:
        await store.publish_all(first)
    index = store.index
    staged = StagedReport(index, head, budget)
    count = 0
    try:
        async for part in parts:
            heard.note(producer)
            kind = part.WhichOneof("part")
            if kind == ENTRIES:
                count += len(part.entries.content_hashes)
                await staged.add(_entry_from_wire(part.entries, head))
                await store.give_way()
                staged.check(store.index)
            elif kind == "end":
                _check_count(part.end.content_hashes, count)
                with heard.during([producer]):
                    applied = await store.publish(await staged.record(store.give_way))
                if store.index is not index:
                    # The difference was to another index, so the whole of it must come again.
                    raise index_replaced()
                return _answer(applied)
            else:
                _refuse_part(kind)
    finally:
        staged.drop()
    raise InvalidError(
        "the report has no end part: send one that counts the content hashes of all entries",
        field="end",
        reason=Reason.REPORT_INCOMPLETE,
    )


def _head_from_wire(first: pb.ReportStateRequest | None) -> Report:
    if first is None:
        raise InvalidError(
            "the report has no parts: send a header, entries, and an end",
            field="header",
            reason=Reason.REPORT_INCOMPLETE,
        )
    if first.WhichOneof("part") != "header":
        raise required("header", "it opens the report and says whose state follows")
    header = first.header
    allow_tenant(header.tenant_id, "header.tenant_id")
    check_producer(header.tenant_id, header.model_id, header.replica_id, "header")
    if header.sequence and not header.epoch:
        raise InvalidError(
            "header.sequence is set without header.epoch: a number belongs to an epoch; leave "
            "both 0 to leave the numbering alone",
            field="header.sequence",
            reason=Reason.CONFLICT,
        )
    return Report(
        replica_id=header.replica_id,
        model_id=header.model_id,
        tenant_id=header.tenant_id,
        epoch=header.epoch,
        sequence=header.sequence,
    )


def _entry_from_wire(message: event_pb2.CacheEvent, head: Report) -> CacheEvent:
    """The event of an entries part: the header's, and without a number."""
    if message.type != event_pb2.CacheEvent.EMBEDDED:
        raise InvalidError(
            f"entries.type is {message.type}; a report lists what is held, as EMBEDDED (1)",
            field="entries.type",
            reason=Reason.VALUE_UNKNOWN,
        )
    for name in ("replica_id", "model_id", "tenant_id"):
        given = getattr(message, name)
        if given and given != getattr(head, name):
            raise InvalidError(
                f"entries.{name} differs from header.{name}: a report is of one producer; "
                "leave it empty",
                field=f"entries.{name}",
                reason=Reason.CONFLICT,
            )
        setattr(message, name, getattr(head, name))
    message.epoch = message.sequence = 0
    try:
        return event_from_wire(message)
    except InvalidError as error:
        raise _of_entries(error.message, error.field, error.reason) from None


def _of_entries(message: str, field: str, reason: Reason) -> InvalidError:
    """The fault of an event, as that of an entries part."""
    if field.split(".", maxsplit=1)[0] != "event":
        return InvalidError(message, field=field, reason=reason)
    return InvalidError(
        message.replace("event", ENTRIES, 1) if message.startswith("event") else message,
        field=ENTRIES + field.removeprefix("event"),
        reason=reason,
    )


def _check_count(told: int, count: int) -> None:
    if told != count:
        raise InvalidError(
            f"end.content_hashes is {told}, but {count} content hashes came: report again, whole",
            field="end.content_hashes",
            reason=Reason.REPORT_INCOMPLETE,
        )


def _refuse_part(kind: str | None) -> NoReturn:
    if kind == "header":
        raise InvalidError(
            "header came twice: one report is of one producer; send another report",
            field="header",
            reason=Reason.CONFLICT,
        )
    raise required("part", "a part is the header, entries or the end")


def _answer(applied: Applied) -> pb.ReportStateResponse:
    if applied.outcome is Outcome.FENCED:
        raise FencedError(applied.error)
    if applied.outcome is Outcome.OVERTAKEN:
        raise OvertakenError(applied.error)
    if applied.outcome is Outcome.REFUSED:
        raise _of_entries(applied.error, "event.embeddings.dimensions", applied.reason)
    return pb.ReportStateResponse(
        revision=applied.revision,
        holds_added=applied.holds_added,
        holds_removed=applied.holds_removed,
    )
