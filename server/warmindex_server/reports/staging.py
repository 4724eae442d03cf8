"""A report on its way: what it says, held against what the index has.

What the index has already is only packed away, by place; what it lacks, or has otherwise,
is kept to be added. Judging an entry when it comes is judging it at the end, for any change
of what the producer holds ends the report. A vector or a document that is there already is
left out only where the producer's own hold keeps it there.

At the end, what the producer holds in a place and the report has not named there is to go.
Where the report has named as many keys as there are holds, none is; else the place's keys are
gone through, a few thousand at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np
from warmindex import limits
from warmindex.errors import FencedError, OvertakenError, QuotaError
from warmindex.event import EMPTY_DOCUMENT, CacheEvent, Cause, EventType, PartitionKey, Tier
from warmindex.index import Index
from warmindex.index.holders import each_bit
from warmindex.index.producers import Standing, judge_report
from warmindex.record import Conditional, Report

from warmindex_server.journal.base import RECORD_BYTES_MAX
from warmindex_server.reports.additions import Additions
from warmindex_server.reports.bag import HashBag

if TYPE_CHECKING:
    from warmindex.index.model import Model
    from warmindex.index.partition import Partition
    from warmindex.index.producers import Producer

# What one report may have to add, as it lies in memory. It goes into one record, whose hashes
# are shorter there. 240 MiB are 3.8 million block hashes, or 160 thousand vectors of 384.
REPORT_BYTES_MAX: Final = 240 * limits.MIB
# What all reports under way may have to add.
REPORTS_BYTES_MAX: Final = 1024 * limits.MIB
# Keys looked at in a step: about a millisecond.
KEYS_PER_STEP: Final = 4096
# To sort so many takes about a millisecond, and a thread is not worth its while.
HASHES_INLINE_MAX: Final = 4096
# A bag is packed when repeats may have made it much larger than what the producer holds.
REPEATS_MAX: Final = 2**18

assert REPORT_BYTES_MAX < RECORD_BYTES_MAX  # noqa: S101 - a relation between constants

GiveWay: TypeAlias = Callable[[], Awaitable[None]]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def index_replaced() -> OvertakenError:
    """The error for a report that was held against an index that is no more."""
    return OvertakenError("the server has loaded its index anew meanwhile: report again")


class Place(NamedTuple):
    """Where holds are: a partition of the report's model, and a tier."""

    hash_scheme: str
    adapter_id: str
    tier: Tier


