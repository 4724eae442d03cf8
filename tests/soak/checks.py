"""What must hold after a run, from what its processes wrote down and from the journal.

The journal's records, applied to the plain model one by one, give what there was at every
revision: each copy that a server, a watcher or a mirror had is held against that, and so is
each answer. Where the log has been cut, this begins at the snapshot. What was told is also
held against itself, whatever the journal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from soak.evidence import View, digest, lines_of, read
from support.model import Numbering, PlainIndex, Verdict
from warmindex.event import CacheEvent
from warmindex.index import Outcome
from warmindex.record import LeaseState, ProducerState, Record, SnapshotPart, UsedNumber
from warmindex_server.journal.base import JournalMovedError, JournalOptions
from warmindex_server.journal.registry import open_journal

Line = dict[str, Any]

# What a call may fail with while servers come and go; gRPC itself says the last two.
EXPECTED_CODES = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
EXPECTED_WORDS = ("Internal error from Core", "Stream removed")


class Stored(NamedTuple):
    """What a journal has in the end."""

    history_id: str
    base: int
    parts: list[SnapshotPart]
    records: list[tuple[int, Record]]
    whole: bool


def evidence_in(folder: Path) -> dict[str, list[Line]]:
    """All that was written down, by its kind."""
    found: defaultdict[str, list[Line]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl")):
        for line in read(path):
            found[line["kind"]].append({**line, "by": path.stem})
    return found


def view_of(line: Line) -> View:
    """The view that a line is about."""
    tenant_id, adapter_ids, embeddings = line["view"]
    return View(tenant_id, tuple(adapter_ids), embeddings)


# ---- what was told, against itself -----------------------------------------------------------


def told_once(evidence: Mapping[str, list[Line]]) -> None:
    """Each revision had one content, each event applied once, each failure was an outage."""
    assert not evidence["wrong"], evidence["wrong"]
    for line in evidence["failed"]:
        expected = line["code"] in EXPECTED_CODES or line["what"].startswith(EXPECTED_WORDS)
        assert expected, f"a call failed in a way that no fault is a reason for: {line}"
    seen: dict[tuple[View, int], Line] = {}
    for line in evidence["seen"]:
        first = seen.setdefault((view_of(line), line["revision"]), line)
        assert first["digest"] == line["digest"], f"two contents: {first} and {line}"
    owners: dict[int, tuple[Any, ...]] = {}
    applied: dict[tuple[Any, ...], int] = {}
    for line in evidence["ack"]:
        number = number_of(line)
        owner = owners.setdefault(line["revision"], number)
        assert owner == number, f"two events at revision {line['revision']}: {owner}, {number}"
        if line["outcome"] in ("APPLIED", "UNCHANGED"):
            first = applied.setdefault((line["history"], *number), line["revision"])
            assert first == line["revision"], f"applied twice, at {first} and as {line}"


def number_of(line: Line) -> tuple[Any, ...]:
    """The number of an event, and whose it is."""
    names = ("tenant_id", "model_id", "replica_id", "epoch", "sequence")
    return tuple(line[name] for name in names)


def copies_agree(evidence: Mapping[str, list[Line]]) -> None:
    """Whoever had a copy at one revision had the same one."""
    copies: dict[tuple[View, int], Line] = {}
    for line in evidence["copy"]:
        first = copies.setdefault((view_of(line), line["revision"]), line)
        assert first["digest"] == line["digest"], f"copies differ: {first} and {line}"


# ---- what was told, against the journal ------------------------------------------------------


async def stored(url: str, prefix: str) -> Stored:
    """Read a journal that no server has open."""
    journal = open_journal(url, JournalOptions(redis_prefix=prefix))
    await journal.start()
    try:
        snapshot = await journal.snapshot()
        base, parts = 0, []
        if snapshot is not None:
            base = snapshot.revision
            parts = [part async for batch in snapshot.batches for part in batch]
        whole = True
        try:
            records = [pair async for batch in journal.read(0) for pair in batch]
        except JournalMovedError:
            whole = False
            records = [pair async for batch in journal.read(base) for pair in batch]
        return Stored(journal.history_id, base, parts, records, whole)
    finally:
        await journal.close()


def restored(stored: Stored) -> PlainIndex:
    """The plain model of a snapshot."""
    plain = PlainIndex()
    plain.revision = stored.base
    for part in stored.parts:
        if isinstance(part, CacheEvent):
            plain._change(part)
    for part in stored.parts:
        if isinstance(part, ProducerState):
            name = (part.tenant_id, part.model_id, part.replica_id)
            plain.producers[name] = Numbering(
                part.epoch, part.sequence, part.resync_required, part.changed_revision
            )
        elif isinstance(part, LeaseState):
            plain.leases[part.tenant_id, part.replica_id] = (part.generation, part.ttl_ms)
    return plain


class Replayed(NamedTuple):
    """What came of a replay: how much could be held against it."""

    plain: PlainIndex
    copies: int
    answers: int


def replay(stored: Stored, evidence: Mapping[str, list[Line]]) -> Replayed:
    """Hold every copy and every answer against the journal's records."""
    plain = PlainIndex() if stored.whole else restored(stored)
    waiting = sorted(evidence["copy"], key=lambda line: line["revision"], reverse=True)
    first = stored.records[0][0] - 1 if stored.records else stored.base
    while waiting and waiting[-1]["revision"] < max(first, plain.revision):
        waiting.pop()
    verdicts: dict[int, tuple[Record, Verdict]] = {}
    copies = 0
    for revision, record in [*stored.records, (None, None)]:
        while waiting and (revision is None or waiting[-1]["revision"] < revision):
            same_copy(waiting.pop(), plain)
            copies += 1
        if revision is not None and record is not None:
            verdicts[revision] = (record, plain.apply(revision, record))
            if stored.whole and stored.parts and revision == stored.base:
                same_snapshot(restored(stored), plain)
    answers = same_answers(stored, verdicts, evidence["ack"], first)
    return Replayed(plain, copies, answers)


