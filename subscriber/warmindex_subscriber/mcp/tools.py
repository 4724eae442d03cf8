"""The tools of MCP servers in the form in which the index knows tools."""

from __future__ import annotations

from typing import Any

from mcp.types import Tool as ListedTool
from warmindex import limits
from warmindex.tools import Tool


def tool_of(listed: ListedTool, data: Any = None) -> Tool:
    """A tool of a server, with whatever its owner wants back with it.

    A description past what a document may have is cut, so that a subscriber and a gateway
    that list the same server arrive at the same key.
    """
    description = listed.description or ""
    if len(description) > limits.DOCUMENT_DESCRIPTION_BYTES_MAX // 4:
        cut = description.encode("utf-8", "replace")[: limits.DOCUMENT_DESCRIPTION_BYTES_MAX]
        description = cut.decode("utf-8", "ignore")
    return Tool(listed.name, description, data)
