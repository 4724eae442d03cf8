"""Search over the wire: arms, limits, odd queries, and what is refused."""

from __future__ import annotations

import math

import grpc
import numpy as np
import pytest
from support.bad_requests import BadRequest, assert_refused, bad_partitions
from support.messages import MODEL, block, block_of, event, key, partition, publish_request
from support.server import ServerHere, fault_of
from warmindex.event import PartitionKey
from warmindex.v1 import event_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub

TOOLS = {
    1: ("open_issue", "file a bug report"),
    2: ("send_mail", "write a letter to somebody"),
    3: ("fetch-url", "get a page from the web"),
    4: ("spec_38.101", "read the radio specification"),
}
VECTORS = {1: [1.0, 0.0, 0.0], 2: [0.0, 1.0, 0.0], 3: [0.0, 0.0, 1.0], 4: [1.0, 1.0, 0.0]}
HERE = PartitionKey("", MODEL, "text-sha256", "")


def request(adapter: str = "", **fields: object) -> pb.SearchRequest:
    return pb.SearchRequest(partition=partition(adapter), **fields)


async def fill(server: ServerHere) -> None:
    """Four tools, by meaning and by words."""
    message = event(
        content_hashes=[key(number) for number in TOOLS],
        embeddings=block(*VECTORS.values()),
        documents=[event_pb2.Document(name=n, description=d) for n, d in TOOLS.values()],
    )
    await server.stub.PublishEvent(publish_request(message))


def names(answer: pb.SearchResponse) -> list[str]:
    return [hit.document.name for hit in answer.hits]


# ---- what is answered --------------------------------------------------------------------


async def test_by_words(server):
    """Without a vector the words decide: a score, a BM25 score, and no distance."""
    await fill(server)
    answer = await server.stub.Search(request(query_text="report a bug"))
    assert names(answer)[0] == "open_issue"
    (hit, *_) = answer.hits
    assert hit.document.description == "file a bug report"
    assert hit.content_hash == key(1)
    assert 0 < hit.score <= 1
    assert hit.HasField("lexical_score")
    assert not hit.HasField("distance")
    assert answer.revision == server.store.revision


async def test_by_meaning(server):
    """Without words the vector decides: a distance, and no BM25 score."""
    await fill(server)
    answer = await server.stub.Search(request(query_embedding=block([0.0, 2.0, 0.0])))
    assert names(answer)[:2] == ["send_mail", "spec_38.101"]
    first, second = answer.hits[:2]
    assert first.distance == pytest.approx(0, abs=1e-6)
    assert second.distance == pytest.approx(1 - math.sqrt(0.5), abs=1e-6)
    assert not first.HasField("lexical_score")


async def test_by_both(server):
    """Each arm brings up its own, and one entry has both scores."""
    await fill(server)
    answer = await server.stub.Search(
        request(query_embedding=block([0.0, 1.0, 0.0]), query_text="mail", keywords=["url"])
    )
    assert names(answer)[0] == "send_mail"
    assert "fetch-url" in names(answer)
    assert answer.hits[0].HasField("lexical_score")
    assert answer.hits[0].HasField("distance")


async def test_the_same_question_has_the_same_answer(server):
    """Byte for byte, and ties go by content hash."""
    hashes = [key(number) for number in (9, 3, 7, 1)]
    same = [event_pb2.Document(name="tool", description="the same")] * 4
    message = event(content_hashes=hashes, embeddings=block(*[[1.0, 1.0]] * 4), documents=same)
    await server.stub.PublishEvent(publish_request(message))
    asked = request(query_embedding=block([1.0, 2.0]), query_text="tool")
    answers = [await server.stub.Search(asked) for _ in range(3)]
    assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1
    assert [hit.content_hash for hit in answers[0].hits] == sorted(hashes)


async def test_an_empty_document_and_none_are_found_by_meaning(server):
    """A hit without a document has none, rather than an empty one."""
    message = event(content_hashes=[key(1), key(2)], embeddings=block([1.0], [2.0]))
    await server.stub.PublishEvent(publish_request(message))
    answer = await server.stub.Search(request(query_embedding=block([1.0])))
    assert len(answer.hits) == 2
    assert not any(hit.HasField("document") for hit in answer.hits)


async def test_allowed_limits_the_answer(server):
    """Unset is the whole partition; set but empty is nothing; unknown keys are nobody's."""
    await fill(server)
    asked = request(query_embedding=block([1.0, 1.0, 1.0]), query_text="a")
    assert len((await server.stub.Search(asked)).hits) == 4
    asked.allowed.content_hashes.extend([key(2), key(3), key(99), key(2)])
    assert sorted(names(await server.stub.Search(asked))) == ["fetch-url", "send_mail"]
    del asked.allowed.content_hashes[:]
    assert asked.HasField("allowed")
    assert names(await server.stub.Search(asked)) == []


