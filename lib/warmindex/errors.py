"""What can go wrong, as one tree.

    WarmindexError                   reason, field, message
      InvalidError                   the caller's input; sending it again is no use
      FencedError                    a newer life of the producer is known
      OvertakenError                 the producer published past its report
      QuotaError                     a limit is reached; later it may go through
      NotBuiltError                  this server does not have that call
      UnauthenticatedError           no valid credential
      ForbiddenError                 the credential does not allow this
      UnavailableError               not now; try again, here or on another server
        RevisionNotReachedError      the server has not caught up in time
        JournalUnavailableError      the journal cannot be written just now
        ShuttingDownError            the server is going away

Each error carries the reason that the contract gives it and the name of its gRPC
status, so that the edge that sends it, and the client that meets it, need not guess.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class Reason(IntEnum):
    """Why a call or an event was refused: the numbers of `ErrorReason` in the contract."""

    UNSPECIFIED = 0
    FIELD_REQUIRED = 1
    FIELD_TOO_LONG = 2
    TOO_MANY = 3
    VALUE_UNKNOWN = 4
    OUT_OF_RANGE = 5
    CONFLICT = 6
    HASH_LENGTH = 7
    EMBEDDING_SHAPE = 8
    EMBEDDING_VALUE = 9
    DIMENSIONS_MISMATCH = 10
    PAGE_TOKEN = 11
    EPOCH_FENCED = 20
    REPORT_OVERTAKEN = 21
    REPORT_INCOMPLETE = 22
    REVISION_NOT_REACHED = 30
    JOURNAL_UNAVAILABLE = 31
    SHUTTING_DOWN = 32
    QUOTA = 40
    UNAUTHENTICATED = 50
    PERMISSION = 51


class WarmindexError(Exception):
    """Base of all errors of this package.

    `reason` is the contract's reason, `field` the field at fault (or ""), `message` says
    what is wrong and what to do. `status` is the gRPC status code's name.
    """

    status: ClassVar[str] = "UNKNOWN"
    default_reason: ClassVar[Reason] = Reason.UNSPECIFIED

    def __init__(self, message: str, *, field: str = "", reason: Reason | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.reason = self.default_reason if reason is None else reason


class InvalidError(WarmindexError, ValueError):
    """The input breaks a rule of the contract."""

    status = "INVALID_ARGUMENT"


class FencedError(WarmindexError):
    """A newer epoch of the producer is known: this life of it has ended."""

    status = "FAILED_PRECONDITION"
    default_reason = Reason.EPOCH_FENCED


class OvertakenError(WarmindexError):
    """The producer published past what its report includes: report again."""

    status = "ABORTED"
    default_reason = Reason.REPORT_OVERTAKEN


class QuotaError(WarmindexError):
    """A limit of the tenant or of the server is reached."""

    status = "RESOURCE_EXHAUSTED"
    default_reason = Reason.QUOTA


class NotBuiltError(WarmindexError):
    """The server does not have this call."""

    status = "UNIMPLEMENTED"


class UnauthenticatedError(WarmindexError):
    """There is no valid credential."""

    status = "UNAUTHENTICATED"
    default_reason = Reason.UNAUTHENTICATED


class ForbiddenError(WarmindexError):
    """The credential does not allow this."""

    status = "PERMISSION_DENIED"
    default_reason = Reason.PERMISSION


class UnavailableError(WarmindexError):
    """The server cannot do it now; the same call may succeed later or elsewhere."""

    status = "UNAVAILABLE"


class RevisionNotReachedError(UnavailableError):
    """The revision asked for was not reached in time."""

    default_reason = Reason.REVISION_NOT_REACHED


class JournalUnavailableError(UnavailableError):
    """The journal cannot be written just now; reads go on."""

    default_reason = Reason.JOURNAL_UNAVAILABLE


class ShuttingDownError(UnavailableError):
    """The server is going away."""

    default_reason = Reason.SHUTTING_DOWN


def required(field: str, what: str) -> InvalidError:
    """The error for a field that is empty and must not be."""
    return InvalidError(f"{field} is required: {what}", field=field, reason=Reason.FIELD_REQUIRED)


def out_of_range(field: str, value: object, allowed: str) -> InvalidError:
    """The error for a number or a duration outside its range."""
    return InvalidError(
        f"{field} is {value}; allowed is {allowed}", field=field, reason=Reason.OUT_OF_RANGE
    )
