"""Which MCP servers there are: the JSON that desktop clients keep, or a URL, or a command.

    {"mcpServers": {"files":  {"command": "npx", "args": ["-y", "…"], "env": {"KEY": "…"}},
                    "github": {"url": "https://…/mcp", "headers": {"Authorization": "Bearer …"}}}}

`${NAME}`, `${NAME:-default}` and `${env:NAME}` stand for variables of the environment, so that
secrets need not be in the file. One entry that cannot be used is a problem of that entry alone.
Pure but for reading the file and the environment.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Final
from urllib.parse import urlsplit

from warmindex.errors import WarmindexError

# A name is a part of a replica's name and, where two servers have one tool, of the tool's.
NAME_BYTES_MAX: Final = 128

# Editors keep theirs under "servers".
_SECTIONS: Final = ("mcpServers", "servers")
_URL_FIELDS: Final = ("url", "httpUrl", "serverUrl")
_HTTP_TYPES: Final = frozenset({"http", "streamable-http", "streamable_http", "streamableHttp"})
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ConfigError(WarmindexError):
    """What servers there are cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How one server is reached: a command that is started, or a URL.

    Arguments, variables and headers may be secrets: they are in no repr and no log.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(slots=True)
class Configured:
    """The servers of some files, and what is wrong with the entries that are left out.

    `names` has every name that is configured, of those left out too.
    """

    servers: list[ServerConfig] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def add(self, server: ServerConfig) -> None:
        """Take a server; another one of the same name is a problem."""
        if server in self.servers:
            return
        if any(server.name == other.name for other in self.servers):
            self.problems.append(f"server {server.name!r}: is given twice; give it another name")
        else:
            self.servers.append(server)
        self.names.add(server.name)


def read_configs(
    paths: Iterable[Path], urls: Iterable[str] = (), command: Sequence[str] = ()
) -> Configured:
    """All servers of some files, URLs and a command.

    Raises ConfigError where a file has no servers at all, or nothing that can be used is left.
    """
    found = Configured()
    for path in paths:
        for name, entry in _entries(path).items():
            _add_entry(found, path, name, entry)
    for url in urls:
        name = urlsplit(url).netloc.rpartition("@")[2]
        if not name or urlsplit(url).scheme not in {"http", "https"}:
            raise ConfigError(f"--url {url!r}: is no URL; give http://HOST:PORT/PATH")
        found.add(ServerConfig(name, url=url))
    if command:
        found.add(ServerConfig(PurePath(command[0]).name, command[0], tuple(command[1:])))
    if not found.servers:
        raise ConfigError(
            "; ".join(found.problems)
            or "no MCP server is given: name a file with mcpServers, a --url, or a command after --"
        )
    return found


def _entries(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is not JSON: {error}") from error
    for section in _SECTIONS:
        entries = content.get(section) if isinstance(content, dict) else None
        if isinstance(entries, dict):
            return entries
    raise ConfigError(f'{path}: has no servers; give {{"mcpServers": {{NAME: {{…}}}}}}')


def _add_entry(found: Configured, path: Path, name: str, entry: object) -> None:
    if isinstance(entry, dict) and (entry.get("disabled") is True or entry.get("enabled") is False):
        return
    try:
        found.add(_server(name, entry))
    except ConfigError as error:
        found.names.add(name)
        found.problems.append(f"{path}: server {name!r}: {error.message}")


def _server(name: str, entry: object) -> ServerConfig:
    """Raises ConfigError, without naming the server."""
    if not name.strip() or not 0 < len(name.encode("utf-8", "replace")) <= NAME_BYTES_MAX:
        raise ConfigError(f"the name must have 1 to {NAME_BYTES_MAX} bytes")
    if not isinstance(entry, dict):
        raise ConfigError("is no object; give a command or a url")
    kind = entry.get("type") or entry.get("transport") or ""
    if kind == "sse":
        raise ConfigError("type is sse; give the url of its streamable HTTP, with type http")
    if kind not in {"", "stdio"} | _HTTP_TYPES:
        raise ConfigError(f"type is {kind!r:.40}; give stdio or http")
    url = next((entry[each] for each in _URL_FIELDS if entry.get(each)), "")
    command = entry.get("command", "")
    if bool(url) == bool(command):
        raise ConfigError("give either a command or a url")
    if (kind == "stdio" and url) or (kind in _HTTP_TYPES and command):
        raise ConfigError(f"type is {kind!r}, which does not go with what else is given")
    if url and urlsplit(_text("url", url)).scheme not in {"http", "https"}:
        raise ConfigError("url must begin with http:// or https://")
    return ServerConfig(
        name,
        _text("command", command),
        tuple(_text("args", each) for each in _items(entry, "args", list)),
        {key: _text("env", value) for key, value in _pairs(entry, "env")},
        _text("cwd", entry["cwd"]) if entry.get("cwd") else None,
        _text("url", url),
        {key: _text("headers", value) for key, value in _pairs(entry, "headers")},
    )


def _pairs(entry: dict[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    mapping: dict[str, Any] = _items(entry, name, dict)
    return mapping.items()


def _items(entry: dict[str, Any], name: str, kind: type) -> Any:
    value = entry.get(name)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ConfigError(f"{name} is no {'list' if kind is list else 'object'}")
    return value


def _text(name: str, value: object) -> str:
    """A string with the environment's variables in it; numbers are taken as written."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{name} has a value that is no string")

    def filled(match: re.Match[str]) -> str:
        found, default = os.environ.get(match[1]), match[2]
        if not found and default is not None:
            return default
        if found is None:
            raise ConfigError(f"{name} needs the variable {match[1]}, which is not set")
        return found

    return _VARIABLE.sub(filled, str(value))
