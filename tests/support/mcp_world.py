"""MCP servers as processes, and files of tools that they offer; see `mcp_server`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warmindex_subscriber.mcp.config import ServerConfig

SCRIPT = Path(__file__).with_name("mcp_server.py")


def write_tools(path: Path, *tools: tuple[str, str] | str) -> Path:
    """Make a file list some tools, (name, description) or a name; a whole file at once."""
    listed = [(tool, "") if isinstance(tool, str) else tool for tool in tools]
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps([{"name": n, "description": d} for n, d in listed]))
    beside.replace(path)
    return path


def stdio_config(name: str, path: Path, *flags: str, **env: str) -> ServerConfig:
    """A server that is started by whoever connects."""
    return ServerConfig(name, sys.executable, (str(SCRIPT), str(path), *flags), env)


def write_config(path: Path, servers: Mapping[str, ServerConfig]) -> Path:
    """The JSON that desktop clients keep."""
    entries: dict[str, Any] = {
        name: {"type": "http", "url": each.url, "headers": dict(each.headers)}
        if each.url
        else {"command": each.command, "args": list(each.args), "env": dict(each.env)}
        for name, each in servers.items()
    }
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


@contextmanager
def http_server(path: Path, *flags: str, port: int = 0) -> Iterator[str]:
    """A server over streamable HTTP as a process of its own; its URL."""
    command = [sys.executable, str(SCRIPT), str(path), "--http", str(port), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on "), line
            yield line.split()[-1]
        finally:
            process.terminate()


def environment() -> dict[str, str]:
    """This process's environment without what would change a command's defaults."""
    return {name: v for name, v in os.environ.items() if not name.startswith("WARMINDEX")}
