"""What a sidecar has seen and done, as plain numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the start. Events are counted once each, whatever number of blocks they name;
    what is not indexed of blocks that an engine says one by one, as the run that they are.

    `entries_published` and `entries_evicted` count content hashes; all else counts frames,
    batches or engine events. An event that is "not indexed" has at least one block that got
    no key of the chain.
    """

    # Frames and batches.
    frames: int = 0
    frames_malformed: int = 0
    frames_other_topic: int = 0
    batches_undecodable: int = 0

    # Engine events.
    stored: int = 0
    removed: int = 0
    cleared: int = 0
    malformed: int = 0
    unknown: int = 0

    # BlockStored that are not indexed under the chain, by reason.
    orphan: int = 0  # the parent was never seen
    orphan_of_unindexed: int = 0  # the parent was seen and not indexed
    unaligned: int = 0  # tokens and hashes do not match
    placeholder: int = 0  # no tokens, block size 0
    partial: int = 0  # shorter than a block of its chain
    bigram: int = 0  # pairs in place of tokens
    salted: int = 0
    multimodal: int = 0
    prompt_embeddings: int = 0
    extra_keys_unknown: int = 0
    unmapped: int = 0  # the adapter has a number and no name
    copies_exhausted: int = 0  # more mediums and groups than any engine has
    medium_unknown: int = 0  # indexed, as remote

    # Order and loss.
    duplicates: int = 0
    gaps: int = 0
    gaps_filled: int = 0
    restarts: int = 0
    clears: int = 0  # of a whole publisher, after loss
    replays: int = 0
    replays_failed: int = 0
    replay_holes: int = 0
    disconnects: int = 0

    # What left.
    reports: int = 0
    entries_published: int = 0
    entries_evicted: int = 0

    def add(self, name: str) -> None:
        """Count one more of the named."""
        setattr(self, name, getattr(self, name) + 1)

    def as_dict(self) -> dict[str, int]:
        """All of them by name."""
        return asdict(self)

    def seen(self) -> dict[str, int]:
        """Those above zero, for a line of the log."""
        return {name: value for name, value in asdict(self).items() if value}
