"""What a server is told at its start."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from warmindex import __version__, logs
from warmindex.options import Options, address, seconds


@dataclass(frozen=True, slots=True)
class Settings:
    """The server's options; see `--help` for what each means."""

    listen: str = "127.0.0.1:50151"
    http_listen: str = "127.0.0.1:9151"
    journal: str = "memory"
    redis_prefix: str = "warmindex"
    recover: bool = False
    insecure: bool = False
    grace_s: float = 10.0
    log_format: str = "text"
    log_level: str = "info"


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings from the command line and the environment."""
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="warmindex-server",
        description="Serve an index of what a fleet has already computed, over gRPC. "
        "Prints one line, `listening on HOST:PORT`, when it is ready.",
    )
    parser.add_argument("--version", action="version", version=f"warmindex {__version__}")
    options = Options(parser)
    options.add(
        "--listen",
        default=default.listen,
        type=address,
        metavar="HOST:PORT",
        help="where to serve gRPC; port 0 takes a free one",
    )
    options.add(
        "--http-listen",
        default=default.http_listen,
        type=address,
        metavar="HOST:PORT",
        help="where to serve /healthz and /readyz",
    )
    options.add(
        "--journal",
        default=default.journal,
        metavar="URL",
        help="memory, sqlite:///PATH or redis://HOST:PORT/DB",
    )
    options.add(
        "--redis-prefix",
        default=default.redis_prefix,
        metavar="NAME",
        help="begins the name of every Redis key; servers that share an index share it",
    )
    options.switch(
        "--recover",
        help="begin a new history with what can be read of a damaged journal; the old data "
        "is kept aside",
    )
    options.switch("--insecure", help="allow listening beyond loopback without TLS and tokens")
    options.add(
        "--grace",
        default=default.grace_s,
        type=seconds,
        metavar="SECONDS",
        help="how long calls under way may take after SIGTERM",
    )
    logs.add_options(options)
    found = parser.parse_args(arguments)
    return Settings(
        listen=found.listen,
        http_listen=found.http_listen,
        journal=found.journal,
        redis_prefix=found.redis_prefix,
        recover=found.recover,
        insecure=found.insecure,
        grace_s=found.grace,
        log_format=found.log_format,
        log_level=found.log_level,
    )
