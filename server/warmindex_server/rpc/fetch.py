"""GetEmbeddings: vectors by content hash, and claims on the absent ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmindex import limits
from warmindex.errors import InvalidError, Reason, out_of_range
from warmindex.event import check_hash_lengths
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import partition_from_wire, seconds_from_wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmindex.event import PartitionKey
    from warmindex.index.partition import Fetched

    from warmindex_server.store import Store

FOUND = pb.GetEmbeddingsResponse.STATE_FOUND
ABSENT = pb.GetEmbeddingsResponse.STATE_ABSENT
DEFERRED = pb.GetEmbeddingsResponse.STATE_DEFERRED


async def get_embeddings(
    store: Store, request: pb.GetEmbeddingsRequest
) -> pb.GetEmbeddingsResponse:
    """The vectors that a partition has, as many as fit."""
    key = partition_from_wire(request.partition)
    hashes = list(request.content_hashes)
    check_hashes(hashes, key.hash_scheme)
    bytes_max = _bytes_max(request.max_bytes)
    wait_s = _check_claims(request)
    if request.min_revision > store.revision:
        await store.wait_for_revision(request.min_revision, wait_s or limits.MIN_REVISION_WAIT_S)
    return _answer(store, key, hashes, bytes_max)


def _answer(
    store: Store, key: PartitionKey, hashes: Sequence[bytes], bytes_max: int
) -> pb.GetEmbeddingsResponse:
    fetched = store.index.fetch(key, hashes, bytes_max)
    response = pb.GetEmbeddingsResponse(
        states=_states(fetched), revision=store.revision, history_id=store.history_id
    )
    if fetched.rows:
        response.embeddings.dimensions = fetched.dimensions
        response.embeddings.values = fetched.values
    return response


def _states(fetched: Fetched) -> list[pb.GetEmbeddingsResponse.State.ValueType]:
    """What to say of each hash: the vectors that did not fit are there, but deferred."""
    left = fetched.rows
    states = []
    for found in fetched.found:
        if not found:
            states.append(ABSENT)
        elif left:
            states.append(FOUND)
            left -= 1
        else:
            states.append(DEFERRED)
    return states


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


def _check_claims(request: pb.GetEmbeddingsRequest) -> float:
    """Check what concerns claims and waiting; the wait in seconds."""
    if len(request.claimant_id.encode()) > limits.CLAIMANT_ID_BYTES_MAX:
        raise InvalidError(
            f"claimant_id is longer than {limits.CLAIMANT_ID_BYTES_MAX} bytes: use a random "
            "name, a UUID for instance",
            field="claimant_id",
            reason=Reason.FIELD_TOO_LONG,
        )
    if request.claimant_id and request.HasField("claim_ttl"):
        seconds_from_wire(
            request.claim_ttl, "claim_ttl", minimum_s=1e-9, maximum_s=limits.CLAIM_TTL_S_MAX
        )
    if not request.HasField("wait"):
        return 0.0
    return seconds_from_wire(request.wait, "wait", minimum_s=0.0, maximum_s=limits.WAIT_S_MAX)
