"""Which servers there are: the JSON of desktop clients, and what may be wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from warmindex_subscriber.__main__ import parse
from warmindex_subscriber.mcp.config import ConfigError, Configured, ServerConfig, read_configs
from warmindex_subscriber.mcp.options import servers_of

GOOD = {"command": "npx", "args": ["-y", "files", 1], "env": {"KEY": "k"}, "cwd": "/srv"}


def read(folder: Path, entries: Any, section: str = "mcpServers") -> Configured:
    path = folder / "config.json"
    path.write_text(json.dumps({section: entries}))
    return read_configs([path])


def test_commands_and_urls_are_read(tmp_path: Path):
    """A command with arguments, variables and a folder; a URL with headers."""
    remote = {"type": "http", "url": "https://h/mcp", "headers": {"Authorization": "Bearer t"}}
    found = read(tmp_path, {"files": GOOD, "remote": remote})
    assert found.problems == []
    assert found.servers == [
        ServerConfig("files", "npx", ("-y", "files", "1"), {"KEY": "k"}, "/srv"),
        ServerConfig("remote", url="https://h/mcp", headers={"Authorization": "Bearer t"}),
    ]


def test_editors_have_another_section_and_clients_other_names_for_the_url(tmp_path: Path):
    """`servers` is read like `mcpServers`, `serverUrl` and `httpUrl` like `url`."""
    found = read(
        tmp_path, {"a": {"serverUrl": "http://a"}, "b": {"httpUrl": "http://b"}}, "servers"
    )
    assert [server.url for server in found.servers] == ["http://a", "http://b"]


def test_what_is_switched_off_is_not_there(tmp_path: Path):
    """A disabled entry is no server, and no problem, even where it is no good."""
    found = read(tmp_path, {"a": GOOD, "b": {"disabled": True}, "c": {**GOOD, "enabled": False}})
    assert found.names == {"a"}
    assert found.problems == []


def test_variables_of_the_environment_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In all three spellings, in every string; what is no variable's name stays."""
    monkeypatch.setenv("TOKEN", "secret")
    monkeypatch.setenv("EMPTY", "")
    entry = {
        "command": "${SHELL_OF_MINE:-bash}",
        "args": ["-c", "echo ${1} $TOKEN ${EMPTY}|${EMPTY:-e}"],
        "env": {"A": "x${TOKEN}y", "B": "${env:TOKEN}"},
    }
    (server,) = read(tmp_path, {"a": entry}).servers
    assert (server.command, server.args[1]) == ("bash", "echo ${1} $TOKEN |e")
    assert server.env == {"A": "xsecrety", "B": "secret"}
    assert "secret" not in repr(server)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({}, "either a command or a url"),
        ({"command": "a", "url": "http://b"}, "either a command or a url"),
        ({"url": "ftp://b"}, "http://"),
        ({"type": "sse", "url": "http://b"}, "streamable HTTP"),
        ({"type": "carrier pigeon", "url": "http://b"}, "stdio or http"),
        ({"type": "stdio", "url": "http://b"}, "does not go with"),
        ({"type": "http", "command": "b"}, "does not go with"),
        ({"command": "a", "args": "b"}, "args is no list"),
        ({"command": "a", "args": [True]}, "no string"),
        ({"command": "a", "env": ["b"]}, "env is no object"),
        ({"command": "a", "env": {"b": None}}, "no string"),
        ({"command": "${NOBODY_HAS_SET_THIS}"}, "NOBODY_HAS_SET_THIS"),
        ("npx", "no object"),
        (None, "no object"),
    ],
)
def test_an_entry_that_cannot_be_used_is_a_problem_of_its_own(
    tmp_path: Path, entry: object, why: str
):
    """Its neighbours are servers all the same, and its name stays known."""
    found = read(tmp_path, {"bad": entry, "good": GOOD})
    assert [server.name for server in found.servers] == ["good"]
    (problem,) = found.problems
    assert "config.json: server 'bad'" in problem
    assert why in problem
    assert found.names == {"bad", "good"}


def test_two_servers_need_two_names(tmp_path: Path):
    """The same entry twice is one server; another one of the same name is a problem."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    one.write_text(json.dumps({"mcpServers": {"a": GOOD, "b": GOOD}}))
    two.write_text(json.dumps({"mcpServers": {"a": GOOD, "b": {"url": "http://b"}}}))
    found = read_configs([one, two])
    assert [server.name for server in found.servers] == ["a", "b"]
    assert found.problems == ["server 'b': is given twice; give it another name"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mcpServers": []}', '{"mcpServers": {}}'])
def test_a_file_without_servers_is_an_error(tmp_path: Path, content: str):
    """There is nothing to do, and the message says what to give."""
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"mcpServers|is not JSON"):
        read_configs([path])


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path):
    """The message names it."""
    with pytest.raises(ConfigError, match=r"missing\.json"):
        read_configs([tmp_path / "missing.json"])


def test_the_command_line_names_servers_too():
    """URLs, separated by commas, and a command with options of its own after two dashes."""
    urls = "http://user:key@h:1/mcp, http://i/mcp"
    arguments = parse(["mcp", "--url", urls, "--once", "--", "/usr/bin/npx", "-y", "--once"])
    assert arguments.once
    found = servers_of(arguments)
    assert [server.name for server in found.servers] == ["h:1", "i", "npx"]
    assert found.servers[2].args == ("-y", "--once")
    assert parse(["mcp", "a.json", "b.json"]).configs == [Path("a.json"), Path("b.json")]


def test_two_dashes_of_other_commands_are_their_own():
    """`catalogue -- PATH` is a path, as ever."""
    assert parse(["catalogue", "--", "-odd.json"]).paths == [Path("-odd.json")]


@pytest.mark.parametrize("url", ["h/mcp", "http://", "file:///etc"])
def test_what_is_no_url_is_refused(url: str):
    """The message says what one looks like."""
    with pytest.raises(ConfigError, match="http://HOST"):
        read_configs([], [url])
