"""GetEmbeddings and ReleaseClaims: vectors by content hash, and claims on the absent ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from warmindex import limits
from warmindex.errors import (
    InvalidError,
    Reason,
    RevisionNotReachedError,
    UnavailableError,
    out_of_range,
    required,
)
from warmindex.event import PartitionKey, check_hash_lengths
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import seconds_from_wire

from warmindex_server.claims.base import Claimant, Claims, Standing
from warmindex_server.rpc.assembly import embeddings_response
from warmindex_server.rpc.partitions import partition_of

if TYPE_CHECKING:
    from warmindex.index.partition import Fetched

    from warmindex_server.store import Store

State: TypeAlias = pb.GetEmbeddingsResponse.State.ValueType

FOUND: Final = pb.GetEmbeddingsResponse.STATE_FOUND
DEFERRED: Final = pb.GetEmbeddingsResponse.STATE_DEFERRED
# What to say of a key without a vector.
STATES: Final[dict[Standing, State]] = {
    Standing.NOBODY: pb.GetEmbeddingsResponse.STATE_ABSENT,
    Standing.OTHERS: pb.GetEmbeddingsResponse.STATE_PENDING,
    Standing.MINE: pb.GetEmbeddingsResponse.STATE_CLAIMED,
}
# A claim that has lost more than this of its time before the answer is renewed.
CATCH_UP_SHARE_MAX: Final = 0.1
# Without a limit of the caller's own, all keys of a call may be claimed.
CLAIMS_PER_CALL_MAX: Final = limits.CONTENT_HASHES_MAX


class Asked(NamedTuple):
    """A request, checked. `wait_s` is None where the caller has not set it."""

    key: PartitionKey
    hashes: Sequence[bytes]
    bytes_max: int
    claimant: Claimant | None
    wait_s: float | None


async def get_embeddings(store: Store, claims: Claims, request: pb.GetEmbeddingsRequest) -> bytes:
    """The vectors that a partition has, as many as fit; who computes what it has not.

    The answer is given as its bytes.
    """
    asked = _asked(request)
    until_s = time.monotonic() + (asked.wait_s or 0.0)
    if request.min_revision > store.revision:
        allowed_s = limits.MIN_REVISION_WAIT_S if asked.wait_s is None else asked.wait_s
        await store.wait_for_revision(request.min_revision, allowed_s)
    fetched = store.index.fetch(asked.key, asked.hashes, asked.bytes_max)
    if all(fetched.found):
        return _answer(store, fetched, asked.hashes, {})
    with claims.waiting(asked.key, wants=asked.claimant is not None) as waiting:
        standings = await _stand(store, claims, asked)
        worth_it = True
        while worth_it and (pending := _waits_for(standings)):
            worth_it = await waiting.change(pending, until_s - time.monotonic())
            standings = await _stand(store, claims, asked)
    fetched = store.index.fetch(asked.key, asked.hashes, asked.bytes_max)
    return _answer(store, fetched, asked.hashes, standings)


async def _stand(store: Store, claims: Claims, asked: Asked) -> dict[bytes, Standing]:
    """Who computes what is absent now; claims what falls to the caller."""
    absent = _absent(store, asked.key, asked.hashes)
    if not absent:
        return {}
    taken = await claims.take(asked.key, absent, asked.claimant)
    standings = dict(zip(absent, taken.standings, strict=True))
    if not taken.revision:
        return standings
    given_up = _of_caller(standings)
    try:
        if asked.claimant is not None and set(taken.standings) != {Standing.OTHERS}:
            standings |= await _catch_up(store, claims, asked, given_up, taken.revision)
        # What another server has published meanwhile needs no claim, and nobody waits for it.
        left = set(_absent(store, asked.key, absent))
        standings = {each: standings[each] for each in absent if each in left}
        given_up = [each for each in given_up if standings.get(each) is not Standing.MINE]
    finally:
        # Where this fails, the caller never hears of what it has.
        if given_up and asked.claimant is not None:
            with suppress(UnavailableError):
                await claims.release(asked.key, given_up, asked.claimant.claimant_id)
    return standings


async def _catch_up(
    store: Store, claims: Claims, asked: Asked, mine: Sequence[bytes], revision: int
) -> dict[bytes, Standing]:
    """Wait until this server is as far as the claims were; what has changed of the caller's."""
    began_s = time.monotonic()
    try:
        await store.wait_for_revision(revision, limits.MIN_REVISION_WAIT_S)
    except RevisionNotReachedError:
        # It may be there already, or not: that is to compute without a claim.
        return dict.fromkeys(mine, Standing.NOBODY)
    assert asked.claimant is not None  # noqa: S101 - who catches up has asked for claims
    if time.monotonic() - began_s < asked.claimant.ttl_s * CATCH_UP_SHARE_MAX or not mine:
        return {}
    # The claim's time begins with the answer.
    taken = await claims.take(asked.key, mine, asked.claimant)
    return dict(zip(mine, taken.standings, strict=True))


