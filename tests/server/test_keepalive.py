"""Quiet streams: a client that pings is not thrown out, and what comes next is answered."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from support.messages import event, key
from support.server import ServerHere
from warmindex.channels import KEEPALIVE_MS
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub
from warmindex_server.app import PING_INTERVAL_MS_MIN

PING_MS = 10_000
# A server with gRPC's defaults hangs up at the third ping that comes too early.
QUIET_S = 4 * PING_MS / 1000 + 5


def pinging(server: ServerHere, interval_ms: int) -> grpc.aio.Channel:
    """A connection that pings, with and without calls, as clients behind load balancers do."""
    options = [
        ("grpc.keepalive_time_ms", interval_ms),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.aio.insecure_channel(server.address, options)


def test_our_own_client_pings_no_more_often_than_the_server_takes():
    """The two constants stand in different packages and belong together."""
    assert KEEPALIVE_MS > PING_INTERVAL_MS_MIN
    assert PING_INTERVAL_MS_MIN <= 10_000


async def publish(call: grpc.aio.StreamStreamCall, number: int) -> int:
    """Publish over an open stream; the outcome."""
    await call.write(pb.PublishEventsRequest(events=[event(content_hashes=[key(number)])]))
    (result,) = (await call.read()).results
    return result.outcome


async def quiet_stream(server: ServerHere) -> None:
    """A stream that says nothing for a while but pings is still there, and is answered."""
    async with pinging(server, PING_MS) as channel:
        call = IndexServiceStub(channel).PublishEvents()
        assert await publish(call, 1) == pb.EventResult.OUTCOME_APPLIED
        await asyncio.sleep(QUIET_S)
        assert await publish(call, 2) == pb.EventResult.OUTCOME_APPLIED


async def quiet_connection(server: ServerHere) -> None:
    """A connection without calls has not been lost meanwhile, and takes the next call."""
    async with pinging(server, PING_MS) as channel:
        stub = IndexServiceStub(channel)
        await stub.GetServerInfo(pb.GetServerInfoRequest())
        await asyncio.sleep(QUIET_S)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        await stub.GetServerInfo(pb.GetServerInfoRequest())


async def flood(server: ServerHere) -> None:
    """One ping a second is taken for an attack: the others do not live for want of pings."""
    async with pinging(server, 1_000) as channel:
        call = IndexServiceStub(channel).PublishEvents()
        await publish(call, 3)
        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert "ping" in await call.details()


@pytest.mark.slow
async def test_pings_are_taken(server):
    """For longer, at one each 10 s, than a server with gRPC's defaults takes them."""
    await asyncio.gather(quiet_stream(server), quiet_connection(server), flood(server))
