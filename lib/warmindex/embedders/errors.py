"""What can go wrong between a text and its vector, as one tree.

    EmbedderError(WarmindexError)      backend: which one, never with a secret
      BackendUnavailableError          not now; retry_after_s says when, if the backend did
        DeadlinePassedError            the caller's deadline came first
        IdentityUnavailableError       the identity cannot be read just now
      UnauthorizedError                no key, a wrong one, or one that may not do this
      MisconfiguredError               wrong address, model or option: waiting does not help
        IdentityRefusedError           this backend can never say safely what it serves
        ExtraMissingError              an optional part of warmindex is not installed
      BadAnswerError                   the backend answered, but not what was asked
      TextRefusedError                 this one text has no vector; others have

`retryable` tells whether the same call may succeed later without anybody changing
anything. Errors of single texts inside a batch are no exceptions: see base.TextFailure.
"""

from __future__ import annotations

from typing import ClassVar

from warmindex.errors import Reason, WarmindexError


class EmbedderError(WarmindexError):
    """Base of all errors of embedders. `backend` names the one at fault, without secrets."""

    status = "INTERNAL"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        backend: str = "",
        field: str = "",
        reason: Reason | None = None,
    ) -> None:
        super().__init__(
            f"{backend}: {message}" if backend else message, field=field, reason=reason
        )
        self.backend = backend


class BackendUnavailableError(EmbedderError):
    """The backend cannot answer now: away, overloaded, or too slow.

    `retry_after_s` is the wait that it asked for, in seconds, or None.
    """

    status = "UNAVAILABLE"
    retryable = True

    def __init__(
        self,
        message: str,
        *,
        backend: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, backend=backend)
        self.retry_after_s = retry_after_s


class DeadlinePassedError(BackendUnavailableError):
    """The caller's deadline would have passed before an answer."""

    status = "DEADLINE_EXCEEDED"


class IdentityUnavailableError(BackendUnavailableError):
    """What the backend serves cannot be read just now: publish nothing."""


class UnauthorizedError(EmbedderError):
    """The backend wants a key, another key, or allows this key something else."""

    status = "UNAUTHENTICATED"


class MisconfiguredError(EmbedderError):
    """Nothing but a change of the configuration helps; the message says which."""

    status = "FAILED_PRECONDITION"


class IdentityRefusedError(MisconfiguredError):
    """No identity of this backend would be safe to share vectors under."""


class ExtraMissingError(MisconfiguredError):
    """A package that this embedder needs is not installed."""


class BadAnswerError(EmbedderError):
    """The answer does not hold what was asked for: no JSON, a wrong count, a wrong width."""


class TextRefusedError(EmbedderError):
    """The one text of this call has no vector; the message says why."""

    status = "INVALID_ARGUMENT"
