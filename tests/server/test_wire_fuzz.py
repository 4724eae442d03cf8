"""Whatever bytes a client sends, to whatever call: a proper answer, and a server that lives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st
from support.any_message import messages, spoilt
from support.messages import block, documents, event, key, partition
from support.server import ServerProcess, server_process
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.rpc.service import IndexService

METHODS = list(IndexService.DESCRIPTOR.methods_by_name)
# A call that waits for what never comes (a watch, a revision) is left at this.
DEADLINE_S = 2.0

# What a call may end with, whatever it was sent. Not INTERNAL, and not UNKNOWN.
PROPER = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,  # a report of an older epoch
    grpc.StatusCode.ABORTED,  # a report that was overtaken
    grpc.StatusCode.UNAVAILABLE,  # a revision that is not reached
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,  # by this test, which has seen enough of a stream
}

# What must be found as it was, whatever has been sent meanwhile.
KEPT = {"tenant_id": "kept-1f4e", "adapter_id": "kept-8a2c"}
VECTORS = block([1.0, 0.5], [0.25, -1.0])
kept_event = event(
    **KEPT,
    content_hashes=[key(1), key(2)],
    embeddings=VECTORS,
    documents=documents("open_issue", "send_mail"),
)
kept_partition = partition(**KEPT)

GOOD: dict[str, list[Any]] = {
    "PublishEvent": [
        pb.PublishEventRequest(
            event=event(
                content_hashes=[key(1), key(2)],
                embeddings=VECTORS,
                documents=documents("a", "b"),
                epoch=1,
                sequence=1,
                hash_scheme="text-sha256",
                adapter_id="sql-lora",
            )
        )
    ],
    "PublishEvents": [
        pb.PublishEventsRequest(
            events=[event(), event(type=2, adapter_scoped=True)],
            leases=[pb.ReplicaLease(replica_id="pod-1", ttl={"seconds": 60})],
        ),
        pb.PublishEventsRequest(events=[event(type=4)]),
    ],
    "ReportState": [
        pb.ReportStateRequest(header=pb.ReportStateHeader(replica_id="pod-1", model_id="acme/m1")),
        pb.ReportStateRequest(entries=event()),
        pb.ReportStateRequest(end=pb.ReportStateEnd(content_hashes=1)),
    ],
    "GetEmbeddings": [
        pb.GetEmbeddingsRequest(
            partition=partition(), content_hashes=[key(1)], claimant_id="me", max_bytes=9
        )
    ],
    "ReleaseClaims": [
        pb.ReleaseClaimsRequest(partition=partition(), claimant_id="me", content_hashes=[key(1)])
    ],
    "Search": [
        pb.SearchRequest(
            partition=partition(),
            query_embedding=block([1.0, 1.0]),
            query_text="open an issue",
            keywords=["mail"],
            allowed=pb.ContentSet(content_hashes=[key(1)]),
            limit=3,
            max_distance=0.5,
        )
    ],
    "LookupRoute": [
        pb.LookupRouteRequest(partition=partition(hash_scheme=""), token_ids=range(40)),
    ],
    "WatchEvents": [pb.WatchEventsRequest(model_id="acme/m1", adapter_ids=["", "sql-lora"])],
    "ListPartitions": [pb.ListPartitionsRequest(model_id="acme/m1", page_size=3)],
    "ListReplicas": [pb.ListReplicasRequest(page_size=3)],
    "GetEntry": [pb.GetEntryRequest(content_hash=key(1), page_size=3)],
    "GetServerInfo": [pb.GetServerInfoRequest()],
}


class Target:
    """A server that is sent anything, and must still know what it knew."""

    def __init__(self, process: ServerProcess) -> None:
        self.process = process
        self._channel = grpc.insecure_channel(process.address)

    def send(self, method: str, raws: Sequence[bytes]) -> None:
        """Send bytes to a call; how it ends must be proper, and what it answers a message."""
        described = IndexService.DESCRIPTOR.methods_by_name[method]
        response_class = GetMessageClass(described.output_type)
        call = self._channel.stream_stream(f"/{IndexService.NAME}/{method}")(
            iter(raws), timeout=DEADLINE_S
        )
        with suppress(grpc.RpcError):
            for answer in call:
                response_class.FromString(answer)
                if not described.client_streaming:
                    break
        call.cancel()
        assert call.code() in PROPER, f"{method} {raws}: {call.details()}"

    def keep(self) -> None:
        """Store what must be found again."""
        request = pb.PublishEventRequest(event=kept_event)
        self._ask("PublishEvent", request)

    def still_knows(self) -> None:
        """What was kept is found by its key, by meaning and by words, and nowhere else."""
        asked = pb.GetEmbeddingsRequest(partition=kept_partition, content_hashes=[key(2), key(1)])
        found = pb.GetEmbeddingsResponse.FromString(self._ask("GetEmbeddings", asked))
        assert list(found.states) == [pb.GetEmbeddingsResponse.STATE_FOUND] * 2
        assert found.embeddings.values == VECTORS.values[8:] + VECTORS.values[:8]
        for query in ({"query_text": "mail"}, {"query_embedding": block([0.25, -1.0])}):
            search = pb.SearchRequest(partition=kept_partition, **query)
            hits = pb.SearchResponse.FromString(self._ask("Search", search)).hits
            assert hits[0].document.name == "send_mail"
        entry = pb.GetEntryRequest(tenant_id=KEPT["tenant_id"], content_hash=key(1))
        entries = pb.GetEntryResponse.FromString(self._ask("GetEntry", entry)).entries
        assert [each.partition.adapter_id for each in entries] == [KEPT["adapter_id"]]

    def _ask(self, method: str, request: Any) -> bytes:
        call = self._channel.unary_unary(f"/{IndexService.NAME}/{method}")
        return call(request.SerializeToString(), timeout=30)

    def close(self) -> None:
        self._channel.close()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    """One server for all that is thrown at it; at the end it stops as it should."""
    with server_process("--log-level", "warning") as process:
        target = Target(process)
        target.keep()
        yield target
        target.still_knows()
        target.close()
        process.signal(15)
        assert process.wait() == 0
        assert "Traceback" not in process.log, process.log


@pytest.mark.parametrize("method", METHODS)
def test_random_bytes(target: Target, method: str):
    """Bytes of no meaning, one message or several."""

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.binary(max_size=64), min_size=1, max_size=3))
    def check(raws: list[bytes]) -> None:
        target.send(method, raws)

    check()
    target.still_knows()


@pytest.mark.parametrize("method", METHODS)
def test_spoilt_messages(target: Target, method: str):
    """Good messages with bits flipped, parts cut, left out, repeated or put in."""
    good = [message.SerializeToString() for message in GOOD[method]]

    @settings(max_examples=60, deadline=None)
    @given(st.tuples(*map(spoilt, good)), st.integers(0, len(good)))
    def check(bad: tuple[bytes, ...], first_bad: int) -> None:
        target.send(method, [*good[:first_bad], *bad[first_bad:]])

    check()
    target.still_knows()


@pytest.mark.parametrize("method", METHODS)
def test_any_message(target: Target, method: str):
    """Messages of the right kind, with fields set to anything at all."""
    kind = IndexService.DESCRIPTOR.methods_by_name[method].input_type

    @settings(max_examples=60, deadline=None)
    @given(st.lists(messages(kind), min_size=1, max_size=3))
    def check(sent: list[Any]) -> None:
        target.send(method, [message.SerializeToString() for message in sent])

    check()
    target.still_knows()


@pytest.mark.parametrize("method", METHODS)
def test_good_messages_are_good(target: Target, method: str):
    """What is spoilt above is no use to begin with unless the call takes it."""
    call = target._channel.stream_stream(f"/{IndexService.NAME}/{method}")
    answers = call((each.SerializeToString() for each in GOOD[method]), timeout=30)
    assert next(iter(answers)) is not None
    answers.cancel()
