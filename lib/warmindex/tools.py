"""Tools as gateways know them, and the forms in which they come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warmindex.errors import InvalidError, Reason
from warmindex.event import Document
from warmindex.hashing import text_hash, tool_text


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool: its name, its description, and whatever its owner wants back with it."""

    name: str
    description: str = ""
    data: Any = None

    @property
    def text(self) -> str:
        """The text that is embedded."""
        return tool_text(self.name, self.description)

    @property
    def document(self) -> Document:
        """The text that is searched by words."""
        return Document(self.name, self.description)

    def content_hash(self) -> bytes:
        """The key of the text. Raises InvalidError where the text is not valid Unicode."""
        return text_hash(self.text)

    @classmethod
    def of(cls, value: object) -> Tool:
        """A tool from a Tool, an MCP tool (object or mapping), or a (name, description) pair.

        A missing or null description is an empty one. Raises InvalidError for anything else.
        """
        if isinstance(value, Tool):
            return value
        if isinstance(value, tuple) and len(value) == 2:
            name, description = value
        elif isinstance(value, Mapping):
            name, description = value.get("name"), value.get("description")
        else:
            name = getattr(value, "name", None)
            description = getattr(value, "description", None)
        if not isinstance(name, str) or not (description is None or isinstance(description, str)):
            raise InvalidError(
                f"a tool needs a name and a description that are strings; got {value!r:.200}",
                field="tools",
                reason=Reason.VALUE_UNKNOWN,
            )
        return cls(name, description or "", value)


def tools_of(values: Iterable[object]) -> list[Tool]:
    """Tools in the order given."""
    return [Tool.of(value) for value in values]


def by_hash(tools: Iterable[Tool]) -> tuple[dict[bytes, list[Tool]], list[tuple[Tool, str]]]:
    """Tools by the key of their text, and those whose text has none, with the reason.

    Several tools may share one text: they are embedded once, and are several answers.
    """
    grouped: dict[bytes, list[Tool]] = {}
    refused: list[tuple[Tool, str]] = []
    for tool in tools:
        try:
            grouped.setdefault(tool.content_hash(), []).append(tool)
        except InvalidError as error:
            refused.append((tool, error.message))
    return grouped, refused
