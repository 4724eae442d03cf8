"""LookupRoute: who holds the beginning of a prompt."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from warmindex import limits
from warmindex.errors import InvalidError, Reason, required
from warmindex.hashing import chain_block_size, chain_hashes
from warmindex.index import route
from warmindex.v1 import index_service_pb2 as pb

from warmindex_server.rpc.fetch import check_hashes
from warmindex_server.rpc.partitions import partition_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmindex.event import PartitionKey
    from warmindex.v1.event_pb2 import CacheTier

    from warmindex_server.store import Store

# Hashing more tokens than this would hold the event loop for over a millisecond.
TOKENS_INLINE_MAX: Final = 32768


async def lookup_route(store: Store, request: pb.LookupRouteRequest) -> pb.LookupRouteResponse:
    """Validate, look up, translate."""
    every_chain = not request.partition.hash_scheme
    key = partition_of(request.partition)
    # As lists: every look into a message's own list makes its members anew.
    blocks, tokens = list(request.block_hashes), list(request.token_ids)
    replica_ids = list(request.replica_ids)
    _check(key, blocks, tokens, replica_ids, every_chain=every_chain)
    if request.min_revision > store.revision:
        await store.wait_for_revision(request.min_revision, limits.MIN_REVISION_WAIT_S)
    chains: Mapping[str, Sequence[bytes]]
    if blocks:
        chains = {key.hash_scheme: blocks}
    elif every_chain:
        chains = await _chains(store.index.chain_schemes(key), tokens)
    else:
        chains = await _chains([key.hash_scheme], tokens)
    found = route.lookup(store.index, key, chains, limit=request.limit, replica_ids=replica_ids)
    return pb.LookupRouteResponse(
        matches=[
            pb.LookupRouteResponse.ReplicaMatch(
                replica_id=match.replica_id,
                matched_blocks=match.blocks,
                # A run of large blocks can be longer than the field is wide.
                matched_tokens=min(match.tokens, limits.TOKEN_COUNT_MAX),
                tier=cast("CacheTier.ValueType", int(match.tier)),
            )
            for match in found.matches
        ],
        reason=cast("pb.LookupRouteResponse.Reason.ValueType", int(found.reason)),
        revision=store.revision,
        replicas_in_scope=found.replicas_in_scope,
    )


def _check(
    key: PartitionKey,
    blocks: Sequence[bytes],
    tokens: Sequence[int],
    replica_ids: Sequence[str],
    *,
    every_chain: bool,
) -> None:
    if blocks and tokens:
        raise InvalidError(
            "block_hashes and token_ids are both set: send the prompt in one form",
            field="block_hashes",
            reason=Reason.CONFLICT,
        )
    if not (blocks or tokens):
        raise required("block_hashes", "send the prompt's block hashes, or its token_ids")
    check_hashes(blocks, key.hash_scheme, "block_hashes", limits.BLOCK_HASHES_MAX)
    for name, count, most in (
        ("token_ids", len(tokens), limits.TOKEN_IDS_MAX),
        ("replica_ids", len(replica_ids), limits.ROUTE_REPLICAS_MAX),
    ):
        if count > most:
            raise InvalidError(
                f"{name} has {count} members; at most {most} go into one call: send fewer",
                field=name,
                reason=Reason.TOO_MANY,
            )
    if tokens and not every_chain and chain_block_size(key.hash_scheme) is None:
        raise InvalidError(
            f"partition.hash_scheme is {key.hash_scheme!r}, under which token_ids cannot be "
            "hashed: name xxh3-chain/N, or leave it empty for every such scheme of the model",
            field="partition.hash_scheme",
            reason=Reason.CONFLICT,
        )


async def _chains(schemes: Sequence[str], tokens: Sequence[int]) -> Mapping[str, Sequence[bytes]]:
    """The prompt's chain under each scheme."""
    if len(tokens) * len(schemes) > TOKENS_INLINE_MAX:
        return await asyncio.to_thread(_hash_all, schemes, tokens)
    return _hash_all(schemes, tokens)


def _hash_all(schemes: Sequence[str], tokens: Sequence[int]) -> Mapping[str, Sequence[bytes]]:
    return {
        scheme: chain_hashes(tokens, block_size)
        for scheme in schemes
        if (block_size := chain_block_size(scheme)) is not None
    }