async def test_limit_is_eight_where_it_is_not_said(server):
    """0 means 8, and 1000 is a fine limit."""
    hashes = [key(number) for number in range(20)]
    message = event(content_hashes=hashes, embeddings=block_of(20, 2))
    await server.stub.PublishEvent(publish_request(message))
    for limit, count in ((0, 8), (1, 1), (20, 20), (1000, 20)):
        asked = request(query_embedding=block([1.0, 1.0]), limit=limit)
        assert len((await server.stub.Search(asked)).hits) == count


async def test_max_distance_drops_what_is_far(server):
    """1 where unset, so nothing on the other side; 2 takes everything; 0 only the same."""
    message = event(
        content_hashes=[key(1), key(2), key(3)],
        embeddings=block([1.0, 0.0], [-1.0, 0.1], [2.0, 1.0]),
    )
    await server.stub.PublishEvent(publish_request(message))
    counts = []
    for max_distance in (None, 2.0, 0.2, 0.0):
        asked = request(query_embedding=block([1.0, 0.0]), max_distance=max_distance)
        counts.append(len((await server.stub.Search(asked)).hits))
    assert counts == [2, 3, 2, 1]


async def test_an_empty_index_has_no_hits(server):
    """No partition, and one without documents or vectors, are no errors."""
    asked = request(query_text="anything", query_embedding=block([1.0]))
    assert names(await server.stub.Search(asked)) == []
    await server.stub.PublishEvent(publish_request(event()))
    assert names(await server.stub.Search(asked)) == []


ODD_QUERIES = [
    "fetch-url",
    "https: body",
    "don't",
    '"unbalanced',
    "C++",
    "*",
    "AND",
    "pull AND",
    "NOT pull",
    "NEAR(a b)",
    "(pull",
    "pull^2",
    "name:pull",
    "{name description}: x",
    "38.101",
    "grammar::fa",
    "pull\0request",
    "\0",
    "   ",
    "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}",
    "\N{RIGHT-TO-LEFT OVERRIDE}abc\N{POP DIRECTIONAL FORMATTING}",
    "e\N{COMBINING ACUTE ACCENT}tude",
    "搜索文件",
    "'; drop table words; --",
    "a " * 32768,
    "x" * 65536,
    "\ufeff\ufffe\U0010ffff",
]


@pytest.mark.parametrize("query", ODD_QUERIES, ids=lambda query: repr(query[:20]))
async def test_an_odd_query_is_words_and_nothing_else(server, query: str):
    """No syntax, no error; as text, as a keyword, and both."""
    await fill(server)
    for fields in ({"query_text": query}, {"keywords": [query]}):
        answer = await server.stub.Search(request(**fields))
        for hit in answer.hits:
            assert 0 <= hit.score <= 1
            assert math.isfinite(hit.lexical_score)


async def test_odd_names_are_found_by_their_names(server):
    """Hyphens, dots and NUL neither hide a document nor cut a query."""
    await fill(server)
    for query, name in (
        ("fetch-url", "fetch-url"),
        ("38.101", "spec_38.101"),
        ("zzz\0mail", "send_mail"),
        ('"mail" OR', "send_mail"),
    ):
        answer = await server.stub.Search(request(query_text=query, limit=1))
        assert names(answer) == [name]
    # A column's name is a word, not a filter.
    assert names(await server.stub.Search(request(query_text="description:mail")))[0] == "send_mail"


async def test_a_thousand_long_documents_fit_an_answer(server):
    """Hits stay whole where their documents would be too much for a client's 4 MiB."""
    text = "tool " + "x" * 60_000
    for start in range(0, 120, 40):
        hashes = [key(number) for number in range(start, start + 40)]
        message = event(
            content_hashes=hashes,
            documents=[event_pb2.Document(name=f"tool {n}", description=text) for n in range(40)],
        )
        await server.stub.PublishEvent(publish_request(message))
    async with grpc.aio.insecure_channel(server.address) as channel:
        answer = await IndexServiceStub(channel).Search(request(query_text="tool", limit=1000))
    assert len(answer.hits) == 120
    shown = [hit.HasField("document") for hit in answer.hits]
    assert shown == sorted(shown, reverse=True)
    assert 40 <= sum(shown) < 120


async def test_the_client_speaks_numpy(server):
    """One row in, typed hits out."""
    await fill(server)
    hits = await server.client.search(
        HERE, embedding=np.array([1, 0, 0], np.float32), text="bug", limit=2, allowed={key(1)}
    )
    assert [hit.document.name for hit in hits] == ["open_issue"]
    assert hits[0].distance == pytest.approx(0, abs=1e-6)
    assert hits[0].lexical_score is not None
    assert await server.client.search(HERE, text="bug", allowed=[]) == []


