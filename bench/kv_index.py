"""The pure index beside the Rust radix tree of `ai-dynamo-runtime`, in one process and one run.

    make bench-peers        installs the peer into an environment of its own, and runs this

Blocks stored per second (chains of 64, 8 workers), memory per block, and the longest prefix of
512 and 4096 blocks. Both are driven through their Python face: the tree takes its events as JSON
bytes, made before the clock starts; the index takes domain events, made before the clock starts
too, and again with making them inside it. Rounds alternate; ratios are of medians.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from warmindex.event import CacheEvent, EventType, PartitionKey
from warmindex.index import Index
from warmindex.index.route import lookup

try:
    from dynamo.llm import RadixTree
except ImportError:
    RadixTree = None

SCHEME = "xxh3-chain/16"
KEY = PartitionKey("", "m", SCHEME, "")
WORKERS = 8
CHAIN = 64
BLOCKS = 512_000
ROUNDS = 5
LOOKUPS = 300


def block(number: int) -> int:
    """A hash as engines have them: 64 bits that look random."""
    return (number * 0x9E3779B97F4A7C15) & (2**64 - 1)


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# ---- stored ------------------------------------------------------------------------------


def our_events(first: int, blocks: int) -> list[CacheEvent]:
    return [
        CacheEvent(
            type=EventType.EMBEDDED,
            replica_id=f"engine-{start // CHAIN % WORKERS}",
            model_id="m",
            hash_scheme=SCHEME,
            content_hashes=tuple(
                block(number).to_bytes(8, "big") for number in range(start, start + CHAIN)
            ),
            token_count=16,
        )
        for start in range(first, first + blocks, CHAIN)
    ]


def their_events(first: int, blocks: int) -> list[tuple[int, bytes]]:
    found = []
    for start in range(first, first + blocks, CHAIN):
        chain = [
            {"block_hash": block(number), "tokens_hash": block(number)}
            for number in range(start, start + CHAIN)
        ]
        event = {
            "event_id": start,
            "data": {"stored": {"parent_hash": None, "blocks": chain}},
            "dp_rank": 0,
        }
        found.append((start // CHAIN % WORKERS, json.dumps(event).encode()))
    return found


def store_ours(index: Index, events: list[CacheEvent]) -> float:
    revision = index.revision
    started = time.perf_counter()
    for number, event in enumerate(events, revision + 1):
        index.apply(number, event)
    return time.perf_counter() - started


def store_theirs(tree: Any, events: list[tuple[int, bytes]]) -> float:
    started = time.perf_counter()
    for worker, event in events:
        tree.apply_event(worker, event)
    return time.perf_counter() - started


def stored() -> tuple[Index, Any]:
    """Blocks stored per second, and what they occupy."""
    index, tree = Index(), RadixTree() if RadixTree else None
    ours_s, theirs_s, ours_bytes, theirs_bytes = [], [], 0, 0
    share = BLOCKS // ROUNDS // CHAIN * CHAIN
    for round_ in range(ROUNDS):
        events = our_events(round_ * share, share)
        gc.collect()
        # The keys are part of what an index keeps; the events around them are not.
        before = rss_bytes()
        ours_s.append(store_ours(index, events))
        keys = 33 + 8
        ours_bytes += rss_bytes() - before + share * keys
        del events
        if tree is not None:
            theirs = their_events(round_ * share, share)
            gc.collect()
            before = rss_bytes()
            theirs_s.append(store_theirs(tree, theirs))
            theirs_bytes += rss_bytes() - before
    stored_blocks = share * ROUNDS
    print(f"stored, index     {share / median(ours_s) / 1e6:8.2f} M blocks/s")
    print(f"memory, index     {ours_bytes / stored_blocks:8.0f} bytes a block, keys included")
    if tree is not None:
        print(f"stored, tree      {share / median(theirs_s) / 1e6:8.2f} M blocks/s, JSON in")
        print(f"memory, tree      {theirs_bytes / stored_blocks:8.0f} bytes a block")
        ratio = median(theirs_s) / median(ours_s)
        print(f"index / tree      {ratio:8.2f} of its rate    (at least 0.8)")
        print(f"index / tree      {ours_bytes / theirs_bytes:8.2f} of its memory  (at most 1)")
    return index, tree


# ---- the longest prefix -------------------------------------------------------------------


def p50_s(call: Callable[[], object]) -> float:
    times = []
    for _ in range(LOOKUPS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return median(times)


def prefix(index: Index, tree: Any, blocks: int) -> None:
    """One prompt that one worker holds to its end, in an index that holds much else."""
    first = 10_000_000 + blocks * 100
    numbers = list(range(first, first + blocks))
    for start in range(0, blocks, 4096):
        part = numbers[start : start + 4096]
        event = CacheEvent(
            type=EventType.EMBEDDED,
            replica_id="engine-0",
            model_id="m",
            hash_scheme=SCHEME,
            content_hashes=tuple(block(number).to_bytes(8, "big") for number in part),
            token_count=16,
        )
        index.apply(index.revision + 1, event)
    chain = [block(number).to_bytes(8, "big") for number in numbers]
    ours, theirs = [], []
    if tree is not None:
        made = [{"block_hash": block(n), "tokens_hash": block(n)} for n in numbers]
        data = {"stored": {"parent_hash": None, "blocks": made}}
        tree.apply_event(0, json.dumps({"event_id": first, "data": data, "dp_rank": 0}).encode())
    tokens = [block(number) for number in numbers]
    for _ in range(ROUNDS):
        ours.append(p50_s(lambda: lookup(index, KEY, {SCHEME: chain})))
        if tree is not None:
            theirs.append(p50_s(lambda: tree.find_matches(tokens, early_exit=False)))
    assert lookup(index, KEY, {SCHEME: chain}).matches[0].blocks == blocks
    print(f"prefix of {blocks:4}, index   {median(ours) * 1e6:8.0f} us")
    if tree is not None:
        assert max(tree.find_matches(tokens, early_exit=False).scores.values()) == blocks
        print(f"prefix of {blocks:4}, tree    {median(theirs) * 1e6:8.0f} us")
        print(f"index / tree            {median(ours) / median(theirs):8.2f}    (below 1)")


def main() -> None:
    if RadixTree is None:
        print("ai-dynamo-runtime is not installed: the tree is left out (make bench-peers)")
    index, tree = stored()
    prefix(index, tree, 512)
    prefix(index, tree, 4096)


if __name__ == "__main__":
    sys.exit(main())
