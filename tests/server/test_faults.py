"""Errors on their way: from the server's own tree to a status, and back into the client's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc
import pytest
from support.messages import event, publish_request
from support.server import fault, fault_of
from warmindex import errors
from warmindex.client import IndexClient
from warmindex.errors import Reason, WarmindexError
from warmindex.v1 import error_reason_pb2
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceServicer, IndexServiceStub
from warmindex_server.access.gate import Gate
from warmindex_server.rpc.calls import handlers_of
from warmindex_server.rpc.service import IndexService
from warmindex_server.rpc.traffic import Traffic


def tree(kind: type[WarmindexError] = WarmindexError) -> Iterator[type[WarmindexError]]:
    """Every kind of error that the package defines and that travels."""
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each
            yield from tree(each)


class Failing(IndexServiceServicer):
    """Fails every call it has, with what it is told."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def GetServerInfo(self, *_):  # noqa: N802 - the contract's name
        raise self.error

    async def PublishEvents(self, requests, _):  # noqa: N802 - the contract's name
        async for _ in requests:
            yield pb.PublishEventsResponse(history_id="before")
            raise self.error


@asynccontextmanager
async def failing_server(error: Exception) -> AsyncIterator[str]:
    """A gRPC server whose calls fail; its address."""
    server = grpc.aio.server()
    handlers = handlers_of(Failing(error), IndexService.DESCRIPTOR, Traffic(), Gate())
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def sent(error: Exception):
    """An error as a caller sees it, without a client of ours."""
    async with failing_server(error) as address, grpc.aio.insecure_channel(address) as channel:
        return await fault_of(IndexServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest()))


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
async def test_every_error_has_its_status_and_comes_back_as_itself(kind: type[WarmindexError]):
    """Kind, reason, field and message survive the wire."""
    error = kind("what is wrong, and what to do", field="some.field")
    found = await sent(error)
    assert found.status == kind.status
    assert found.message == "what is wrong, and what to do"
    assert (found.field, found.description) == ("some.field", found.message)
    async with failing_server(error) as address, IndexClient(address) as client:
        with pytest.raises(kind) as back:
            await client.server_info()
    assert type(back.value) is kind
    assert back.value.reason is error.reason
    assert back.value.field == "some.field"


@pytest.mark.parametrize("reason", [each for each in Reason if each], ids=str)
async def test_every_reason_is_the_contracts(reason: Reason):
    """The name of the reason is that of the contract's enum, under the contract's domain."""
    found = await sent(errors.InvalidError("x", reason=reason))
    assert found.domain == "warmindex.v1"
    assert error_reason_pb2.ErrorReason.Value(found.reason) == int(reason)


def test_no_reason_of_the_contract_is_missing():
    """The domain's enum has the contract's names and numbers, all of them."""
    contract = {
        name.removeprefix("ERROR_REASON_"): number
        for name, number in error_reason_pb2.ErrorReason.items()
    }
    assert contract == {reason.name: int(reason) for reason in Reason}


async def test_an_error_without_a_reason_sends_none():
    """ERROR_REASON_UNSPECIFIED is never sent, and no field where none is at fault."""
    found = await sent(errors.NotBuiltError("not here"))
    assert (found.status, found.reason, found.domain, found.field) == ("UNIMPLEMENTED", "", "", "")


async def test_who_may_try_again_is_told_when():
    """UNAVAILABLE carries a delay; what is no use to repeat carries none."""
    for kind in tree():
        found = await sent(kind("x"))
        assert bool(found.retry_after_s) == (found.status == "UNAVAILABLE")


async def test_a_very_long_message_arrives_cut():
    """Details travel in a trailer, and a peer drops those over 8 KiB with all they say."""
    for text in ("x" * 100_000, "\N{GRINNING FACE}" * 100_000):
        found = await sent(errors.InvalidError(text, field="f" * 100, reason=Reason.CONFLICT))
        assert found.status == "INVALID_ARGUMENT"
        assert found.reason == "ERROR_REASON_CONFLICT"
        assert found.message
        assert text.startswith(found.message)


async def test_a_stream_ends_with_the_status_after_what_it_has_said():
    """Answers given before an error arrive before it."""
    async with (
        failing_server(errors.ShuttingDownError("going")) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        call = IndexServiceStub(channel).PublishEvents(iter([pb.PublishEventsRequest()]))
        assert (await call.read()).history_id == "before"
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await call.read()
    found = fault(error.value)
    assert (found.status, found.reason) == ("UNAVAILABLE", "ERROR_REASON_SHUTTING_DOWN")


async def test_a_call_that_nobody_knows_is_unimplemented(server):
    """An unknown method says so, and the connection lives on."""
    call = server.channel.unary_unary("/warmindex.v1.IndexService/DoMagic")
    assert (await fault_of(call(b""))).status == "UNIMPLEMENTED"
    await server.stub.PublishEvent(publish_request(event()))


@pytest.mark.parametrize("method", list(IndexService.DESCRIPTOR.methods_by_name))
async def test_bytes_that_are_no_message_are_an_invalid_argument(server, method: str):
    """Of every call: corrupt bytes, and text that is not UTF-8."""
    call = server.channel.stream_stream(f"/{IndexService.NAME}/{method}")
    for raw in (b"\xff\xff\xff", b"\x0a", b"\x0a\x7f", b"\x0b"):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            async for _ in call(iter([raw])):
                pass
        found = fault(error.value)
        assert found.status == "INVALID_ARGUMENT"
        assert "UTF-8" in found.message
