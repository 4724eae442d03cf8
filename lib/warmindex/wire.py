"""Wire and domain: the contract's messages to what `event` and `index` speak of, and back.

What comes in is checked here or by the domain's own constructors, so that an object that
left this module is valid. Vectors are not copied on the way in: their rows are a view of the
message's bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, cast

import numpy as np

from warmindex import limits
from warmindex.answers import PublishResult, RouteAnswer
from warmindex.errors import InvalidError, Reason, out_of_range
from warmindex.event import (
    CacheEvent,
    Cause,
    Document,
    EventType,
    PartitionKey,
    Tier,
    check_partition,
)
from warmindex.index.change import Outcome
from warmindex.index.route import Match
from warmindex.index.route import Reason as RouteReason
from warmindex.record import UsedNumber
from warmindex.v1 import event_pb2 as pb
from warmindex.v1 import index_service_pb2 as service_pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from google.protobuf.duration_pb2 import Duration

    from warmindex.event import FloatMatrix

Request = TypeVar("Request")

_TYPES: Final = {int(each): each for each in EventType}
_TIERS: Final = {int(each): each for each in Tier}
_CAUSES: Final = {int(each): each for each in Cause}
_OUTCOMES: Final = {int(each): each for each in Outcome}
_REASONS: Final = {int(each): each for each in Reason}
_ROUTE_REASONS: Final = {int(each): each for each in RouteReason}
_LITTLE_ENDIAN_FLOAT: Final = np.dtype("<f4")
# What one message of a stream of events should be: large enough to make the call around it
# cheap, small enough to be taken in a few steps.
BATCH_BYTES: Final = limits.MIB
# What stands before each event of a PublishEventsRequest: the field's number, "with a length".
_EVENTS_TAG: Final = bytes([service_pb.PublishEventsRequest.EVENTS_FIELD_NUMBER << 3 | 2])


def event_from_wire(message: pb.CacheEvent) -> CacheEvent:
    """The domain event of a message; InvalidError where it breaks the contract."""
    event_type = _TYPES.get(message.type)
    if event_type is None:
        raise InvalidError(
            f"event.type is {message.type}; it must be EMBEDDED (1), EVICTED (2) or "
            "ALL_CLEARED (4)",
            field="event.type",
            reason=Reason.VALUE_UNKNOWN,
        )
    _check_size(message)
    embeddings = None
    if message.HasField("embeddings"):
        if event_type is EventType.EMBEDDED:
            embeddings = rows_from_wire(
                message.embeddings, len(message.content_hashes), "event.embeddings"
            )
        else:
            raise InvalidError(
                f"event.embeddings is set on {event_type.name}; vectors come with EMBEDDED only",
                field="event.embeddings",
                reason=Reason.CONFLICT,
            )
    documents: list[Document] | tuple[()] = ()
    if message.documents:
        documents = [Document(each.name, each.description) for each in message.documents]
    tier = _TIERS.get(message.tier)
    if tier is None:
        if event_type is not EventType.ALL_CLEARED:
            raise InvalidError(
                f"event.tier is {message.tier}; it must be one of CacheTier's numbers, 0 to 3",
                field="event.tier",
                reason=Reason.VALUE_UNKNOWN,
            )
        tier = Tier.UNSPECIFIED
    return CacheEvent(
        type=event_type,
        replica_id=message.replica_id,
        model_id=message.model_id,
        tenant_id=message.tenant_id,
        content_hashes=tuple(message.content_hashes),
        timestamp_us=message.timestamp_us,
        adapter_id=message.adapter_id,
        adapter_scoped=message.adapter_scoped,
        hash_scheme=message.hash_scheme,
        embeddings=embeddings,
        documents=documents,
        token_count=message.token_count,
        tier=tier,
        epoch=message.epoch,
        sequence=message.sequence,
    )


def used_number_from_wire(message: pb.CacheEvent) -> UsedNumber | None:
    """The number that an invalid event uses up, where it names a valid producer and number."""
    if not message.epoch or not message.sequence:
        return None
    try:
        return UsedNumber(
            replica_id=message.replica_id,
            model_id=message.model_id,
            tenant_id=message.tenant_id,
            epoch=message.epoch,
            sequence=message.sequence,
        )
    except InvalidError:
        return None


def event_to_wire(
    event: CacheEvent, *, embeddings: bool = True, documents: bool = True
) -> pb.CacheEvent:
    """The message of a domain event, on request without its vectors or documents."""
    message = pb.CacheEvent(
        type=cast("pb.CacheEvent.Type.ValueType", event.type.value),
        replica_id=event.replica_id,
        model_id=event.model_id,
        tenant_id=event.tenant_id,
        content_hashes=event.content_hashes,
        timestamp_us=event.timestamp_us,
        adapter_id=event.adapter_id,
        adapter_scoped=event.adapter_scoped,
        hash_scheme=event.hash_scheme,
        token_count=event.token_count,
        tier=cast("pb.CacheTier.ValueType", event.tier.value),
        epoch=event.epoch,
        sequence=event.sequence,
        cause=cast("pb.CacheEvent.Cause.ValueType", event.cause.value),
    )
    if embeddings and event.embeddings is not None:
        message.embeddings.CopyFrom(rows_to_wire(event.embeddings))
    if documents and event.documents:
        message.documents.extend(
            pb.Document(name=each.name, description=each.description) for each in event.documents
        )
    return message


def batches(events: Iterable[CacheEvent]) -> Iterator[service_pb.PublishEventsRequest]:
    """Events in order as messages of PublishEvents, each within the limits of one."""
    request, size = service_pb.PublishEventsRequest(), 0
    for event in events:
        message = event_to_wire(event)
        length = message.ByteSize()
        full = len(request.events) == limits.EVENTS_PER_MESSAGE_MAX
        if request.events and (full or size + length > BATCH_BYTES):
            yield request
            request, size = service_pb.PublishEventsRequest(), 0
        request.events.append(message)
        size += length
    if request.events:
        yield request


def event_to_part(event: CacheEvent, epoch: int, sequence: int) -> bytes:
    """An event with a number, as the bytes that it is in a PublishEventsRequest.

    Parts put one behind the other are a message of their events, for that is how a repeated
    field is encoded: an event that is sent again, in another message, is not encoded again.
    """
    message = event_to_wire(event)
    message.epoch, message.sequence = epoch, sequence
    body = message.SerializeToString()
    return _EVENTS_TAG + _varint(len(body)) + body


def result_from_wire(result: service_pb.EventResult, history_id: str) -> PublishResult:
    """What became of one event, in the domain's words.

    An outcome that only a newer server knows is read as REFUSED: it is none of those in which
    the event applies, and none after which sending it again would help.
    """
    return PublishResult(
        outcome=_OUTCOMES.get(result.outcome, Outcome.REFUSED),
        revision=result.revision,
        holds_changed=result.holds_changed,
        resync_required=result.resync_required,
        error=result.error,
        reason=_REASONS.get(result.reason, Reason.UNSPECIFIED),
        current_epoch=result.current_epoch,
        history_id=history_id,
    )


def change_from_wire(message: pb.CacheEvent) -> CacheEvent:
    """The domain event of a change that a server sent: with its cause, else as it stands."""
    event = event_from_wire(message)
    cause = _CAUSES.get(message.cause, Cause.NONE)
    object.__setattr__(event, "cause", cause)
    return event


def request_of(kind: Callable[..., Request], **fields: object) -> Request:
    """A request of the caller's own values; InvalidError where one of them fits no field."""
    try:
        return kind(**fields)
    except ValueError as error:
        # A number that a field cannot hold, or text that is not Unicode.
        raise InvalidError(f"a value fits no field of the request: {error}") from None


