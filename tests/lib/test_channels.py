"""Connections: on to the next server where one cannot be reached, and errors in our own words."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc.aio import Metadata
from support.messages import MODEL, key
from support.server import running, until
from warmindex import errors
from warmindex.channels import Channels, Security, error_of
from warmindex.client import IndexClient
from warmindex.errors import InvalidError, Reason, UnavailableError, WarmindexError
from warmindex.event import CacheEvent, EventType, PartitionKey

HERE = PartitionKey("", MODEL, "text-sha256", "")
EVENT = CacheEvent(
    type=EventType.EMBEDDED, replica_id="pod-1", model_id=MODEL, content_hashes=[key(1)]
)


@pytest.fixture
def dead() -> Iterator[str]:
    """An address that refuses connections: taken, and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def mute() -> Iterator[str]:
    """An address that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


# ---- several servers ---------------------------------------------------------------------


async def test_the_first_server_is_asked_first(server, dead):
    """As long as it answers, the others are not so much as connected to."""
    async with IndexClient(f" {server.address} , {dead},") as client:
        for _ in range(3):
            await client.server_info()
        assert client.address == server.address


async def test_a_dead_server_is_passed_over(server, dead):
    """The next one answers the same call, and is asked first from then on."""
    async with IndexClient(f"{dead},{server.address}") as client:
        assert client.address == dead
        await client.publish(EVENT)
        assert client.address == server.address
        assert (await client.get_embeddings(HERE, [key(1)])).states


async def test_a_server_that_goes_away_is_left():
    """Calls go on at the one that is left; when that goes too, there is nobody."""
    async with (
        running() as first,
        running() as second,
        IndexClient(f"{first.address},{second.address}") as client,
    ):
        assert (await client.server_info()).history_id == first.store.history_id
        await first.server.stop()
        assert (await client.server_info()).history_id == second.store.history_id
        await second.server.stop()
        with pytest.raises(UnavailableError):
            await client.server_info()


async def test_a_server_that_says_nothing_is_left(server, mute):
    """After the call's time, not after gRPC's."""
    async with IndexClient(f"{mute},{server.address}", timeout_s=0.3) as client:
        assert (await client.server_info()).history_id == server.store.history_id


async def test_nobody_there_is_unavailable(dead, mute):
    """After each was tried once; the error says where, and what."""
    async with IndexClient(dead) as client:
        with pytest.raises(UnavailableError, match=f"cannot reach {dead}"):
            await client.server_info()
    async with IndexClient(mute, timeout_s=0.2) as client:
        with pytest.raises(UnavailableError, match=f"no answer in time from {mute}"):
            await client.server_info()


async def test_a_server_that_comes_back_is_found():
    """On the same connection, after a moment: nobody has to make a new client."""
    async with running() as before:
        address = before.address
    async with IndexClient(address) as client:
        with pytest.raises(UnavailableError):
            await client.server_info()
        async with running(listen=address) as server:
            while True:
                with suppress(UnavailableError):
                    assert (await client.server_info()).history_id == server.store.history_id
                    break
                await asyncio.sleep(0.02)


async def test_what_is_wrong_is_not_asked_elsewhere():
    """An invalid call would be invalid there, too."""
    async with (
        running() as first,
        running() as second,
        IndexClient(f"{first.address},{second.address}") as client,
    ):
        with pytest.raises(InvalidError):
            await client.search(HERE)
        assert client.address == first.address


async def test_what_one_server_has_not_reached_another_may_have():
    """A revision that is not there in time is asked for at the next server."""
    async with (
        running() as first,
        running() as second,
        IndexClient(f"{first.address},{second.address}") as client,
    ):
        ahead = (await second.client.publish(EVENT)).revision
        assert ahead > first.store.revision
        found = await client.get_embeddings(HERE, [key(1)], min_revision=ahead, wait_s=0.05)
        assert found.history_id == second.store.history_id


def test_many_that_fail_at_once_move_on_once():
    """Two callers that met the same dead server do not skip the one behind it."""
    channels = Channels("a:1,b:2,c:3")
    channels.move_on("a:1")
    channels.move_on("a:1")
    assert channels.address == "b:2"
    channels.move_on("b:2")
    channels.move_on("c:3")
    assert channels.address == "a:1"


@pytest.mark.parametrize("servers", ["", " ", ",", " , ,"])
def test_no_server_is_no_client(servers: str):
    """It is told what to give."""
    with pytest.raises(InvalidError, match="HOST:PORT"):
        Channels(servers)


# ---- cancelling and closing --------------------------------------------------------------


async def waiting_call(server, client: IndexClient) -> asyncio.Task:
    """A call that waits at the server."""
    ahead = server.store.revision + 1000
    task = asyncio.create_task(client.get_embeddings(HERE, [key(1)], min_revision=ahead, wait_s=30))
    await until(lambda: server.store._waiting)
    return task


async def test_a_caller_that_gives_up_is_cancelled(server):
    """Its task ends as cancelled tasks do, and the client goes on."""
    task = await waiting_call(server, server.client)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await server.client.server_info()


async def test_closing_ends_calls_with_an_error(server):
    """Whoever waits is told, rather than cancelled behind its back."""
    client = IndexClient(server.address)
    task = await waiting_call(server, client)
    await client.close()
    with pytest.raises(UnavailableError, match="closed"):
        await task


async def test_a_closed_client_stays_closed(server):
    """It opens no new connection, and may be closed again."""
    client = IndexClient(server.address)
    await client.server_info()
    await client.close()
    await client.close()
    with pytest.raises(UnavailableError, match="closed"):
        await client.server_info()


# ---- errors ------------------------------------------------------------------------------


def rpc_error(
    code: grpc.StatusCode, text: str, *details: object, status: int | None = None
) -> grpc.aio.AioRpcError:
    """An error as gRPC gives it; `status` is the one inside the details."""
    trailers = Metadata()
    if details:
        packed = []
        for detail in details:
            one = any_pb2.Any()
            one.Pack(detail)
            packed.append(one)
        rich = status_pb2.Status(code=status or code.value[0], message=text, details=packed)
        trailers.add("grpc-status-details-bin", rich.SerializeToString())
    return grpc.aio.AioRpcError(code, Metadata(), trailers, details=text)


def info(reason: str) -> error_details_pb2.ErrorInfo:
    return error_details_pb2.ErrorInfo(reason=reason, domain="warmindex.v1")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidError),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.FencedError),
        (grpc.StatusCode.ABORTED, errors.OvertakenError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.QuotaError),
        (grpc.StatusCode.UNIMPLEMENTED, errors.NotBuiltError),
        (grpc.StatusCode.UNAUTHENTICATED, errors.UnauthenticatedError),
        (grpc.StatusCode.PERMISSION_DENIED, errors.ForbiddenError),
        (grpc.StatusCode.UNAVAILABLE, errors.UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.UnavailableError),
        (grpc.StatusCode.CANCELLED, errors.UnavailableError),
        (grpc.StatusCode.INTERNAL, WarmindexError),
        (grpc.StatusCode.UNKNOWN, WarmindexError),
        (grpc.StatusCode.DATA_LOSS, WarmindexError),
    ],
    ids=str,
)
def test_every_status_is_one_of_our_errors(code: grpc.StatusCode, kind: type[WarmindexError]):
    """Without any details, as a proxy would send it."""
    found = error_of(rpc_error(code, "as it was"), "here:1")
    assert type(found) is kind
    assert found.message
    assert found.field == ""


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("REVISION_NOT_REACHED", errors.RevisionNotReachedError),
        ("JOURNAL_UNAVAILABLE", errors.JournalUnavailableError),
        ("SHUTTING_DOWN", errors.ShuttingDownError),
    ],
)
def test_a_reason_tells_the_kinds_of_unavailable_apart(reason: str, kind: type[WarmindexError]):
    """And the server's own words stay as they are."""
    error = rpc_error(grpc.StatusCode.UNAVAILABLE, "its words", info(f"ERROR_REASON_{reason}"))
    found = error_of(error)
    assert type(found) is kind
    assert (found.message, found.reason) == ("its words", Reason[reason])


