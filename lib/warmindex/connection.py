"""Options of every command that speaks to an index: where it is, TLS, and a token."""

from __future__ import annotations

import argparse
from pathlib import Path

from warmindex.channels import Security
from warmindex.client import DEFAULT_SERVER, IndexClient
from warmindex.options import Options


def add_connection_options(options: Options) -> None:
    """Add --server, --token and --tls-*."""
    options.add(
        "--server",
        default=DEFAULT_SERVER,
        metavar="HOST:PORT[,HOST:PORT…]",
        help="the index; several servers must share one journal",
    )
    options.add(
        "--token", default="", metavar="TOKEN", help="bearer token; better given by its variable"
    )
    options.switch("--tls", help="speak TLS, trusting the system's authorities")
    options.add("--tls-ca", default="", metavar="FILE", help="speak TLS, trusting this CA (PEM)")
    options.add(
        "--tls-certificate", default="", metavar="FILE", help="this client's certificate (PEM)"
    )
    options.add("--tls-key", default="", metavar="FILE", help="the key of --tls-certificate (PEM)")


def security_of(arguments: argparse.Namespace) -> Security:
    """How the options say to speak to the index."""
    return Security(
        tls=arguments.tls,
        ca_file=_path(arguments.tls_ca),
        certificate_file=_path(arguments.tls_certificate),
        key_file=_path(arguments.tls_key),
        token=arguments.token,
    )


def client_of(arguments: argparse.Namespace) -> IndexClient:
    """The index that the options name."""
    return IndexClient(arguments.server, security=security_of(arguments))


def _path(text: str) -> Path | None:
    return Path(text) if text else None