def tier_from_wire(number: int) -> Tier:
    """The tier of a number; one that only a newer server knows is UNSPECIFIED."""
    return _TIERS.get(number, Tier.UNSPECIFIED)


def route_from_wire(response: service_pb.LookupRouteResponse) -> RouteAnswer:
    """Who holds the beginning of a prompt; a reason that only a newer server knows is plain."""
    matches = [
        Match(each.replica_id, each.matched_blocks, each.matched_tokens, tier_from_wire(each.tier))
        for each in response.matches
    ]
    plain = RouteReason.PREFIX_MATCH if matches else RouteReason.NO_MATCH
    return RouteAnswer(
        matches=matches,
        reason=_ROUTE_REASONS.get(response.reason, plain),
        revision=response.revision,
        replicas_in_scope=response.replicas_in_scope,
    )


def rows_from_wire(block: pb.EmbeddingBlock, rows: int, name: str) -> FloatMatrix:
    """The rows of a block as float32 (rows, dimensions), a view of its bytes."""
    dimensions = block.dimensions
    if not 1 <= dimensions <= limits.DIMENSIONS_MAX:
        raise out_of_range(f"{name}.dimensions", dimensions, f"1 to {limits.DIMENSIONS_MAX}")
    if len(block.values) != rows * dimensions * 4:
        raise InvalidError(
            f"{name}.values has {len(block.values)} bytes; {rows} rows of {dimensions} "
            f"little-endian float32 need {rows * dimensions * 4}",
            field=f"{name}.values",
            reason=Reason.EMBEDDING_SHAPE,
        )
    matrix = np.frombuffer(block.values, dtype=_LITTLE_ENDIAN_FLOAT)
    return matrix.astype(np.float32, copy=False).reshape(rows, dimensions)


