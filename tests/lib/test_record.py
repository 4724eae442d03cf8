"""Records: what a journal may hold is checked when it is made."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from warmindex.errors import InvalidError, Reason
from warmindex.record import Conditional, Lease, LeaseState, ProducerState, Report, UsedNumber

NAMES = {"replica_id": "r1", "model_id": "m"}


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"replica_id": ""}, "replica_id", Reason.FIELD_REQUIRED),
        ({"model_id": ""}, "model_id", Reason.FIELD_REQUIRED),
        ({"replica_id": "x" * 257}, "replica_id", Reason.FIELD_TOO_LONG),
        ({"tenant_id": "x" * 129}, "tenant_id", Reason.FIELD_TOO_LONG),
        ({"epoch": 0}, "epoch", Reason.CONFLICT),
        ({"sequence": 0}, "sequence", Reason.CONFLICT),
        ({"sequence": 2**64}, "sequence", Reason.OUT_OF_RANGE),
        ({"epoch": 0, "sequence": 0}, "epoch", Reason.FIELD_REQUIRED),
    ],
)
def test_a_used_number_names_a_producer_and_a_number(
    fields: dict[str, Any], field: str, reason: Reason
):
    """Otherwise there is nothing to use up."""
    with pytest.raises(InvalidError) as caught:
        UsedNumber(**{**NAMES, "epoch": 1, "sequence": 1, **fields})
    assert (caught.value.field, caught.value.reason) == (f"event.{field}", reason)


def test_records_are_values():
    """Equal where their fields are, usable as keys, and frozen."""
    for make in (
        lambda: UsedNumber(**NAMES, epoch=1, sequence=2),
        lambda: Lease(replica_id="r1", ttl_ms=5),
        lambda: Report(**NAMES),
        lambda: Conditional(record=Lease(replica_id="r1", ttl_ms=0), lease_generation=3),
        lambda: ProducerState(**NAMES, epoch=1, sequence=2),
        lambda: LeaseState(replica_id="r1", ttl_ms=5, generation=9),
    ):
        assert make() == make()
        assert len({make(), make()}) == 1
        made = make()
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, dataclasses.fields(made)[0].name, None)


def test_a_report_without_more_says_that_nothing_is_held():
    """It has no changes of its own, and leaves the numbering alone."""
    report = Report(**NAMES)
    assert (report.epoch, report.sequence, report.changes) == (0, 0, ())
