"""A real server for tests: in this process on a free port, or as a process of its own.

async def test_…(server):                     # fixture: in this process
    await server.stub.PublishEvent(…)
    server.store.index                        # to look inside

with server_process() as process:             # python -m warmindex_server
    process.address, process.terminate()
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest_asyncio
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from support import questions
from warmindex import limits
from warmindex.client import IndexClient
from warmindex.v1.index_service_pb2_grpc import IndexServiceStub
from warmindex_server.app import Server
from warmindex_server.settings import Settings
from warmindex_server.store import Store

# A start takes a second or two; this is for a machine that is busy with other things.
START_S_MAX = 60
FREE_PORT = "127.0.0.1:0"

# A client that takes what a server may send; the default stops at 4 MiB.
LARGE_MESSAGES = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", -1),
)


class ServerHere:
    """A server in this process, with a plain stub and the package's own client."""

    def __init__(self, server: Server, channel: grpc.aio.Channel, client: IndexClient) -> None:
        self.server = server
        self.channel = channel
        self.stub: Any = IndexServiceStub(channel)
        self.client = client

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.server.port}"

    @property
    def store(self) -> Store:
        """What it has."""
        assert self.server._store is not None
        return self.server._store

    def state(self) -> tuple[object, ...]:
        """All that events can change: entries with what belongs to them, numbers, leases."""
        index = self.store.index
        numbers = {
            (*key, name): producer.numbers[:3]
            for key, model in index.models.items()
            for name, producer in model.producers.items()
        }
        return questions.content(index), numbers, dict(index.leases)


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[ServerHere]:
    """A server in this process on free ports; `settings` as in `Settings`."""
    server = Server(Settings(**{"listen": FREE_PORT, "http_listen": FREE_PORT, **settings}))
    try:
        await server.start()
        address = f"127.0.0.1:{server.port}"
        async with (
            grpc.aio.insecure_channel(address, LARGE_MESSAGES) as channel,
            IndexClient(address) as client,
        ):
            yield ServerHere(server, channel, client)
    finally:
        await server.stop()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[ServerHere]:
    """A fresh server in this process."""
    async with running(grace_s=0) as here:
        yield here


@dataclass(frozen=True, slots=True)
class Fault:
    """A refused call: its status, and what its details say."""

    status: str
    message: str
    reason: str = ""
    domain: str = ""
    field: str = ""
    description: str = ""
    retry_after_s: float | None = None


async def fault_of(call: Awaitable[Any]) -> Fault:
    """How a call fails; a call that does not is a failed test."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return fault(error)
    raise AssertionError(f"the call was answered: {answer}")


def fault(error: grpc.aio.AioRpcError) -> Fault:
    """Status and details of an error."""
    found: dict[str, Any] = {}
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        request = error_details_pb2.BadRequest()
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            found |= {"reason": info.reason, "domain": info.domain}
        elif detail.Unpack(request):
            (violation,) = request.field_violations
            found |= {"field": violation.field, "description": violation.description}
        elif detail.Unpack(retry):
            found["retry_after_s"] = retry.retry_delay.ToMilliseconds() / 1000
    return Fault(error.code().name, error.details() or "", **found)


class ServerProcess:
    """A server as a process of its own, ended by its process id."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self.address = ""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def port(self) -> int:
        """Its gRPC port."""
        return int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(encoding="utf-8")

    @property
    def http_url(self) -> str:
        """Where /readyz is; it is in the log."""
        port = self.find_in_log(r"http on port (\d+)")
        return f"http://127.0.0.1:{port}"

    def find_in_log(self, pattern: str) -> str:
        """Wait until the log has a pattern; its first group."""
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.log):
                return found[1]
            time.sleep(0.02)
        raise AssertionError(f"the log never had {pattern!r}: {self.log}")

    def wait_until_listening(self) -> None:
        """Take the address from the line that it prints when it is ready."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("listening on "), f"{line!r} {self.log}"
        self.address = line.removeprefix("listening on ").strip()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        return self._process.wait(timeout=START_S_MAX)

    def rest_of_output(self) -> str:
        """What else it printed, after its end."""
        assert self._process.stdout is not None
        return self._process.stdout.read()

    def end(self) -> None:
        """End it, whatever it is doing."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def server_process(
    *arguments: str, environment: dict[str, str] | None = None, wait: bool = True
) -> Iterator[ServerProcess]:
    """A server started as people start one, on free ports unless `arguments` say otherwise."""
    command = [sys.executable, "-m", "warmindex_server", *with_free_ports(arguments, environment)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env=environment,
            )
        server = ServerProcess(process, log)
        try:
            if wait:
                server.wait_until_listening()
            yield server
        finally:
            server.end()


def run_server(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command to its end, with these variables alone: for a start that fails, for --help."""
    environment = {name: v for name, v in os.environ.items() if not name.startswith("WARMINDEX")}
    return subprocess.run(
        [sys.executable, "-m", "warmindex_server", *with_free_ports(arguments, variables)],
        capture_output=True,
        text=True,
        check=False,
        timeout=START_S_MAX,
        env={**environment, **variables},
    )


async def until(condition: Callable[[], object]) -> None:
    """Let others run until something is so; the test's own timeout is the limit."""
    while not condition():  # noqa: ASYNC110 - any condition, not one that somebody tells of
        await asyncio.sleep(0.001)


def with_free_ports(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> list[str]:
    """The arguments, and free ports for what neither they nor the environment set."""
    left = list(arguments)
    for flag, variable in (
        ("--listen", "WARMINDEX_LISTEN"),
        ("--http-listen", "WARMINDEX_HTTP_LISTEN"),
    ):
        if flag not in arguments and variable not in (environment or {}):
            left += [flag, FREE_PORT]
    return left
