"""Search: rank a partition's documents by meaning, by words, or by both."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from warmindex import limits
from warmindex.errors import InvalidError, Reason, out_of_range, required
from warmindex.event import check_vectors
from warmindex.index.index import Query
from warmindex.v1 import index_service_pb2 as pb
from warmindex.wire import document_to_wire, rows_from_wire

from warmindex_server.rpc.fetch import check_hashes
from warmindex_server.rpc.partitions import partition_of

# One step: indexing a document takes about 50 µs.
ABSORB_DOCUMENTS: Final = 40

if TYPE_CHECKING:
    from warmindex.event import PartitionKey
    from warmindex.index.search import Hit, SearchOptions
    from warmindex.v1 import event_pb2

    from warmindex_server.store import Store


async def search(
    store: Store, request: pb.SearchRequest, options: SearchOptions
) -> pb.SearchResponse:
    """Validate, search, translate."""
    key = partition_of(request.partition)
    query = query_from_wire(request, key)
    if request.min_revision > store.revision:
        await store.wait_for_revision(request.min_revision, limits.MIN_REVISION_WAIT_S)
    if query.has_words:
        await _absorb_words(store, key)
    hits = store.index.search(key, query, options)
    documents = _documents(store, key, hits)
    return pb.SearchResponse(
        hits=[_hit_to_wire(hit, document) for hit, document in zip(hits, documents, strict=True)],
        revision=store.revision,
    )


async def _absorb_words(store: Store, key: PartitionKey) -> None:
    """Index the words of what has been published since the last search, a few at a time."""
    partition = store.index.partition(key)
    while partition is not None and partition.words().absorb(ABSORB_DOCUMENTS):
        await store.give_way()
        partition = store.index.partition(key)


def query_from_wire(request: pb.SearchRequest, key: PartitionKey) -> Query:
    """The query of a request; InvalidError where it breaks the contract."""
    if not (request.HasField("query_embedding") or request.query_text or request.keywords):
        raise required(
            "query_text", "give at least one of query_embedding, query_text and keywords"
        )
    embedding = None
    if request.HasField("query_embedding"):
        rows = rows_from_wire(request.query_embedding, 1, "query_embedding")
        check_vectors(rows, "query_embedding.values")
        embedding = rows[0]
    _check_words(request)
    allowed = None
    if request.HasField("allowed"):
        hashes = list(request.allowed.content_hashes)
        check_hashes(hashes, key.hash_scheme, "allowed.content_hashes", limits.ALLOWED_MAX)
        allowed = frozenset(hashes)
    if request.limit > limits.SEARCH_LIMIT_MAX:
        raise out_of_range("limit", request.limit, f"0 to {limits.SEARCH_LIMIT_MAX}")
    max_distance = request.max_distance if request.HasField("max_distance") else 1.0
    if not (math.isfinite(max_distance) and 0 <= max_distance <= limits.DISTANCE_MAX):
        raise out_of_range("max_distance", max_distance, f"0 to {limits.DISTANCE_MAX:g}")
    return Query(
        embedding=embedding,
        text=request.query_text,
        keywords=tuple(request.keywords),
        allowed=allowed,
        limit=request.limit or limits.SEARCH_LIMIT_DEFAULT,
        max_distance=max_distance,
    )


def _check_words(request: pb.SearchRequest) -> None:
    if len(request.keywords) > limits.KEYWORDS_MAX:
        raise InvalidError(
            f"keywords has {len(request.keywords)} words; at most {limits.KEYWORDS_MAX}",
            field="keywords",
            reason=Reason.TOO_MANY,
        )
    lengths = {
        "query_text": len(request.query_text.encode()),
        "keywords": sum(len(word.encode()) for word in request.keywords),
    }
    for field, length in lengths.items():
        if length > limits.QUERY_TEXT_BYTES_MAX:
            raise InvalidError(
                f"{field} has {length} bytes; at most {limits.QUERY_TEXT_BYTES_MAX} are "
                "allowed: cut it",
                field=field,
                reason=Reason.FIELD_TOO_LONG,
            )


def _documents(store: Store, key: PartitionKey, hits: list[Hit]) -> list[event_pb2.Document | None]:
    """The hits' texts, best first, as many as fit; a hit stays where its text does not."""
    partition = store.index.partition(key)
    if partition is None:
        return [None] * len(hits)
    documents: list[event_pb2.Document | None] = []
    room = limits.ANSWER_TEXT_BYTES_MAX
    for hit in hits:
        document = partition.documents.get(hit.content_hash)
        message = document_to_wire(document) if document and room > 0 else None
        room -= message.ByteSize() if message else 0
        documents.append(message if room >= 0 else None)
    return documents


def _hit_to_wire(hit: Hit, document: event_pb2.Document | None) -> pb.SearchResponse.Hit:
    return pb.SearchResponse.Hit(
        content_hash=hit.content_hash,
        document=document,
        score=hit.score,
        distance=hit.distance,
        lexical_score=hit.lexical_score,
    )
