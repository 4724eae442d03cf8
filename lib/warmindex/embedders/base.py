"""What an embedder is: text in, vectors out, and an identity that says whose they are.

An embedder never mixes up rows, never hands out a vector that is not finite, is zero or
has another width than its neighbours, and never lets one text take others down with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from warmindex.identity import ModelIdentity

FloatVector: TypeAlias = npt.NDArray[np.float32]
FloatMatrix: TypeAlias = npt.NDArray[np.float32]


class FailureKind(Enum):
    """Why one text has no vector."""

    BLANK = "blank"
    """Nothing but white space. Never sent: servers differ on what it means."""
    NOT_UNICODE = "not unicode"
    """A lone surrogate: it has no UTF-8 form."""
    TOO_LONG = "too long"
    """More tokens or bytes than the backend takes, where it does not truncate."""
    REJECTED = "rejected"
    """The backend refuses this text while it accepts others."""
    BAD_VECTOR = "bad vector"
    """The backend answers with NaN, infinity, or nothing but zeros."""
    UNAVAILABLE = "unavailable"
    """The backend went away, or the deadline came, before this text's turn."""


@dataclass(frozen=True, slots=True)
class TextFailure:
    """One text that has no vector.

    `message` says why, in the server's words where it has any; they are cut short, and the
    text itself is taken out of them.
    """

    kind: FailureKind
    message: str

    @property
    def retryable(self) -> bool:
        """Whether the same text may succeed later."""
        return self.kind is FailureKind.UNAVAILABLE


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """The vectors of a list of texts.

    `vectors` is float32 (n, d), one row for each text of the caller's list, in its order.
    The rows of texts in `failures` (index in the caller's list -> why) are NaN throughout:
    whoever overlooks a failure meets a value that nothing accepts. d is 0 where no text
    has a vector. `sent_count` is how many distinct texts were computed; `truncated_count` how
    many of them were cut at the model's length, None where the backend does not say.
    """

    vectors: FloatMatrix
    failures: Mapping[int, TextFailure] = field(default_factory=lambda: MappingProxyType({}))
    sent_count: int = 0
    truncated_count: int | None = None

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Bool (n,): True where a row is a vector."""
        mask = np.ones(len(self.vectors), dtype=np.bool_)
        mask[list(self.failures)] = False
        return mask


class Embedder(Protocol):
    """Text in, vectors out. Safe to call from many tasks of one event loop at once.

    `deadline` is a time of the running event loop (`loop.time()`), None for none. Errors
    are those of `warmindex.embedders.errors`.
    """

    async def identity(self) -> ModelIdentity:
        """What determines the vectors of documents, read live.

        Raises IdentityUnavailableError where it cannot be read just now, and
        IdentityRefusedError, saying what to configure, where it can never be safe.
        """
        ...

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        adapter_id: str = "",
        deadline: float | None = None,
    ) -> Embedded:
        """The vectors of texts that are stored. A text given twice is computed once.

        A text that fails, fails alone, as an entry of `failures`. An error is raised only
        where no text at all could be embedded for a reason that is not in the texts.
        """
        ...

    async def embed_query(
        self,
        text: str,
        *,
        adapter_id: str = "",
        deadline: float | None = None,
    ) -> FloatVector:
        """The vector of a question, float32 (d,). It is never published.

        Somebody waits for it: without a deadline an embedder may set one of its own.
        Raises TextRefusedError where this text has none.
        """
        ...

    async def close(self) -> None:
        """Give up connections and threads. The embedder cannot be used afterwards."""
        ...
