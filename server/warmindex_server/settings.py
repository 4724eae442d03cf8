"""What a server is told at its start."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from warmindex import __version__, logs
from warmindex.errors import InvalidError
from warmindex.index.search import SearchOptions
from warmindex.options import Options, address, seconds

from warmindex_server.access.tls import TlsFiles


@dataclass(frozen=True, slots=True)
class Settings:
    """The server's options; see `--help` for what each means."""

    listen: str = "127.0.0.1:50151"
    http_listen: str = "127.0.0.1:9151"
    journal: str = "memory"
    redis_prefix: str = "warmindex"
    recover: bool = False
    insecure: bool = False
    tokens: Path | None = None
    tls: TlsFiles | None = None
    words_weight: float = SearchOptions().words_weight
    grace_s: float = 10.0
    log_format: str = "text"
    log_level: str = "info"


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings from the command line and the environment. Raises InvalidError."""
    parser = argparse.ArgumentParser(
        prog="warmindex-server",
        description="Serve an index of what a fleet has already computed, over gRPC. "
        "Prints one line, `listening on HOST:PORT`, when it is ready.",
    )
    parser.add_argument("--version", action="version", version=f"warmindex {__version__}")
    options = Options(parser)
    _add_ports(options)
    _add_journal(options)
    _add_access(options)
    options.add(
        "--words-weight",
        default=SearchOptions().words_weight,
        type=_share,
        metavar="SHARE",
        help="how much words count beside meaning in a search, 0 to 1",
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
        tokens=Path(found.tokens) if found.tokens else None,
        tls=_tls_files(found),
        words_weight=found.words_weight,
        grace_s=found.grace,
        log_format=found.log_format,
        log_level=found.log_level,
    )


def _add_ports(options: Options) -> None:
    options.add(
        "--listen",
        default=Settings().listen,
        type=address,
        metavar="HOST:PORT",
        help="where to serve gRPC; port 0 takes a free one",
    )
    options.add(
        "--http-listen",
        default=Settings().http_listen,
        type=address,
        metavar="HOST:PORT",
        help="where to serve /healthz and /readyz",
    )
    options.add(
        "--grace",
        default=Settings().grace_s,
        type=seconds,
        metavar="SECONDS",
        help="how long calls under way may take after SIGTERM",
    )


def _add_journal(options: Options) -> None:
    options.add(
        "--journal",
        default=Settings().journal,
        metavar="URL",
        help="memory, sqlite:///PATH or redis://HOST:PORT/DB",
    )
    options.add(
        "--redis-prefix",
        default=Settings().redis_prefix,
        metavar="NAME",
        help="begins the name of every Redis key; servers that share an index share it",
    )
    options.switch(
        "--recover",
        help="begin a new history with what can be read of a damaged journal; the old data "
        "is kept aside",
    )


def _add_access(options: Options) -> None:
    options.add(
        "--tokens",
        default="",
        metavar="FILE",
        help="ask for bearer tokens: a file of the lines that `warmindex token` prints",
    )
    options.add("--tls-certificate", default="", metavar="FILE", help="serve TLS: PEM chain")
    options.add("--tls-key", default="", metavar="FILE", help="serve TLS: PEM key")
    options.add(
        "--tls-client-ca",
        default="",
        metavar="FILE",
        help="ask callers for a certificate that this CA (PEM) has signed",
    )
    options.switch("--insecure", help="allow listening beyond loopback without TLS and tokens")


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share, 0 to 1")
    return value


def _tls_files(found: argparse.Namespace) -> TlsFiles | None:
    """The TLS files that the options name. Raises InvalidError for half a set."""
    if not (found.tls_certificate or found.tls_key or found.tls_client_ca):
        return None
    if not (found.tls_certificate and found.tls_key):
        raise InvalidError(
            "--tls-certificate and --tls-key go together: give both, or no --tls option at all",
            field="--tls-key" if found.tls_certificate else "--tls-certificate",
        )
    client_ca = Path(found.tls_client_ca) if found.tls_client_ca else None
    return TlsFiles(Path(found.tls_certificate), Path(found.tls_key), client_ca)
