"""All tools of one server, page by page."""

from __future__ import annotations

import logging
from typing import Final

from mcp import Client, MCPError
from mcp.types import INVALID_PARAMS, Tool
from warmindex import limits

_log = logging.getLogger(__name__)

# Far more than any server has; a server whose pages never end must not fill the memory.
PAGES_MAX: Final = 1000
TOOLS_MAX: Final = 20_000
# A cursor dies when the list changes under it: then the list is read from its beginning.
STARTS_MAX: Final = 3


class ListingError(Exception):
    """A server's list of tools has no end, or changes faster than it can be read."""


async def list_tools(client: Client) -> list[Tool]:
    """The tools in the server's order, each name once.

    Raises ListingError, and what the client raises.
    """
    for _ in range(STARTS_MAX):
        try:
            return await _list_once(client)
        except MCPError as error:
            if error.code != INVALID_PARAMS:
                raise
            refused = error
    raise refused


async def _list_once(client: Client) -> list[Tool]:
    found: dict[str, Tool] = {}
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        # A kept answer is no answer to the question what there is now.
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        for tool in page.tools:
            if not 0 < len(tool.name.encode("utf-8", "replace")) <= limits.DOCUMENT_NAME_BYTES_MAX:
                _log.warning("a tool is left out: its name %.40r is no name", tool.name)
            elif tool.name in found:
                _log.warning("a second tool named %.80r is left out", tool.name)
            else:
                found[tool.name] = tool
        cursor = page.next_cursor
        if not cursor:
            return list(found.values())
        if cursor in cursors:
            raise ListingError(f"the cursor {cursor!r:.40} of tools/list leads back to itself")
        if len(found) > TOOLS_MAX:
            raise ListingError(f"lists more than {TOOLS_MAX} tools")
        cursors.add(cursor)
    raise ListingError(f"tools/list has more than {PAGES_MAX} pages")
