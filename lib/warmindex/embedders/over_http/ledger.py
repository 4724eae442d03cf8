"""What has become of each text of one call, and whether it is worth going on. Pure.

vectors    place -> vector
failures   place -> why there is none
ended      why nothing more is asked, or None
causes     what kept texts from a vector and did not lie in them
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from warmindex.embedders.base import FailureKind, FloatVector, TextFailure
from warmindex.embedders.errors import BadAnswerError, EmbedderError, MisconfiguredError
from warmindex.embedders.over_http.answers import Judgement, Verdict
from warmindex.embedders.over_http.decisions import error_of, failure_kind
from warmindex.embedders.over_http.decode import Rows
from warmindex.embedders.vectors import bad_rows

# So many texts failed one by one and none succeeded: it is not the texts.
HOPELESS: Final = 8
# The server says plainly that the text is at fault: no sign that others would fail too.
_PLAIN: Final = frozenset({Verdict.TEXT_TOO_LONG, Verdict.BODY_TOO_BIG})


class Ledger:
    """The books of one call. `dimensions` is the width that is asked for, 0 for any."""

    def __init__(self, dimensions: int) -> None:
        self.vectors: dict[int, FloatVector] = {}
        self.failures: dict[int, TextFailure] = {}
        self.ended: EmbedderError | None = None
        self._dimensions = dimensions
        self._causes: list[EmbedderError] = []
        self._mixed: EmbedderError | None = None
        self._model = ""
        self._suspicious = 0
        self._odd: set[int] = set()

    def accept(self, places: Sequence[int], rows: Rows, name: str) -> dict[int, TextFailure]:
        """Enter the vectors of one answer; gives place -> why of those that are none.

        Rows that cannot be of the same model as the others end the call, and spoil it. Only
        where it is one text alone, and no second one, that text is what is odd.
        """
        mismatch = self._mismatch(rows, name)
        if mismatch is not None and len(places) == 1 and self.vectors:
            self._odd.add(places[0])
            if len(self._odd) == 1:
                return {places[0]: TextFailure(FailureKind.BAD_VECTOR, mismatch.message)}
        if mismatch is not None:
            self._mixed = self.ended = self._mixed or mismatch
            return {}
        bad = bad_rows(rows.matrix)
        for row, place in enumerate(places):
            if row not in bad:
                self.vectors[place] = rows.matrix[row]
        return {places[row]: failure for row, failure in bad.items()}

    def fail(self, places: Sequence[int], judgement: Judgement, name: str) -> None:
        """Enter that a batch has failed for good."""
        verdict = judgement.verdict
        failure = TextFailure(failure_kind(verdict), f"{name}: {judgement.words}")
        for place in places:
            self.failures[place] = failure
        if verdict in _PLAIN:
            return
        error = error_of(judgement, name)
        if verdict is not Verdict.REFUSED:
            self._causes.append(error)
        self._suspect(len(places), error)

    def fail_vector(self, place: int, failure: TextFailure, name: str) -> None:
        """Enter that a text gets no vector that is one."""
        self.failures[place] = failure
        self._suspect(1, BadAnswerError(failure.message, backend=name))

    def leave(self, error: EmbedderError) -> None:
        """Enter that a replica is not asked any more."""
        self._causes.append(error)

    def end(self, error: EmbedderError | None = None) -> None:
        """Ask nothing more; by default for the last cause."""
        self.ended = self.ended or error or self._causes[-1]

    def give_up(self, places: Sequence[int]) -> None:
        """Enter that nothing was asked for these texts, because the call has ended."""
        assert self.ended is not None  # noqa: S101 - its callers have looked
        self._causes.append(self.ended)
        failure = TextFailure(FailureKind.UNAVAILABLE, self.ended.message)
        for place in places:
            self.failures[place] = failure

    def check(self) -> None:
        """Raise where the call as a whole has failed."""
        if self._mixed is not None:
            raise self._mixed
        if not self.vectors and self._causes:
            raise self.ended or self._causes[-1]

    def _suspect(self, count: int, error: EmbedderError) -> None:
        self._suspicious += count
        if self._suspicious >= HOPELESS and not self.vectors:
            self._causes.append(error)
            self.end(error)

    def _mismatch(self, rows: Rows, name: str) -> EmbedderError | None:
        """Why these rows cannot belong to the others of this call."""
        asked, width = self._dimensions, rows.matrix.shape[1]
        if asked and width != asked:
            return MisconfiguredError(
                f"was asked for {asked} dimensions and answers {width}; "
                "the model does not have that width: leave dimensions out",
                backend=name,
                field="dimensions",
            )
        known = next((len(vector) for vector in self.vectors.values()), width)
        if width != known:
            return BadAnswerError(
                f"answers {width} dimensions where {known} came before: two models, or a swap",
                backend=name,
            )
        self._model = self._model or rows.model
        if rows.model and rows.model != self._model:
            return BadAnswerError(
                f"answers as {rows.model!r:.80}, and as {self._model!r:.80} before: "
                "two models behind one name",
                backend=name,
            )
        return None
