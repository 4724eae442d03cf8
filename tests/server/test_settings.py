"""What a server is told at its start: flags, variables, and what is wrong with some."""

from __future__ import annotations

import json
import os

import pytest
from support.server import run_server, server_process
from warmindex import __version__
from warmindex.errors import InvalidError
from warmindex_server.app import check_exposure, split_address
from warmindex_server.settings import Settings, parse


def test_help_shows_each_option_with_its_default_and_its_variable():
    """So does nobody need to read the source."""
    shown = " ".join(run_server("--help").stdout.split())
    for flag, default in (
        ("--listen", "127.0.0.1:50151"),
        ("--http-listen", "127.0.0.1:9151"),
        ("--journal", "memory"),
        ("--insecure", "off"),
        ("--grace", "10.0"),
        ("--log-format", "text"),
        ("--log-level", "info"),
    ):
        variable = "WARMINDEX_" + flag.lstrip("-").replace("-", "_").upper()
        assert flag in shown
        assert f"[default: {default}; {variable}]" in shown


def test_the_version_is_the_packages():
    """--version prints it."""
    assert run_server("--version").stdout == f"warmindex {__version__}\n"


def test_options_come_from_the_environment_too():
    """Every one of them; a flag wins over its variable."""
    variables = {
        "WARMINDEX_LISTEN": "127.0.0.1:0",
        "WARMINDEX_HTTP_LISTEN": "127.0.0.1:0",
        "WARMINDEX_LOG_FORMAT": "json",
        "WARMINDEX_LOG_LEVEL": "error",
    }
    with server_process("--log-level", "info", environment={**os.environ, **variables}) as process:
        port = process.find_in_log(r"http on port (\d+)")
        assert int(port) != 9151
        entries = [json.loads(line) for line in process.log.splitlines()]
    assert entries[-1]["level"] == "info"
    assert {"time", "logger", "message"} <= entries[0].keys()


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        (("--listen", "here"), {}, "--listen"),
        (("--listen", "127.0.0.1:99999"), {}, "--listen"),
        (("--grace", "-1"), {}, "--grace"),
        (("--grace", "nan"), {}, "--grace"),
        (("--log-format", "xml"), {}, "--log-format"),
        (("--nonsense",), {}, "--nonsense"),
        ((), {"WARMINDEX_LISTEN": "here"}, "--listen"),
        ((), {"WARMINDEX_GRACE": "soon"}, "--grace"),
        ((), {"WARMINDEX_LOG_LEVEL": "loud"}, "WARMINDEX_LOG_LEVEL"),
        ((), {"WARMINDEX_INSECURE": "maybe"}, "WARMINDEX_INSECURE"),
    ],
)
def test_a_bad_option_stops_the_start(arguments, variables, named: str, monkeypatch, capsys):
    """It is named, wherever it came from."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        parse(list(arguments))
    # An exit with a text prints it, and has code 1.
    assert ended.value.code
    assert named in f"{ended.value.code} {capsys.readouterr().err}"


def test_settings_are_what_was_asked_for(monkeypatch):
    """Flags as given, the rest by default."""
    for name in list(os.environ):
        if name.startswith("WARMINDEX"):
            monkeypatch.delenv(name)
    assert parse([]) == Settings()
    found = parse(["--listen", "[::1]:1", "--grace", "2", "--insecure", "--journal", "sqlite:///x"])
    assert found == Settings(listen="[::1]:1", grace_s=2.0, insecure=True, journal="sqlite:///x")


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:1", "127.0.0.1", 1),
        ("[::1]:0", "::1", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_addresses_have_a_host_and_a_port(address: str, host: str, port: int):
    """Brackets belong to the address, not to the host."""
    assert split_address(address) == (host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_loopback_is_safe(host: str):
    """Nobody else can reach it."""
    check_exposure(Settings(listen=f"{host}:1", http_listen=f"{host}:2"))


EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is refused


@pytest.mark.parametrize(
    "host", [EVERYWHERE, "[::]", "10.0.0.1", "example.org", "127.0.0.1.example.org"]
)
def test_other_addresses_are_not(host: str):
    """Neither for gRPC nor for HTTP, unless somebody says so."""
    for field in ("listen", "http_listen"):
        with pytest.raises(InvalidError, match="--insecure"):
            check_exposure(Settings(**{field: f"{host}:1"}))
        check_exposure(Settings(**{field: f"{host}:1"}, insecure=True))
