"""Catalogue files: tools as an MCP server lists them, in any of the shapes people save.

    {"tools": [{"name": …, "description": …}, …]}         the result of tools/list
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": …}}   the whole answer
    [{"name": …, "description": …}, …]                    a plain list

A folder stands for every `*.json` file below it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from warmindex.errors import InvalidError, WarmindexError
from warmindex.tools import Tool

_log = logging.getLogger(__name__)


class CatalogueError(WarmindexError):
    """A catalogue file cannot be read; the message names it and says why."""


class NoToolsError(CatalogueError):
    """A file is whole, and lists no tools."""


def read_tools(path: Path) -> list[Tool]:
    """The tools of one file, in its order. Raises CatalogueError."""
    try:
        # Some editors put a byte order mark first.
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CatalogueError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        # No UTF-8, no JSON, or a number longer than Python reads.
        raise CatalogueError(f"{path}: is not JSON: {error}") from error
    listed = _listed(content)
    if listed is None:
        raise NoToolsError(
            f"{path}: has no list of tools: give the result of tools/list, "
            '{"tools": […]}, or a plain list'
        )
    tools = []
    for position, each in enumerate(listed):
        try:
            tools.append(Tool.of(each))
        except InvalidError as error:
            raise CatalogueError(f"{path}: tools[{position}]: {error.message}") from error
    return tools


class CatalogueFiles:
    """The tools of some files and folders, as they are now.

    A file that cannot be read just now (it may be half written) keeps what it had; one that
    is gone has nothing. Where one has never been read, nobody knows what it lists: the tools
    are not `complete`.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._known: dict[Path, list[Tool]] = {}
        self.problems: list[str] = []
        self.complete = False

    def read(self) -> list[Tool]:
        """Read everything anew; `problems` says what could not be read."""
        self.problems = []
        self.complete = True
        found: dict[Path, list[Tool]] = {}
        for path in files_of(self._paths):
            try:
                found[path] = read_tools(path)
            except CatalogueError as error:
                self.problems.append(error.message)
                known = path in self._known or isinstance(error, NoToolsError)
                self.complete = self.complete and known
                _log.error(
                    "%s%s", error.message, "" if known else "; until it is read nothing is evicted"
                )
                if path in self._known:
                    found[path] = self._known[path]
        for path in self._paths:
            if not path.exists():
                self.problems.append(f"{path}: there is no such file")
        self._known = found
        return [tool for tools in found.values() for tool in tools]


def files_of(paths: Sequence[Path]) -> Iterable[Path]:
    """The files that paths stand for, as they are now."""
    for path in paths:
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*.json") if not each.is_dir())
        elif path.exists():
            yield path


def _listed(content: object) -> list[object] | None:
    for name in ("result", "tools"):
        if isinstance(content, dict):
            content = content.get(name, content)
    return content if isinstance(content, list) else None
