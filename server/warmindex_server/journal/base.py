"""What a journal is: the promises that the store relies on, and every journal keeps.

    store --append--> journal --read / tail--> store --apply--> index
                         |
                         +-- snapshot: the state at one revision, so that the log can be cut

A journal puts records in order, gives each a revision, keeps them as safely as the user has
chosen, and keeps one snapshot. It neither looks into records nor judges them: what depends
on state is decided where a record is applied.

How to add one: write a module with `open_url` and `recover_url` (see registry.py), and let
it pass tests/server/journal/test_contract.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, TypeAlias

from warmindex.errors import UnavailableError, WarmindexError
from warmindex.record import Record, SnapshotPart

Batch: TypeAlias = Sequence[tuple[int, Record]]
Parts: TypeAlias = Sequence[SnapshotPart]

# The largest frame a journal stores: a report of everything that one producer holds is one
# record. SQLite's blobs end at 1 GB and Redis' strings at 512 MB, so both take it.
RECORD_BYTES_MAX: Final = 256 * 2**20

# What one batch from read() or tail() and one batch of a snapshot's parts should be: large
# enough that the call around it costs nothing, small enough to keep the memory flat.
BATCH_BYTES: Final = 4 * 2**20

# What one piece of a stored snapshot is, and what is read in one step: memory of this size is
# used again by the next step, where larger pieces are given back to the system and taken anew.
PACK_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOptions:
    """What a user may set beside the URL.

    `redis_prefix` begins the name of every Redis key, as "{prefix}:…" unless it has a hash
    tag of its own.
    """

    redis_prefix: str = "warmindex"


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A whole snapshot: the state after `revision`.

    `batches` yields its parts once, in `batch_count` batches, for telling progress; they are
    not the batches that it was saved in. It raises JournalMovedError where a newer snapshot
    has taken its place while it was read.
    """

    revision: int
    batch_count: int
    batches: AsyncIterator[Parts]


@dataclass(frozen=True, slots=True)
class Away:
    """A shared journal cannot be reached; tail() goes on trying. `reason` is for people."""

    reason: str


@dataclass(frozen=True, slots=True)
class Back:
    """A shared journal is reached again, in the same history."""


Step: TypeAlias = Batch | Away | Back


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `recover_url` did: how much was read, and where the damaged data lies now.

    A snapshot is read in batches, so that is what its losses are counted in.
    """

    history_id: str
    records_kept: int = 0
    records_lost: int = 0
    part_batches_kept: int = 0
    part_batches_lost: int = 0
    old_data: str = ""


class JournalStartError(WarmindexError):
    """The journal cannot be used as it is: a person must decide. The message says how."""


class JournalCorruptError(JournalStartError):
    """Stored bytes are damaged. The message names the place and the way out."""


class JournalInUseError(JournalStartError):
    """Another server has the journal, and it is not one that can be shared."""


class JournalMovedError(UnavailableError):
    """What the reader stands on is gone: load again, from snapshot() on.

    `new_history` where the journal's `history_id` is another now; otherwise the log was cut
    past the reader, behind a newer snapshot.
    """

    def __init__(self, message: str, *, new_history: bool = False) -> None:
        super().__init__(message)
        self.new_history = new_history


class Journal(Protocol):
    """Records in order, kept.

    Order
      * Revisions rise. A new history starts at the Unix microseconds of its beginning, above
        every revision before; within a history they rise by one, but for where a shared
        journal has begun a new history upon records of the last one.
      * All tasks of a server share one Journal, but only one append is under way at a time,
        and no append while read() or snapshot() is consumed at the start.

    Durability
      * When append returns, all its records are as durable as the journal's kind promises,
        in one step: after a crash either all of them are there or a beginning of them is.
      * When append raises JournalUnavailableError, its records may be there or not, now or
        after a restart; what has reached the log is found by read() and tail(). A retry of
        numbered events is harmless (DUPLICATE). In a journal that is not shared they are
        surely not there while this process lives, and the next append may work.
      * An append is not cancelled: its records would be in the log, and nobody told.

    Loading
      * snapshot() then read(snapshot's revision, or 0 without one) gives everything.
      * read() ends where the log ended when it got there. It raises JournalMovedError where
        the log does not reach back to `after`, and JournalCorruptError at damage.
      * tail() is for shared journals: it never ends by itself, and yields what anyone has
        appended (own records included, the same objects), Away and Back. It raises
        JournalMovedError, after `history_id` has changed where that is why.

    Snapshots
      * save_snapshot stores it completely or not at all, and then cuts the log up to it,
        but for the last `keep_records` records. Appends go on meanwhile.
      * False: another server is at it, or a newer snapshot is there; nothing was done.
      * It raises JournalUnavailableError where it cannot be written; the old one stays.
    """

    # "memory", "sqlite", "redis".
    name: ClassVar[str]
    # append neither waits nor fails: the caller may apply in the same step.
    immediate: ClassVar[bool]
    # Others append too: the caller applies what tail() yields, its own records included.
    shared: ClassVar[bool]

    @property
    def history_id(self) -> str:
        """The history's name: 1 to 64 letters, digits, "-"; another one in each history."""

    @property
    def revision(self) -> int:
        """The last revision known here; in a new history the one before its first."""

    async def start(self) -> None:
        """Open, check, mend. Raises JournalStartError or JournalUnavailableError."""

    async def snapshot(self) -> StoredSnapshot | None:
        """The last snapshot, or None."""

    def read(self, after: int) -> AsyncIterator[Batch]:
        """The records after a revision, in order, in batches of about BATCH_BYTES."""

    def tail(self, after: int) -> AsyncIterator[Step]:
        """The records after a revision, as they come, for ever."""

    async def append(self, records: Sequence[Record]) -> Sequence[int]:
        """Store records, in order; their revisions. Raises InvalidError above RECORD_BYTES_MAX."""

    async def save_snapshot(
        self, revision: int, batches: AsyncIterator[Parts], keep_records: int = 0
    ) -> bool:
        """Take `batches` as the snapshot at `revision`, and cut the log."""

    async def close(self) -> None:
        """Let go of everything; nothing acknowledged depends on it. May be called twice."""