@pytest.mark.parametrize("reason", ["ERROR_REASON_INVENTED_LATER", "OTHER", ""])
def test_a_reason_of_a_newer_server_is_none(reason: str):
    """The status decides then."""
    found = error_of(rpc_error(grpc.StatusCode.INVALID_ARGUMENT, "x", info(reason)))
    assert (type(found), found.reason) == (InvalidError, Reason.UNSPECIFIED)


def test_details_that_contradict_the_status_are_left():
    """A proxy that changed the status has not changed the details."""
    error = rpc_error(
        grpc.StatusCode.UNAVAILABLE,
        "x",
        info("ERROR_REASON_FIELD_REQUIRED"),
        status=code_pb2.INVALID_ARGUMENT,
    )
    assert type(error_of(error)) is UnavailableError


def test_details_that_cannot_be_read_are_left():
    """A trailer that was cut says nothing."""
    trailers = Metadata(("grpc-status-details-bin", b"\xff\xff\xff"))
    error = grpc.aio.AioRpcError(grpc.StatusCode.INVALID_ARGUMENT, Metadata(), trailers, "x")
    assert type(error_of(error)) is InvalidError


def test_a_message_that_is_too_large_is_the_callers_to_change():
    """gRPC says RESOURCE_EXHAUSTED, which is a quota elsewhere: later would be no better."""
    text = "SERVER: Received message larger than max (20971520 vs. 16777216)"
    found = error_of(rpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
    assert type(found) is InvalidError
    assert "less at once" in found.message


# ---- security ----------------------------------------------------------------------------


def test_a_connection_is_in_the_clear_unless_somebody_says_otherwise(tmp_path):
    """Any of the files means TLS."""
    assert Security().credentials() is None
    assert Security(tls=True).encrypted
    assert Security(ca_file=tmp_path / "ca.pem").encrypted
    assert Security(certificate_file=tmp_path / "me.pem").encrypted


def test_a_token_is_not_shown():
    """Not where settings are printed."""
    token = "a-token-of-somebody's"  # noqa: S105 - nobody's
    assert token not in repr(Security(token=token))
