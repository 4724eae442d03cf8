"""Reports: whether one applies, what it did as a whole, and which are large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from warmindex.index.change import Applied, Outcome
from warmindex.index.producers import Standing, judge_report
from warmindex.index.verdicts import not_in_order, other_width, overtaken
from warmindex.record import Conditional, Record, Report

if TYPE_CHECKING:
    from warmindex.index.model import Model
    from warmindex.index.producers import Producer

# A report within both is applied at once, in about 4 ms.
HASHES_AT_ONCE: Final = 8192
VECTOR_BYTES_AT_ONCE: Final = 4 * 2**20


def is_large(record: Record) -> bool:
    """Whether applying a record at once would hold up everybody else."""
    report = record.record if isinstance(record, Conditional) else record
    if not isinstance(report, Report):
        return False
    hashes = sum(len(event.content_hashes) for event in report.changes)
    values = sum(each.embeddings.nbytes for each in report.changes if each.embeddings is not None)
    return hashes > HASHES_AT_ONCE or values > VECTOR_BYTES_AT_ONCE


def judged(revision: int, model: Model, producer: Producer, report: Report) -> Applied | None:
    """Why a report does not apply; None where it does."""
    standing = judge_report(producer, report)
    if standing is Standing.FENCED:
        return not_in_order(revision, producer, standing)
    if standing is Standing.GAP:
        return overtaken(revision)
    conflict = model.report_conflict(report.changes)
    return other_width(revision, *conflict) if conflict else None


def sum_of(revision: int, parts: Sequence[Applied]) -> Applied:
    """What the changes of a report did together."""
    changes = [change for part in parts for change in part.changes]
    return Applied(
        Outcome.APPLIED if changes else Outcome.UNCHANGED,
        revision,
        sum(part.holds_added for part in parts),
        sum(part.holds_removed for part in parts),
        changes=changes,
        vectors_replaced=sum(part.vectors_replaced for part in parts),
    )