class Budget:
    """What all reports under way take together."""

    def __init__(self, bytes_max: int = REPORTS_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0


class StagedReport:
    """One report; `head` is its header, without changes. Call `drop` at its end."""

    def __init__(self, index: Index, head: Report, budget: Budget) -> None:
        """Raises FencedError or OvertakenError where it cannot apply."""
        self._index = index
        self._head = head
        self._budget = budget
        self._since = index.revision
        self._additions = Additions(head.replica_id, head.model_id, head.tenant_id)
        self._kept: dict[Place, HashBag] = {}
        self._taken = 0
        self.check(index)

    def drop(self) -> None:
        """Give back what the report has taken of the budget."""
        self._budget.bytes -= self._taken
        self._taken = 0

    def check(self, index: Index) -> None:
        """Raise FencedError or OvertakenError where the report cannot apply any more."""
        if index is not self._index:
            raise index_replaced()
        producer = self._producer
        if producer is None:
            return
        standing = judge_report(producer, self._head)
        if standing is Standing.FENCED:
            raise FencedError(
                f"epoch {producer.epoch} of this producer is known: a newer life of it has "
                "published; stop, or start again with a larger epoch"
            )
        if standing is Standing.GAP or producer.changed_revision > self._since:
            raise OvertakenError(
                "the producer published past what the report includes: hold events back and "
                "report again"
            )

    @property
    def _producer(self) -> Producer | None:
        return self._index.producer(
            self._head.tenant_id, self._head.model_id, self._head.replica_id
        )

    @property
    def _model(self) -> Model | None:
        return self._index.models.get((self._head.tenant_id, self._head.model_id))

    # ---- entries -----------------------------------------------------------------------

    async def add(self, event: CacheEvent) -> None:
        """Take in an EMBEDDED of the producer.

        Raises QuotaError where the report has more to add than a record takes.
        """
        model = self._model
        bit = model.holders.bits_of(event.replica_id, event.tier) if model else 0
        partition = self._index.partition(
            PartitionKey(event.tenant_id, event.model_id, event.hash_scheme, event.adapter_id)
        )
        if partition is None or not bit:
            self._add(event, None)
            return
        get = partition.entries.get
        held = [get(content_hash, 0) & bit for content_hash in event.content_hashes]
        place = Place(event.hash_scheme, event.adapter_id, event.tier)
        bag = self._kept.setdefault(place, HashBag())
        bag.add(list(compress(event.content_hashes, held)))
        wanted = [position for position, bits in enumerate(held) if not bits]
        if len(wanted) < len(held):
            others = [position for position, bits in enumerate(held) if bits]
            wanted += _told_otherwise(partition, event, others)
            wanted.sort()
        if wanted:
            self._add(event, wanted if len(wanted) < len(held) else None)
        if len(bag) > 2 * partition.holds.get(bit, 0) + REPEATS_MAX:
            await _beside(len(bag), bag.pack)

    def _add(self, event: CacheEvent, positions: Sequence[int] | None) -> None:
        before = self._additions.bytes
        self._additions.add(event, positions)
        more = self._additions.bytes - before
        self._taken += more
        self._budget.bytes += more
        if self._additions.bytes > REPORT_BYTES_MAX:
            raise QuotaError(
                f"the report has more to add than {REPORT_BYTES_MAX} bytes: publish what it lists "
                "with PublishEvents first, then report again"
            )
        if self._budget.bytes > self._budget.bytes_max:
            raise QuotaError("too many large reports are under way: report again later")

    # ---- the end -----------------------------------------------------------------------

    async def record(self, give_way: GiveWay) -> Conditional:
        """What to journal: the difference, as long as the producer's holds stay what they are."""
        removals = [event async for event in self._removals(give_way)]
        changes = (*self._additions.events(), *removals)
        report = Report(
            replica_id=self._head.replica_id,
            model_id=self._head.model_id,
            tenant_id=self._head.tenant_id,
            epoch=self._head.epoch,
            sequence=self._head.sequence,
            changes=changes,
        )
        return Conditional(record=report, unchanged_since=self._since)

    async def _removals(self, give_way: GiveWay) -> AsyncIterator[CacheEvent]:
        """EVICTED events for what the producer holds and the report does not list."""
        model = self._model
        if model is None:
            return
        bits = list(each_bit(model.holders.bits_of(self._head.replica_id)))
        tiers = {bit: model.holders.name_of(bit)[1] for bit in bits}
        places = [
            (Place(scheme, adapter_id, tier), partition, bit)
            for scheme, scope in model.schemes.items()
            for adapter_id, partition in scope.partitions.items()
            for bit, tier in tiers.items()
            if partition.holds.get(bit)
        ]
        for place, partition, bit in places:
            kept = self._kept.get(place, HashBag())
            if await _beside(len(kept), kept.pack) == partition.holds.get(bit):
                continue
            held = await _holds_in(partition, bit, give_way)
            gone = await _beside(len(held), _minus, held, kept)
            for start in range(0, len(gone), limits.CONTENT_HASHES_MAX):
                yield self._removal(place, gone[start : start + limits.CONTENT_HASHES_MAX])
                await give_way()

    def _removal(self, place: Place, hashes: Sequence[bytes]) -> CacheEvent:
        return CacheEvent(
            type=EventType.EVICTED,
            replica_id=self._head.replica_id,
            model_id=self._head.model_id,
            tenant_id=self._head.tenant_id,
            content_hashes=hashes,
            adapter_id=place.adapter_id,
            adapter_scoped=True,
            hash_scheme=place.hash_scheme,
            tier=place.tier,
            cause=Cause.REPORT,
        )


def _told_otherwise(partition: Partition, event: CacheEvent, positions: Sequence[int]) -> list[int]:
    """Those of some held keys whose vector, document or token count the event changes."""
    hashes = event.content_hashes
    found: set[int] = set()
    if event.token_count and not partition.tokens.uniform_with(event.token_count):
        get = partition.tokens.get
        found.update(at for at in positions if get(hashes[at]) != event.token_count)
    if event.documents:
        known, told = partition.documents, event.documents
        found.update(
            at
            for at in positions
            if told[at] != EMPTY_DOCUMENT and known.get(hashes[at]) != told[at]
        )
    if event.embeddings is not None:
        found.update(_other_vectors(partition, event, positions))
    return list(found)


def _other_vectors(
    partition: Partition, event: CacheEvent, positions: Sequence[int]
) -> Sequence[int]:
    rows, store = event.embeddings, partition.vectors
    assert rows is not None  # noqa: S101 - the caller has looked
    if store is None or store.dimensions != rows.shape[1]:
        return positions
    has, values = store.gather([event.content_hashes[at] for at in positions])
    there = np.array(list(compress(positions, has)), dtype=np.intp)
    stored = np.frombuffer(values, dtype=np.uint32).reshape(len(there), rows.shape[1])
    # As integers: 0.0 and -0.0 are equal numbers, and not the same bits.
    given = np.ascontiguousarray(rows[there]).view(np.uint32)
    changed: list[int] = there[(stored != given).any(axis=1)].tolist()
    return changed + [at for at, known in zip(positions, has, strict=True) if not known]


async def _beside(
    size: int, work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Do work on `size` hashes, in a thread where it takes long."""
    if size <= HASHES_INLINE_MAX:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


async def _holds_in(partition: Partition, bit: int, give_way: GiveWay) -> HashBag:
    """The keys of a partition that have a bit, gone through in steps."""
    held = HashBag()
    entries = partition.entries
    keys = list(entries)
    for start in range(0, len(keys), KEYS_PER_STEP):
        window = keys[start : start + KEYS_PER_STEP]
        held.add([each for each in window if entries.get(each, 0) & bit])
        await give_way()
    return held


def _minus(held: HashBag, kept: HashBag) -> list[bytes]:
    held.pack()
    return held.minus(kept)
