"""The real grpcurl against a real server: reflection, JSON, base64 of both kinds."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf import json_format
from support.examples import json_values
from support.messages import MODEL, key
from support.tree import tool
from warmindex.v1 import index_service_pb2 as pb
from warmindex_server.rpc.service import IndexService

HASH = bytes(range(224, 256))
BASE64 = base64.b64encode(HASH).decode()
URL_SAFE = base64.urlsafe_b64encode(HASH).decode()
HEX = HASH.hex()
# The largest integer that a double holds exactly is one less.
TIMESTAMP_US = 9007199254740993


@dataclass(frozen=True)
class Ran:
    """What grpcurl did."""

    code: int
    output: str
    error: str

    @property
    def answer(self) -> Any:
        """The one JSON value that it printed."""
        (value,) = json_values(self.output)
        return value


async def run(server: Any, *arguments: str, data: Any = None) -> Ran:
    """Run grpcurl without proto files, only what the server reflects."""
    given = ["-d", data if isinstance(data, str) else json.dumps(data)] if data is not None else []
    process = await asyncio.create_subprocess_exec(
        tool("grpcurl"),
        "-plaintext",
        *given,
        server.address,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, error = await process.communicate()
    return Ran(process.returncode or 0, output.decode(), error.decode())


async def call(server: Any, method: str, data: Any) -> Ran:
    return await run(server, f"{IndexService.NAME}/{method}", data=data)


def event(**fields: Any) -> dict[str, Any]:
    given = {
        "type": "EMBEDDED",
        "replicaId": "pod-1",
        "modelId": MODEL,
        "contentHashes": [BASE64],
    }
    return {"event": {**given, **fields}}


async def test_the_server_tells_what_it_has(server):
    """`list` shows the services, `describe` the calls and the comments' subjects."""
    listed = await run(server, "list")
    assert set(listed.output.split()) == {
        IndexService.NAME,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    methods = (await run(server, "list", IndexService.NAME)).output.split()
    assert methods == sorted(
        f"{IndexService.NAME}.{method}" for method in IndexService.DESCRIPTOR.methods_by_name
    )
    described = (await run(server, "describe", "warmindex.v1.CacheEvent")).output
    for name in pb.PublishEventRequest().event.DESCRIPTOR.fields_by_name:
        assert name in described
    assert "reserved 3" in described


async def test_health_is_told_by_name(server):
    """As load balancers ask: overall, for the service, and for one that is not there."""
    for name in ("", IndexService.NAME):
        ran = await run(server, "grpc.health.v1.Health/Check", data={"service": name})
        assert ran.answer == {"status": "SERVING"}
    unknown = await run(server, "grpc.health.v1.Health/Check", data={"service": "nobody"})
    assert "NotFound" in unknown.error


async def test_bytes_are_base64(server):
    """A key comes in as base64 and goes out as the same base64."""
    published = await call(server, "PublishEvent", event())
    assert published.answer["result"]["outcome"] == "OUTCOME_APPLIED"
    (entry,) = await server.client.entries(HASH)
    assert entry.holds


async def test_bytes_may_be_base64_of_the_other_alphabet(server):
    """- and _ for + and / are the same key to protobuf's JSON; a client that cannot says so."""
    assert BASE64 != URL_SAFE
    request = json_format.ParseDict(event(contentHashes=[URL_SAFE]), pb.PublishEventRequest())
    assert list(request.event.content_hashes) == [HASH]
    ran = await call(server, "PublishEvent", event(contentHashes=[URL_SAFE]))
    assert ran.code == 0 or "base64" in ran.error
    keys = [key for place, key in server.state()[0]]
    assert set(keys) <= {HASH}


async def test_a_hex_digest_is_told_that_bytes_are_base64(server):
    """64 hex digits are valid base64 of 48 bytes: refused where the scheme is known."""
    publish = await call(server, "PublishEvent", event(contentHashes=[HEX]))
    asked = {"partition": {"modelId": MODEL}, "contentHashes": [HEX]}
    get = await call(server, "GetEmbeddings", asked)
    for ran in (publish, get):
        assert ran.code
        assert "InvalidArgument" in ran.error
        assert "48 bytes" in ran.error
        assert "base64" in ran.error
        assert "ERROR_REASON_HASH_LENGTH" in ran.error
    # GetEntry names no scheme: there it is simply a key that nobody has.
    entry = await call(server, "GetEntry", {"contentHash": HEX})
    assert entry.answer == {}


async def test_large_numbers_survive_exactly(server):
    """64-bit numbers are strings in JSON, both ways, and lose nothing."""
    numbers = {"timestampUs": str(TIMESTAMP_US), "epoch": str(2**64 - 1), "sequence": "1"}
    published = await call(server, "PublishEvent", event(**numbers))
    result = published.answer["result"]
    assert int(result["revision"]) == server.store.revision > 2**50
    fenced = await call(server, "PublishEvent", event(epoch=1, sequence=1))
    assert fenced.answer["result"]["currentEpoch"] == str(2**64 - 1)
    batch = server.store.journal.read(0)
    (_, record), *_ = [pair async for pairs in batch for pair in pairs]
    assert record.timestamp_us == TIMESTAMP_US


@pytest.mark.parametrize("kind", [0, 3, 9])
async def test_an_unknown_type_is_never_taken_for_another(server, kind: int):
    """A number that is not a type is refused, beside neighbours that apply."""
    await call(server, "PublishEvent", event())
    alone = await call(server, "PublishEvent", event(type=kind))
    assert "InvalidArgument" in alone.error
    assert "event.type" in alone.error
    neighbours = [event(contentHashes=[base64.b64encode(key(n)).decode()])["event"] for n in (1, 2)]
    batch = {"events": [neighbours[0], event(type=kind)["event"], neighbours[1]]}
    answer = (await call(server, "PublishEvents", batch)).answer
    assert [each["outcome"] for each in answer["results"]] == [
        "OUTCOME_APPLIED",
        "OUTCOME_REFUSED",
        "OUTCOME_APPLIED",
    ]
    assert answer["results"][1]["reason"] == "ERROR_REASON_VALUE_UNKNOWN"
    assert (await server.client.server_info()).entries == 3


async def test_an_unset_type_is_refused(server):
    """A client that forgets the type is told, and nothing is embedded or cleared."""
    await call(server, "PublishEvent", event())
    without = event()
    del without["event"]["type"]
    assert "InvalidArgument" in (await call(server, "PublishEvent", without)).error
    assert (await server.client.server_info()).entries == 1


async def test_an_unknown_name_of_a_type_never_leaves_the_client(server):
    """grpcurl itself refuses DEMOTED rather than sending 0."""
    ran = await call(server, "PublishEvent", event(type="DEMOTED"))
    assert ran.code
    assert "DEMOTED" in ran.error
    assert (await server.client.server_info()).entries == 0


async def test_an_unknown_field_never_leaves_the_client(server):
    """So does a field's name with a slip in it."""
    ran = await call(server, "PublishEvent", event(adapterid="sql-lora"))
    assert ran.code
    assert "adapterid" in ran.error


async def test_a_stream_is_several_values(server):
    """Messages of a stream are JSON values one after the other, and so are the answers."""
    data = " ".join(json.dumps({"events": [event()["event"]]}) for _ in range(3))
    ran = await call(server, "PublishEvents", data)
    outcomes = [answer["results"][0]["outcome"] for answer in json_values(ran.output)]
    assert outcomes == ["OUTCOME_APPLIED", "OUTCOME_UNCHANGED", "OUTCOME_UNCHANGED"]


async def test_answers_have_json_names(server):
    """contentHash and not content_hash, in every answer."""
    document = {"name": "open_issue", "description": "file a bug"}
    await call(server, "PublishEvent", event(documents=[document]))
    asked = {"partition": {"modelId": MODEL}, "queryText": "bug", "limit": 1}
    (hit,) = (await call(server, "Search", asked)).answer["hits"]
    assert hit["contentHash"] == BASE64
    assert hit["document"] == document
    assert hit["lexicalScore"] > 0
    info = (await call(server, "GetServerInfo", {})).answer
    assert info["historyId"]
    assert info["entries"] == "1"
