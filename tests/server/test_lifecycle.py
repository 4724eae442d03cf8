"""How a server starts, says how it is, and ends."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Iterator, Sequence

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.messages import event, key, publish_request
from support.server import (
    ServerHere,
    ServerProcess,
    fault,
    fault_of,
    run_server,
    running,
    server_process,
    until,
)
from warmindex import __version__
from warmindex.errors import ShuttingDownError, UnavailableError
from warmindex.record import Record
from warmindex.v1 import index_service_pb2 as pb
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub
from warmindex_server.journal.memory import MemoryJournal
from warmindex_server.rpc.service import IndexService

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
# Longer than any test waits: what sits out the grace fails.
LONG_GRACE = ("--grace", "600")
EVERYWHERE = "0.0.0.0:0"


@pytest.fixture
def process() -> Iterator[ServerProcess]:
    """A server as a process, listening."""
    with server_process(*LONG_GRACE) as process:
        yield process


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


# ---- start -------------------------------------------------------------------------------


def test_it_says_where_it_listens_and_nothing_else(process: ServerProcess):
    """One line on stdout, when calls are answered; logs are on stderr."""
    with grpc.insecure_channel(process.address) as channel:
        info = IndexServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=30)
    assert info.version == __version__
    assert process.address == f"127.0.0.1:{process.port}"
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert process.rest_of_output() == ""
    assert "serving memory" in process.log
    assert "Traceback" not in process.log


@pytest.mark.parametrize("flag", ["--listen", "--http-listen"])
def test_a_taken_port_stops_the_start(taken_port: int, flag: str):
    """Exit code 1, and one clear line: which address, and which option changes it."""
    ended = run_server(flag, f"127.0.0.1:{taken_port}")
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if "warmindex-server:" in line]
    for words in (f"127.0.0.1:{taken_port}", "taken", flag):
        assert words in line


def test_no_second_server_shares_the_port(process: ServerProcess):
    """It would take half of the calls to an index of its own; the first one goes on."""
    ended = run_server("--listen", process.address)
    assert ended.returncode == 1
    assert "taken" in ended.stderr
    with grpc.insecure_channel(process.address) as channel:
        IndexServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=30)


def test_the_port_is_free_again_at_once(process: ServerProcess):
    """A restart on the same port needs no pause."""
    with grpc.insecure_channel(process.address) as channel:
        IndexServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=30)
    process.signal(signal.SIGTERM)
    process.wait()
    with server_process("--listen", process.address) as again:
        assert again.address == process.address


@pytest.mark.parametrize("flag", ["--listen", "--http-listen"])
def test_others_cannot_reach_it_by_accident(flag: str):
    """Beyond loopback only with --insecure."""
    ended = run_server(
        flag, "0.0.0.0:0", "--listen" if flag != "--listen" else "--http-listen", "127.0.0.1:0"
    )
    assert ended.returncode == 1
    assert flag in ended.stderr
    assert "--insecure" in ended.stderr
    with server_process(flag, EVERYWHERE, "--insecure") as process:
        assert process.port


@pytest.mark.parametrize("journal", ["nonsense", "nonsense://x", ""])
def test_an_unknown_journal_stops_the_start(journal: str):
    """Exit code 1, naming what there is."""
    ended = run_server("--journal", journal)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "sqlite:///" in ended.stderr


def test_it_listens_on_ipv6_too():
    """With brackets, as in a URL."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server_process("--listen", "[::1]:0") as process:
        assert process.address.startswith("[::1]:")
        with grpc.insecure_channel(process.address) as channel:
            IndexServiceStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=30)


# ---- how it is ---------------------------------------------------------------------------


async def test_health_by_name(server):
    """Overall and for the service; a name that nobody has is not found."""
    stub = health_pb2_grpc.HealthStub(server.channel)
    for name in ("", IndexService.NAME):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await stub.Check(health_pb2.HealthCheckRequest(service="nobody"))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_http_says_alive_and_ready(server):
    """/healthz while the process lives, /readyz while it serves."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.server.http_port}") as http:
        alive, ready = await http.get("/healthz"), await http.get("/readyz")
        assert (alive.status_code, ready.status_code) == (200, 200)
        assert ready.json() == {"ready": True, "state": "serving"}
        assert (await http.get("/nothing")).status_code == 404
        server.server._state = "replaying"
        ready = await http.get("/readyz")
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert (await http.get("/healthz")).status_code == 200
        server.server._state = "serving"


# ---- end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well(process: ServerProcess, number: int):
    """Exit code 0, without sitting out the grace, although clients are connected."""
    with grpc.insecure_channel(process.address) as channel:
        stub = IndexServiceStub(channel)
        stub.PublishEvent(publish_request(event()), timeout=30)
        process.signal(number)
        assert process.wait() == 0


def test_open_streams_are_told_and_end(process: ServerProcess):
    """What an idle stream has sent is answered; then it ends, and the server does not wait."""
    with grpc.insecure_channel(process.address) as channel:
        ended = threading.Event()

        def requests() -> Iterator[pb.PublishEventsRequest]:
            yield pb.PublishEventsRequest(events=[event()])
            # The stream stays open: the client has more to say, but not now.
            ended.wait()

        call = IndexServiceStub(channel).PublishEvents(requests())
        assert next(call).results[0].outcome == pb.EventResult.OUTCOME_APPLIED
        process.signal(signal.SIGTERM)
        with pytest.raises(grpc.RpcError) as error:
            next(call)
        ended.set()
        found = fault(error.value)
        assert (found.status, found.reason) == ("UNAVAILABLE", "ERROR_REASON_SHUTTING_DOWN")
        assert found.retry_after_s
        assert process.wait() == 0


def test_watchers_of_health_are_told_and_let_go(process: ServerProcess):
    """A load balancer's open Watch sees NOT_SERVING, and does not hold the end up."""
    with grpc.insecure_channel(process.address) as channel:
        call = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=IndexService.NAME)
        )
        assert next(call).status == SERVING
        process.signal(signal.SIGTERM)
        assert next(call).status == NOT_SERVING
        assert process.wait() == 0


