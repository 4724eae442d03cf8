"""Errors to gRPC statuses, with the details that clients read."""

from __future__ import annotations

from typing import Any, Final

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from warmindex.errors import Reason, UnavailableError, WarmindexError

ERROR_DOMAIN: Final = "warmindex.v1"
# What a caller that is told UNAVAILABLE should wait at least.
RETRY_DELAY_MS: Final = 500
# What a caller wrote may be in a message, so it is cut. A message travels three times in the
# trailers, once with three characters for each byte that is not ASCII, and a peer takes 8 KiB.
MESSAGE_BYTES_MAX: Final = 1000

Context = grpc.aio.ServicerContext[Any, Any]


def status_of(error: WarmindexError) -> grpc.Status:
    """The status of an error: code, message, ErrorInfo, and the field where one is at fault."""
    message = error.message.encode(errors="replace")[:MESSAGE_BYTES_MAX].decode(errors="ignore")
    details: list[Any] = []
    if error.reason is not Reason.UNSPECIFIED:
        name = f"ERROR_REASON_{error.reason.name}"
        details.append(error_details_pb2.ErrorInfo(reason=name, domain=ERROR_DOMAIN))
    if error.field:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=message
        )
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, UnavailableError):
        delay = error_details_pb2.RetryInfo()
        delay.retry_delay.FromMilliseconds(RETRY_DELAY_MS)
        details.append(delay)
    status: grpc.Status = rpc_status.to_status(
        status_pb2.Status(
            code=code_pb2.Code.Value(error.status), message=message, details=map(_packed, details)
        )
    )
    return status


def _packed(detail: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
