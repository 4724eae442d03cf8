"""Blocks said one by one -> runs of blocks, said at once.

Some engines say each block of a prompt by itself, each with the one before it as its parent.
Put together they cost a fifth, and mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from warmindex_subscriber.kv.decode import EngineEvent, Stored


def runs(events: Iterable[EngineEvent]) -> Iterator[list[EngineEvent]]:
    """The events in order; each with those behind it that go on from it and can be merged."""
    run: list[EngineEvent] = []
    for event in events:
        last = run[-1] if run else None
        if type(event) is Stored and type(last) is Stored and _goes_on(last, event):
            run.append(event)
            continue
        if run:
            yield run
        run = [event]
    if run:
        yield run


def merged(run: list[Stored]) -> Stored:
    """One event that says what a run of them says."""
    if len(run) == 1:
        return run[0]
    keys = list(chain.from_iterable(event.keys for event in run))
    tokens = list(chain.from_iterable(event.token_ids for event in run))
    return run[0]._replace(keys=keys, token_ids=tokens, plain_blocks=len(keys))


def _goes_on(last: Stored, event: Stored) -> bool:
    return (
        event.parent is not None
        and bool(last.keys)
        and event.parent == last.keys[-1]
        and event.block_size == last.block_size
        and event.lora_name == last.lora_name
        and event.lora_id == last.lora_id
        and event.medium == last.medium
        and event.group == last.group
        and event.locality == last.locality
        and event.taint is last.taint is None
        and len(event.token_ids) == len(event.keys) * event.block_size
        and len(last.token_ids) == len(last.keys) * last.block_size
    )