def test_an_open_reflection_does_not_hold_the_end_up(process: ServerProcess):
    """Tools keep it open between questions."""
    with grpc.insecure_channel(process.address) as channel:
        ended = threading.Event()

        def requests() -> Iterator[bytes]:
            yield b"\x3a\x00"
            ended.wait()

        path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        call = channel.stream_stream(path)(requests())
        assert IndexService.NAME.encode() in next(call)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        ended.set()


class Gated(MemoryJournal):
    """A journal that takes its time: it appends when it is let."""

    immediate = False

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def append(self, records: Sequence[Record]) -> Sequence[int]:
        self.asked.set()
        await self.gate.wait()
        return await super().append(records)


@pytest.fixture
def gated(monkeypatch) -> Gated:
    """The journal of the next server that starts."""
    journal = Gated()
    monkeypatch.setattr("warmindex_server.app.open_journal", lambda *_: journal)
    return journal


async def test_a_publish_under_way_is_answered(gated: Gated):
    """Before that /readyz and health send new calls elsewhere; the end waits for the answer."""
    async with running(grace_s=600) as server:
        health = health_pb2_grpc.HealthStub(server.channel)
        publishes = [server.stub.PublishEvent(publish_request(event())) for _ in range(3)]
        await gated.asked.wait()
        stopping = asyncio.create_task(server.server.stop())
        await until(lambda: server.server._state == "closing")
        async with httpx.AsyncClient() as http:
            ready = await http.get(f"http://127.0.0.1:{server.server.http_port}/readyz")
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "state": "closing"})
        answer = await health.Check(health_pb2.HealthCheckRequest(service=IndexService.NAME))
        assert answer.status == NOT_SERVING
        assert not stopping.done()
        gated.gate.set()
        outcomes = [(await each).result.outcome for each in publishes]
        await stopping
    applied, unchanged = pb.EventResult.OUTCOME_APPLIED, pb.EventResult.OUTCOME_UNCHANGED
    assert sorted(outcomes) == [applied, unchanged, unchanged]


async def test_who_comes_late_is_sent_elsewhere(gated: Gated):
    """A call that begins while the last ones are answered is told UNAVAILABLE, and when to ask."""
    async with running(grace_s=600) as server:
        publish = server.stub.PublishEvent(publish_request(event()))
        await gated.asked.wait()
        stopping = asyncio.create_task(server.server.stop())
        traffic = server.server._service.traffic
        await until(lambda: traffic._refusing)
        late = await fault_of(server.stub.GetServerInfo(pb.GetServerInfoRequest()))
        assert (late.status, late.reason) == ("UNAVAILABLE", "ERROR_REASON_SHUTTING_DOWN")
        assert late.retry_after_s
        gated.gate.set()
        await publish
        await stopping


async def test_calls_that_have_arrived_are_answered():
    """Hundreds that wait for their turn when the end begins get it."""
    async with running() as server:
        requests = [publish_request(event(content_hashes=[key(n)])) for n in range(300)]
        calls = [asyncio.ensure_future(server.stub.PublishEvent(each)) for each in requests]
        await until(lambda: any(call.done() for call in calls))
        await server.server.stop()
        results = [(await call).result for call in calls]
    assert {result.outcome for result in results} == {pb.EventResult.OUTCOME_APPLIED}


async def test_the_grace_is_the_longest_that_an_end_takes(gated: Gated):
    """A publish that the journal does not take is given up on."""
    async with running(grace_s=0.1) as server:
        publish = server.stub.PublishEvent(publish_request(event()))
        await gated.asked.wait()
        await server.server.stop()
        assert (await fault_of(publish)).status in ("UNAVAILABLE", "CANCELLED")


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path):
    """Publishes under way at the end are answered or refused, and what is answered is kept."""
    url = f"sqlite:///{tmp_path}/warm.db"
    acknowledged: set[bytes] = set()

    async def publish(server: ServerHere, content_hash: bytes) -> None:
        message = event(content_hashes=[content_hash])
        try:
            await server.stub.PublishEvent(publish_request(message))
        except grpc.aio.AioRpcError as error:
            refused.append(error.code())
        else:
            acknowledged.add(content_hash)

    refused: list[grpc.StatusCode] = []
    async with running(journal=url) as server:
        publishes = [asyncio.create_task(publish(server, key(number))) for number in range(400)]
        await until(lambda: acknowledged)
        await server.server.stop()
        await asyncio.gather(*publishes)
    assert set(refused) <= {grpc.StatusCode.UNAVAILABLE}
    async with running(journal=url) as server:
        entries, _, _ = server.state()
        assert acknowledged <= {place.content_hash for place in entries}


async def test_a_client_is_told_to_go_elsewhere():
    """Whoever publishes to a server that goes away gets an error that says so."""
    async with running() as server:
        stream = server.stub.PublishEvents()
        await stream.write(pb.PublishEventsRequest())
        await stream.read()
        await server.server.stop()
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stream.read()
        assert fault(error.value).reason == "ERROR_REASON_SHUTTING_DOWN"
        assert issubclass(ShuttingDownError, UnavailableError)
        with pytest.raises(UnavailableError):
            await server.client.server_info()
