"""What is said of records that do not apply."""

from __future__ import annotations

from warmindex.errors import Reason
from warmindex.event import CacheEvent
from warmindex.index.change import Applied, Outcome
from warmindex.index.producers import Producer, Standing


def not_in_order(revision: int, producer: Producer, standing: Standing) -> Applied:
    """A number that was used, or a life that has ended."""
    if standing is Standing.DUPLICATE:
        return Applied(Outcome.DUPLICATE, revision, resync_required=producer.resync_required)
    return Applied(
        Outcome.FENCED,
        revision,
        error=f"epoch {producer.epoch} of this producer is known: a newer life of it has "
        "published; stop, or start again with a larger epoch",
        reason=Reason.EPOCH_FENCED,
        current_epoch=producer.epoch,
    )


def other_width(revision: int, event: CacheEvent, width: int) -> Applied:
    """Vectors that are not as wide as the partition's."""
    given = event.embeddings.shape[1] if event.embeddings is not None else 0
    return Applied(
        Outcome.REFUSED,
        revision,
        error=f"event.embeddings.dimensions is {given}, but the partition's vectors have "
        f"{width}: vectors of another width belong to another model_id",
        reason=Reason.DIMENSIONS_MISMATCH,
    )


def overtaken(revision: int) -> Applied:
    """What the record was judged on no longer holds."""
    return Applied(
        Outcome.OVERTAKEN,
        revision,
        error="the producer published past what the report includes: hold events back and "
        "report again",
        reason=Reason.REPORT_OVERTAKEN,
    )
