"""The names under which the tools of several servers are called, each of them one tool.

    one server has it            its own name            create_issue
    several have it              SERVER__NAME each       github__create_issue, jira__create_issue
    that is taken as well        a number behind it      a__b__c, a__b__c_2

SERVER__NAME is understood for every tool. A plain name that several tools have is no
name: it is refused with the names that are, never guessed. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

SEPARATOR: Final = "__"

T = TypeVar("T")


class Named(NamedTuple, Generic[T]):
    """A tool: the name to call it by, its server, its name there, and what it is."""

    name: str
    server: str
    tool_name: str
    tool: T


class ToolNames(Generic[T]):
    """A set of tools, by the names that they are called by. The same set has the same names."""

    def __init__(self, tools: Iterable[tuple[str, str, T]]) -> None:
        """`tools` are (server, name there, tool), in the servers' order."""
        listed = list(tools)
        counts = Counter(name for _, name, _ in listed)
        self._by_name: dict[str, Named[T]] = {}
        # Plain names first: whoever has one keeps it, whatever others are called.
        for server, name, tool in listed:
            if counts[name] == 1:
                self._by_name[name] = Named(name, server, name, tool)
        for server, name, tool in listed:
            if counts[name] > 1:
                free = self._free(f"{server}{SEPARATOR}{name}")
                self._by_name[free] = Named(free, server, name, tool)
        self.tools: Sequence[Named[T]] = tuple(self._by_name.values())
        self._qualified: dict[str, list[Named[T]]] = {}
        for each in self.tools:
            self._qualified.setdefault(f"{each.server}{SEPARATOR}{each.tool_name}", []).append(each)

    def _free(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._by_name:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def get(self, name: str) -> Named[T] | None:
        """The one tool that is called by a name; None where there is none, or not one."""
        found = self._by_name.get(name)
        if found is None:
            qualified = self._qualified.get(name, [])
            found = qualified[0] if len(qualified) == 1 else None
        return found

    def alternatives(self, name: str) -> list[str]:
        """The names of the tools that have a plain name in common."""
        return [each.name for each in self.tools if each.tool_name == name]
