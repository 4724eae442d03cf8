"""The longest prefix: which replicas hold the beginning of a prompt, and how far.

A replica's run is the number of blocks, from the first one on, that it holds in any tier. A
hole ends the run, whatever comes behind it. The chain is looked up in slices that grow, so
that a miss at the front costs nothing; neighbouring blocks are nearly always held alike, so
the replicas of a mask are worked out once for each stretch of equal masks.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from warmindex.event import PartitionKey, Tier
from warmindex.hashing import chain_block_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from warmindex.index.holders import Holders
    from warmindex.index.index import Index
    from warmindex.index.partition import Partition
    from warmindex.index.scope import Scope

# The first slice covers a short prompt; the next ones double.
SLICE_BLOCKS_FIRST: Final = 64


class Reason(IntEnum):
    """Why the answer is what it is. The numbers are the contract's."""

    PREFIX_MATCH = 1
    NO_MATCH = 2
    UNKNOWN_TENANT = 3
    UNKNOWN_MODEL = 4
    UNKNOWN_HASH_SCHEME = 5


class Match(NamedTuple):
    """One replica's run; `tier` is the farthest, over the run, of each block's nearest."""

    replica_id: str
    blocks: int
    tokens: int
    tier: Tier


class Route(NamedTuple):
    """The answer to a lookup: matches are ranked, longest run first."""

    matches: Sequence[Match]
    reason: Reason
    replicas_in_scope: int


def lookup(
    index: Index,
    key: PartitionKey,
    chains: Mapping[str, Sequence[bytes]],
    *,
    limit: int = 0,
    replica_ids: Collection[str] = (),
) -> Route:
    """Rank the replicas that hold the beginning of a prompt in one adapter's partitions.

    `chains` gives the prompt's block hashes under each hash scheme to look in; `key`'s own
    scheme is not used. A replica's longest run counts: in tokens, then in blocks. `limit` 0
    returns all; `replica_ids`, where not empty, limits the answer to these.
    """
    model = index.models.get((key.tenant_id, key.model_id))
    if model is None or model.holders.empty:
        known = any(True for _ in index.models_of(key.tenant_id))
        return Route((), Reason.UNKNOWN_MODEL if known else Reason.UNKNOWN_TENANT, 0)
    scopes = {
        scheme: scope
        for scheme in chains
        if (scope := model.schemes.get(scheme)) is not None and scope.holds
    }
    if not scopes:
        return Route((), Reason.UNKNOWN_HASH_SCHEME, 0)
    best: dict[str, Match] = {}
    for scheme, scope in scopes.items():
        partition = scope.partitions.get(key.adapter_id)
        if partition is None:
            continue
        for match in _runs(partition, model.holders, chains[scheme], scheme, replica_ids):
            other = best.get(match.replica_id)
            if other is None or (match.tokens, match.blocks) > (other.tokens, other.blocks):
                best[match.replica_id] = match
    by_tokens = len(chains) > 1
    ranked = sorted(
        best.values(),
        key=lambda m: (-m.tokens if by_tokens else -m.blocks, -m.blocks, m.tier, m.replica_id),
    )
    return Route(
        ranked[:limit] if limit else ranked,
        Reason.PREFIX_MATCH if ranked else Reason.NO_MATCH,
        _replicas_in(scopes.values(), model.holders),
    )


def _replicas_in(scopes: Collection[Scope], holders: Holders) -> int:
    names = [scope.replicas(holders) for scope in scopes]
    return len(names[0]) if len(names) == 1 else len(frozenset().union(*names))


def _runs(
    partition: Partition,
    holders: Holders,
    chain: Sequence[bytes],
    scheme: str,
    replica_ids: Collection[str],
) -> Iterable[Match]:
    eligible = holders.live
    if replica_ids:
        eligible = 0
        for replica_id in replica_ids:
            eligible |= holders.bits_of(replica_id)
    block_size = chain_block_size(scheme)
    for replica_id, (blocks, tier) in _walk(partition, holders, chain, eligible).items():
        tokens = block_size * blocks if block_size else partition.tokens.total(chain[:blocks])
        yield Match(replica_id, blocks, tokens, tier)


def _walk(
    partition: Partition, holders: Holders, chain: Sequence[bytes], eligible: int
) -> dict[str, tuple[int, Tier]]:
    """Each replica's run in blocks, and the farthest of its blocks' nearest tiers."""
    ended: dict[str, tuple[int, Tier]] = {}
    running: dict[str, Tier] | None = None
    length = 0
    known: dict[int, dict[str, Tier]] = {}
    for mask, blocks in _stretches(partition, chain):
        nearest = known.get(mask)
        if nearest is None:
            nearest = known[mask] = _nearest_tiers(holders, mask & eligible)
        if running is None:
            running = dict(nearest)
        else:
            for replica_id in running.keys() - nearest.keys():
                ended[replica_id] = (length, running.pop(replica_id))
            for replica_id, tier in running.items():
                running[replica_id] = max(tier, nearest[replica_id])
        if not running:
            break
        length += blocks
    for replica_id, tier in (running or {}).items():
        ended[replica_id] = (length, tier)
    return ended


def _stretches(partition: Partition, chain: Sequence[bytes]) -> Iterable[tuple[int, int]]:
    """Stretches of neighbouring blocks with equal masks; ends at the first that nobody has."""
    get = partition.entries.get
    start, size = 0, SLICE_BLOCKS_FIRST
    while start < len(chain):
        masks = list(map(get, chain[start : start + size]))
        # Nearly always all of a slice are held alike, and counting them is the quicker way.
        alike = masks.count(masks[0]) == len(masks)
        for mask, count in [(masks[0], len(masks))] if alike else _grouped(masks):
            if mask is None:
                return
            yield mask, count
        start += size
        size *= 2


def _grouped(masks: Sequence[int | None]) -> Iterable[tuple[int | None, int]]:
    return ((mask, len(list(same))) for mask, same in groupby(masks))


def _nearest_tiers(holders: Holders, mask: int) -> dict[str, Tier]:
    nearest: dict[str, Tier] = {}
    for replica_id, tier in holders.names_in(mask):
        known = nearest.get(replica_id)
        if known is None or tier < known:
            nearest[replica_id] = tier
    return nearest