def _of_caller(standings: Mapping[bytes, Standing]) -> list[bytes]:
    return [each for each, standing in standings.items() if standing is Standing.MINE]


def _absent(store: Store, key: PartitionKey, hashes: Sequence[bytes]) -> list[bytes]:
    """The keys without a vector, each once, in order."""
    found = store.index.fetch(key, hashes, 0).found
    return list(dict.fromkeys(compress(hashes, map(not_, found))))


def _waits_for(standings: Mapping[bytes, Standing]) -> list[bytes]:
    """The keys to wait for: those that others compute, where nothing is the caller's to do."""
    if Standing.MINE in standings.values():
        return []
    return [each for each, standing in standings.items() if standing is Standing.OTHERS]


async def release_claims(
    claims: Claims, request: pb.ReleaseClaimsRequest
) -> pb.ReleaseClaimsResponse:
    """End claims of the caller whose content will not be published."""
    key = partition_of(request.partition)
    if not request.claimant_id:
        raise required("claimant_id", "only the caller that holds a claim gives it up")
    _check_claimant_id(request.claimant_id)
    hashes = list(dict.fromkeys(request.content_hashes))
    check_hashes(request.content_hashes, key.hash_scheme)
    released = await claims.release(key, hashes, request.claimant_id)
    return pb.ReleaseClaimsResponse(released=released)


def _answer(
    store: Store, fetched: Fetched, hashes: Sequence[bytes], standings: Mapping[bytes, Standing]
) -> bytes:
    return embeddings_response(
        _states(fetched, hashes, standings),
        fetched.dimensions,
        fetched.pieces,
        store.revision,
        store.history_id,
    )


def _states(
    fetched: Fetched, hashes: Sequence[bytes], standings: Mapping[bytes, Standing]
) -> bytes:
    """What to say of each hash, a byte each: vectors that did not fit are there, but deferred."""
    left = fetched.rows
    if left == len(hashes):
        return bytes((FOUND,)) * left
    states = bytearray()
    for content_hash, found in zip(hashes, fetched.found, strict=True):
        if not found:
            states.append(STATES[standings.get(content_hash, Standing.NOBODY)])
        elif left:
            states.append(FOUND)
            left -= 1
        else:
            states.append(DEFERRED)
    return bytes(states)


def check_hashes(
    hashes: Sequence[bytes],
    scheme: str,
    name: str = "content_hashes",
    most: int = limits.CONTENT_HASHES_MAX,
) -> None:
    """Raise InvalidError for too many hashes, or for one of a length that is not its scheme's."""
    if len(hashes) > most:
        raise InvalidError(
            f"{name} has {len(hashes)} hashes; at most {most} go into one call: split it",
            field=name,
            reason=Reason.TOO_MANY,
        )
    if hashes:
        check_hash_lengths(hashes, scheme, name)


def _bytes_max(asked: int) -> int:
    if asked > limits.GET_BYTES_MAX:
        raise out_of_range("max_bytes", asked, f"0 to {limits.GET_BYTES_MAX}")
    return asked or limits.GET_BYTES_DEFAULT


def _asked(request: pb.GetEmbeddingsRequest) -> Asked:
    key = partition_of(request.partition)
    hashes = list(request.content_hashes)
    check_hashes(hashes, key.hash_scheme)
    wait_s = None
    if request.HasField("wait"):
        wait_s = seconds_from_wire(request.wait, "wait", minimum_s=0.0, maximum_s=limits.WAIT_S_MAX)
    return Asked(key, hashes, _bytes_max(request.max_bytes), _claimant(request), wait_s)


def _claimant(request: pb.GetEmbeddingsRequest) -> Claimant | None:
    if not request.claimant_id:
        return None
    _check_claimant_id(request.claimant_id)
    ttl_s = limits.CLAIM_TTL_S_DEFAULT
    if request.HasField("claim_ttl"):
        ttl_s = seconds_from_wire(
            request.claim_ttl, "claim_ttl", minimum_s=1e-9, maximum_s=limits.CLAIM_TTL_S_MAX
        )
    return Claimant(request.claimant_id, ttl_s, request.max_claims or CLAIMS_PER_CALL_MAX)


def _check_claimant_id(claimant_id: str) -> None:
    if len(claimant_id.encode()) > limits.CLAIMANT_ID_BYTES_MAX:
        raise InvalidError(
            f"claimant_id is longer than {limits.CLAIMANT_ID_BYTES_MAX} bytes: use a random "
            "name, a UUID for instance",
            field="claimant_id",
            reason=Reason.FIELD_TOO_LONG,
        )