# ---- what is refused ---------------------------------------------------------------------


def words(**fields: object) -> pb.SearchRequest:
    return request(**{"query_text": "mail", **fields})


BAD = [
    *bad_partitions(lambda place: pb.SearchRequest(partition=place, query_text="mail")),
    BadRequest("no query", request(), "FIELD_REQUIRED", "query_text", ("query_embedding",)),
    BadRequest(
        "an empty text", request(query_text=""), "FIELD_REQUIRED", "query_text", ("keywords",)
    ),
    *(
        BadRequest(f"text of {letter!r}", request(query_text=letter * count + "x"),
                   "FIELD_TOO_LONG", "query_text", ("65536", "cut it"))
        for letter, count in (("x", 65536), ("é", 32768), ("語", 21845 + 1))
    ),
    BadRequest("100 kB of a", request(query_text="a " * 50_000), "FIELD_TOO_LONG", "query_text"),
    BadRequest("too many keywords", request(keywords=["a"] * 257), "TOO_MANY", "keywords",
               ("256",)),
    BadRequest("long keywords", request(keywords=["é" * 16384] * 2 + ["x"]), "FIELD_TOO_LONG",
               "keywords", ("65536",)),
    BadRequest("too many allowed",
               words(allowed=pb.ContentSet(content_hashes=[key(1)] * 16385)), "TOO_MANY",
               "allowed.content_hashes", ("16384",)),
    BadRequest("allowed of 48 bytes", words(allowed=pb.ContentSet(content_hashes=[bytes(48)])),
               "HASH_LENGTH", "allowed.content_hashes", ("base64",)),
    *(
        BadRequest(f"limit {limit}", words(limit=limit), "OUT_OF_RANGE", "limit", ("0 to 1000",))
        for limit in (1001, 3000, 10**9, 2**32 - 1)
    ),
    *(
        BadRequest(f"max_distance {far}", words(max_distance=far), "OUT_OF_RANGE",
                   "max_distance", ("0 to 2",))
        for far in (-0.001, 2.001, math.inf, -math.inf, math.nan)
    ),
    BadRequest("another width", request(query_embedding=block([1.0, 2.0])),
               "DIMENSIONS_MISMATCH", "query_embedding.dimensions", ("is 2", "have 3")),
    BadRequest("another width beside words", words(query_embedding=block([1.0] * 4)),
               "DIMENSIONS_MISMATCH", "query_embedding.dimensions"),
    BadRequest("two rows", request(query_embedding=block_of(2, 3)), "EMBEDDING_SHAPE",
               "query_embedding.values"),
    *(
        BadRequest(f"values of {length} bytes",
                   request(query_embedding=event_pb2.EmbeddingBlock(dimensions=3,
                                                                    values=bytes(length))),
                   "EMBEDDING_SHAPE", "query_embedding.values", ("12",))
        for length in (0, 11, 13)
    ),
    *(
        BadRequest(f"{dimensions} dimensions",
                   request(query_embedding=event_pb2.EmbeddingBlock(dimensions=dimensions)),
                   "OUT_OF_RANGE", "query_embedding.dimensions", ("1 to 8192",))
        for dimensions in (0, 8193)
    ),
    *(
        BadRequest(f"a query of {row}", request(query_embedding=block(row)), "EMBEDDING_VALUE",
                   "query_embedding.values")
        for row in ([0.0] * 3, [math.nan, 1.0, 1.0], [1.0, math.inf, 1.0])
    ),
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=str)
async def test_a_bad_request_is_refused(server, bad: BadRequest):
    """It is told what is wrong, where, and what to do."""
    await fill(server)
    await assert_refused(server, "Search", bad)


@pytest.mark.parametrize(
    "fields",
    [
        {"query_text": "é" * 32768},
        {"keywords": ["a"] * 256},
        {"keywords": ["x" * 65536]},
        {"limit": 1000},
        {"max_distance": 0.0},
        {"max_distance": 2.0},
        {"allowed": pb.ContentSet(content_hashes=[key(1)] * 16384)},
    ],
    ids="-".join,
)
async def test_a_limit_itself_is_allowed(server, fields):
    """Whatever is just as long or as many as it may be is taken."""
    await fill(server)
    await server.stub.Search(words(**fields))


async def test_a_revision_that_never_comes_is_unavailable(server, monkeypatch):
    """A search that is ahead of the server is told to try again."""
    monkeypatch.setattr("warmindex.limits.MIN_REVISION_WAIT_S", 0.02)
    fault = await fault_of(server.stub.Search(words(min_revision=2**63)))
    assert (fault.status, fault.field) == ("UNAVAILABLE", "min_revision")
    assert fault.reason == "ERROR_REASON_REVISION_NOT_REACHED"
