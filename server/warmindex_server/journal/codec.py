"""Records and parts of snapshots as bytes, and back: see frame.py for how they lie."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias, cast

from google.protobuf.message import DecodeError
from warmindex.errors import InvalidError, Reason
from warmindex.event import CacheEvent
from warmindex.record import (
    Conditional,
    Lease,
    LeaseState,
    ProducerState,
    Record,
    Report,
    SnapshotPart,
    UsedNumber,
)
from warmindex.storage.v1.record_pb2 import (
    ConditionalHead,
    LeaseHead,
    ProducerHead,
    ReportHead,
    UsedNumberHead,
)

from warmindex_server.journal.base import BATCH_BYTES, PACK_BYTES, RECORD_BYTES_MAX, Parts
from warmindex_server.journal.event_codec import decode_event, encode_event
from warmindex_server.journal.frame import Buffer, CodecError, Kind, newer, put_frame, read_frame

Item: TypeAlias = Record | SnapshotPart


def encode(item: Item) -> bytes:
    """The frame of one record or part."""
    pieces: list[Buffer] = []
    encode_into(item, pieces)
    return b"".join(pieces)


def encode_into(item: Item, pieces: list[Buffer]) -> int:
    """Append the pieces of a frame, vectors without a copy; its length in bytes."""
    return _ENCODERS[type(item)](item, pieces)


def encode_groups(items: Iterable[Item]) -> list[tuple[int, bytes]]:
    """Frames in groups of about BATCH_BYTES: (number of items, their frames) each.

    Raises InvalidError where one is above RECORD_BYTES_MAX.
    """
    groups: list[tuple[int, bytes]] = []
    pieces: list[Buffer] = []
    count = size = 0
    for item in items:
        frame_bytes = encode_into(item, pieces)
        if frame_bytes > RECORD_BYTES_MAX:
            raise too_large(frame_bytes)
        count += 1
        size += frame_bytes
        if size >= BATCH_BYTES:
            groups.append((count, b"".join(pieces)))
            pieces, count, size = [], 0, 0
    if count:
        groups.append((count, b"".join(pieces)))
    return groups


async def pack_parts(batches: AsyncIterator[Parts]) -> AsyncIterator[bytes]:
    """The frames of a snapshot's parts, put together to about PACK_BYTES each.

    However small the batches come: each piece costs a journal a commit, or a round trip.
    """
    pieces: list[Buffer] = []
    size = 0
    async for batch in batches:
        for part in batch:
            size += encode_into(part, pieces)
            if size >= PACK_BYTES:
                yield b"".join(pieces)
                pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


def too_large(frame_bytes: int) -> InvalidError:
    """The error for a record that no journal takes."""
    return InvalidError(
        f"the record has {frame_bytes} bytes; a journal takes at most {RECORD_BYTES_MAX}: "
        "split what it says over several producers, or models",
        field="record",
        reason=Reason.TOO_MANY,
    )


def decode(frame: Buffer) -> Item:
    """The record or part of exactly one frame. Raises CodecError."""
    item, end = _decode_at(memoryview(frame), 0)
    if end != len(frame):
        raise CodecError(f"{len(frame) - end} bytes follow the frame of {end} bytes")
    return item


def decode_all(frames: Buffer) -> Iterator[Item]:
    """The records or parts of frames that stand one after the other. Raises CodecError."""
    view = memoryview(frames)
    position = 0
    while position < len(view):
        item, position = _decode_at(view, position)
        yield item


def _decode_at(view: memoryview, start: int) -> tuple[Item, int]:
    kind, head, payload, end = read_frame(view, start)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise newer(f"kind {kind}")
    try:
        return decoder(head, payload), end
    except (DecodeError, KeyError, ValueError) as error:
        raise CodecError(f"the frame's content cannot be read: {error}") from error


def _encode_used_number(used: UsedNumber, pieces: list[Buffer]) -> int:
    head = UsedNumberHead(
        replica_id=used.replica_id,
        model_id=used.model_id,
        tenant_id=used.tenant_id,
        epoch=used.epoch,
        sequence=used.sequence,
    )
    return put_frame(pieces, Kind.USED_NUMBER, head.SerializeToString())


def _decode_used_number(head_bytes: bytes, _: memoryview) -> UsedNumber:
    head = UsedNumberHead.FromString(head_bytes)
    return UsedNumber(
        replica_id=head.replica_id,
        model_id=head.model_id,
        tenant_id=head.tenant_id,
        epoch=head.epoch,
        sequence=head.sequence,
    )


def _encode_lease(lease: Lease, pieces: list[Buffer]) -> int:
    head = LeaseHead(replica_id=lease.replica_id, tenant_id=lease.tenant_id, ttl_ms=lease.ttl_ms)
    return put_frame(pieces, Kind.LEASE, head.SerializeToString())


def _decode_lease(head_bytes: bytes, _: memoryview) -> Lease:
    head = LeaseHead.FromString(head_bytes)
    return Lease(replica_id=head.replica_id, tenant_id=head.tenant_id, ttl_ms=head.ttl_ms)


def _encode_report(report: Report, pieces: list[Buffer]) -> int:
    head = ReportHead(
        replica_id=report.replica_id,
        model_id=report.model_id,
        tenant_id=report.tenant_id,
        epoch=report.epoch,
        sequence=report.sequence,
    )
    changes: list[Buffer] = []
    for event in report.changes:
        encode_event(event, changes)
    return put_frame(pieces, Kind.REPORT, head.SerializeToString(), changes)


def _decode_report(head_bytes: bytes, payload: memoryview) -> Report:
    head = ReportHead.FromString(head_bytes)
    return Report(
        replica_id=head.replica_id,
        model_id=head.model_id,
        tenant_id=head.tenant_id,
        epoch=head.epoch,
        sequence=head.sequence,
        changes=cast("tuple[CacheEvent, ...]", tuple(decode_all(payload))),
    )


def _encode_conditional(conditional: Conditional, pieces: list[Buffer]) -> int:
    head = ConditionalHead(
        lease_generation=conditional.lease_generation,
        unchanged_since=conditional.unchanged_since,
    )
    record: list[Buffer] = []
    encode_into(conditional.record, record)
    return put_frame(pieces, Kind.CONDITIONAL, head.SerializeToString(), record)


def _decode_conditional(head_bytes: bytes, payload: memoryview) -> Conditional:
    head = ConditionalHead.FromString(head_bytes)
    generation = head.lease_generation if head.HasField("lease_generation") else None
    since = head.unchanged_since if head.HasField("unchanged_since") else None
    return Conditional(
        record=cast("CacheEvent | Lease | Report", decode(payload)),
        lease_generation=generation,
        unchanged_since=since,
    )


def _encode_producer_state(state: ProducerState, pieces: list[Buffer]) -> int:
    head = ProducerHead(
        replica_id=state.replica_id,
        model_id=state.model_id,
        tenant_id=state.tenant_id,
        epoch=state.epoch,
        sequence=state.sequence,
        resync_required=state.resync_required,
        changed_revision=state.changed_revision,
    )
    return put_frame(pieces, Kind.PRODUCER_STATE, head.SerializeToString())


def _decode_producer_state(head_bytes: bytes, _: memoryview) -> ProducerState:
    head = ProducerHead.FromString(head_bytes)
    return ProducerState(
        replica_id=head.replica_id,
        model_id=head.model_id,
        tenant_id=head.tenant_id,
        epoch=head.epoch,
        sequence=head.sequence,
        resync_required=head.resync_required,
        changed_revision=head.changed_revision,
    )


def _encode_lease_state(lease: LeaseState, pieces: list[Buffer]) -> int:
    head = LeaseHead(
        replica_id=lease.replica_id,
        tenant_id=lease.tenant_id,
        ttl_ms=lease.ttl_ms,
        generation=lease.generation,
    )
    return put_frame(pieces, Kind.LEASE_STATE, head.SerializeToString())


def _decode_lease_state(head_bytes: bytes, _: memoryview) -> LeaseState:
    head = LeaseHead.FromString(head_bytes)
    return LeaseState(
        replica_id=head.replica_id,
        tenant_id=head.tenant_id,
        ttl_ms=head.ttl_ms,
        generation=head.generation,
    )


_ENCODERS: Final[dict[type, Callable[[Any, list[Buffer]], int]]] = {
    CacheEvent: encode_event,
    UsedNumber: _encode_used_number,
    Lease: _encode_lease,
    Report: _encode_report,
    Conditional: _encode_conditional,
    ProducerState: _encode_producer_state,
    LeaseState: _encode_lease_state,
}
_DECODERS: Final[dict[int, Callable[[bytes, memoryview], Item]]] = {
    Kind.EVENT: decode_event,
    Kind.USED_NUMBER: _decode_used_number,
    Kind.LEASE: _decode_lease,
    Kind.REPORT: _decode_report,
    Kind.CONDITIONAL: _decode_conditional,
    Kind.PRODUCER_STATE: _decode_producer_state,
    Kind.LEASE_STATE: _decode_lease_state,
}