def same_copy(line: Line, plain: PlainIndex) -> None:
    """A copy has what the model had at its revision."""
    expected = lines_of(plain.entries, view_of(line))
    assert digest(expected) == line["digest"], (
        f"{line['by']}'s {line['of']} had something else than the journal at revision "
        f"{line['revision']} (the model is at {plain.revision})"
    )


def same_snapshot(found: PlainIndex, expected: PlainIndex) -> None:
    """A stored snapshot is the state at its revision, numbers and leases too."""
    assert found.entries == expected.entries
    assert found.leases == expected.leases
    known = {name: each for name, each in expected.producers.items() if each != Numbering()}
    assert {name: each for name, each in found.producers.items() if each != Numbering()} == known


def same_answers(
    stored: Stored,
    verdicts: Mapping[int, tuple[Record, Verdict]],
    acks: Iterable[Line],
    first: int,
) -> int:
    """What was acknowledged is in the journal, and came to what the answer said."""
    count = 0
    for line in acks:
        if line["history"] != stored.history_id or line["revision"] <= first:
            continue
        assert line["revision"] in verdicts, f"acknowledged and lost: {line}"
        record, verdict = verdicts[line["revision"]]
        assert isinstance(record, CacheEvent | UsedNumber), f"{line} is {record}"
        found = tuple(
            getattr(record, name)
            for name in ("tenant_id", "model_id", "replica_id", "epoch", "sequence")
        )
        assert found == number_of(line), f"{line} is {found}"
        assert verdict.outcome is Outcome[line["outcome"]], f"{line} should be {verdict}"
        count += 1
    return count


# ---- the truth -------------------------------------------------------------------------------


def truths(evidence: Mapping[str, list[Line]]) -> Counter[tuple[Any, ...]]:
    """What all producers hold in the end: (partition, key, replica, tier)."""
    last = {line["by"]: line["entries"] for line in evidence["truth"]}
    return Counter(tuple(entry) for entries in last.values() for entry in entries)


def holds_of(content: Mapping[Any, Any]) -> Counter[tuple[Any, ...]]:
    """The same of some content."""
    return Counter(
        (*place.key, place.content_hash.hex(), hold.replica_id, int(hold.tier))
        for place, (holds, *_) in content.items()
        for hold in holds
    )