def rows_to_wire(matrix: FloatMatrix) -> pb.EmbeddingBlock:
    """The block of a float32 matrix (rows, dimensions)."""
    values = np.ascontiguousarray(matrix, dtype=_LITTLE_ENDIAN_FLOAT)
    return pb.EmbeddingBlock(dimensions=matrix.shape[1], values=values.tobytes())


def partition_from_wire(message: pb.PartitionKey, name: str = "partition") -> PartitionKey:
    """The key of a partition, its hash scheme filled in; InvalidError where it is none."""
    return check_partition(
        PartitionKey(message.tenant_id, message.model_id, message.hash_scheme, message.adapter_id),
        name,
    )


def partition_to_wire(key: PartitionKey) -> pb.PartitionKey:
    """The message of a partition's key."""
    return request_of(
        pb.PartitionKey,
        tenant_id=key.tenant_id,
        model_id=key.model_id,
        hash_scheme=key.hash_scheme,
        adapter_id=key.adapter_id,
    )


def document_to_wire(document: Document) -> pb.Document:
    """The message of a document."""
    return pb.Document(name=document.name, description=document.description)


def seconds_from_wire(
    duration: Duration, name: str, *, minimum_s: float, maximum_s: float
) -> float:
    """A duration in seconds; InvalidError outside its range or its own rules."""
    seconds, nanos = duration.seconds, duration.nanos
    total = seconds + nanos / 1e9
    wrong_sign = (seconds > 0 > nanos) or (seconds < 0 < nanos) or abs(nanos) >= 10**9
    if wrong_sign or not minimum_s <= total <= maximum_s:
        raise out_of_range(name, f"{total:g} s", f"{minimum_s:g} s to {maximum_s:g} s")
    return total


def _varint(number: int) -> bytes:
    """A number as protobuf encodes lengths: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _check_size(message: pb.CacheEvent) -> None:
    size = message.ByteSize()
    if size > limits.EVENT_BYTES_MAX:
        raise InvalidError(
            f"event has {size} bytes; at most {limits.EVENT_BYTES_MAX} go into one: split it",
            field="event",
            reason=Reason.FIELD_TOO_LONG,
        )
