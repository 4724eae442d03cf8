"""Numbering: what a producer's epoch and sequence make of an event.

    event                               outcome     resync_required afterwards
    ----------------------------------  ----------  --------------------------------------
    without a number                    applies     as it was
    of an older epoch                   FENCED      as it was
    number at or below the highest      DUPLICATE   as it was
    the next number                     applies     as it was
    a number above the next one         applies     yes: events are missing
    newer epoch, number 1, no holds     applies     no: nothing of the last life is left
    newer epoch, number 1, holds        applies     yes: the last life's holds may be stale
    newer epoch, another number         applies     yes: events are missing
    ALL_CLEARED that applies            applies     no: nothing is left to be wrong about
    ALL_CLEARED by the server, holds    applies     yes: the producer still believes in them
    ALL_CLEARED by the server, none     applies     as it was
    a report that applies               applies     no: it said everything

Holds without a number count as the last life's: epoch 0 comes before every other.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from warmindex.event import Cause, EventType

if TYPE_CHECKING:
    from warmindex.event import CacheEvent
    from warmindex.record import Report


class Producer:
    """The numbering of one (tenant, model, replica).

    `sequence` is the highest number used in `epoch`. `changed_revision` is the last revision
    that changed what the replica holds in the model.
    """

    __slots__ = ("changed_revision", "epoch", "resync_required", "sequence")

    def __init__(
        self,
        epoch: int = 0,
        sequence: int = 0,
        resync_required: bool = False,
        changed_revision: int = 0,
    ) -> None:
        self.epoch = epoch
        self.sequence = sequence
        self.resync_required = resync_required
        self.changed_revision = changed_revision

    @property
    def numbers(self) -> tuple[int, int, bool, int]:
        """All four, in the constructor's order."""
        return self.epoch, self.sequence, self.resync_required, self.changed_revision


class Standing(IntEnum):
    """Where a numbered event stands in its producer's order."""

    NEXT = 1
    GAP = 2
    NEW_LIFE = 3
    DUPLICATE = 4
    FENCED = 5


class Numbering(NamedTuple):
    """The verdict on a number, before the event is applied."""

    standing: Standing
    applies: bool


_VERDICTS = {standing: Numbering(standing, standing < Standing.DUPLICATE) for standing in Standing}


def judge(producer: Producer, epoch: int, sequence: int) -> Numbering:
    """Where a numbered event stands; nothing is changed yet."""
    if epoch == producer.epoch:
        if sequence == producer.sequence + 1:
            return _VERDICTS[Standing.NEXT]
        if sequence <= producer.sequence:
            return _VERDICTS[Standing.DUPLICATE]
        return _VERDICTS[Standing.GAP]
    if epoch < producer.epoch:
        return _VERDICTS[Standing.FENCED]
    return _VERDICTS[Standing.NEW_LIFE if sequence == 1 else Standing.GAP]


def advance(
    producer: Producer, epoch: int, sequence: int, standing: Standing, had_holds: bool
) -> None:
    """Use the number up. `had_holds`: the replica held something before the event."""
    producer.epoch = epoch
    producer.sequence = sequence
    if standing is Standing.GAP:
        producer.resync_required = True
    elif standing is Standing.NEW_LIFE:
        producer.resync_required = had_holds


def after_clear(producer: Producer, event: CacheEvent, holds_removed: int) -> None:
    """ALL_CLEARED has been applied: healed, unless the server made it."""
    assert event.type is EventType.ALL_CLEARED  # noqa: S101 - the caller's one duty
    if event.cause is Cause.NONE:
        producer.resync_required = False
    elif holds_removed:
        producer.resync_required = True


def judge_report(producer: Producer, report: Report) -> Standing:
    """Whether a report still includes all that its producer has said.

    GAP stands for a report that the producer has overtaken.
    """
    if report.epoch == 0:
        return Standing.NEXT
    if report.epoch < producer.epoch:
        return Standing.FENCED
    if report.epoch == producer.epoch and report.sequence < producer.sequence:
        return Standing.GAP
    return Standing.NEXT


def after_report(producer: Producer, report: Report) -> None:
    """A report has been applied: its numbers hold, and nothing is missing."""
    if report.epoch:
        producer.epoch = report.epoch
        producer.sequence = report.sequence
    producer.resync_required = False
