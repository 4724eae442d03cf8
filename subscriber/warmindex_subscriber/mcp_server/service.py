"""The MCP server itself: two tools, and what goes in and out of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from warmindex import __version__
from warmindex.errors import InvalidError, WarmindexError

from warmindex_subscriber.mcp_server.finder import Finder
from warmindex_subscriber.mcp_server.tokens import compact

FIND: Final = "find_tool"
CALL: Final = "call_tool"
# An error that quotes a whole answer helps no model.
ERROR_MAX: Final = 2000
PROTOCOL_META: Final = "io.modelcontextprotocol/"

INSTRUCTIONS: Final = (
    "Many tools are behind this server. Ask find_tool for what you want to do; it answers with "
    "the tools that fit and their input schemas. Then call one with call_tool, by its name."
)

FIND_TOOL: Final = Tool(
    name=FIND,
    description="Find tools that can do what you want. Returns the best matches with their names, "
    "descriptions and input schemas, and the tokens saved by not listing all tools. "
    "Use call_tool to call one of them.",
    input_schema={
        "type": "object",
        "properties": {
            "tool_description": {
                "type": "string",
                "description": "What the tool should do, in a sentence: the task, not a name.",
            },
            "tool_keywords": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Words that its name or description should have, if you know any.",
            },
        },
        "required": ["tool_description"],
    },
    output_schema={
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string"},
                        "description": {"type": "string"},
                        "input_schema": {"type": "object"},
                        "server": {"type": "string"},
                    },
                    "required": ["name", "description", "input_schema", "server"],
                },
            },
            "token_metrics": {
                "type": "object",
                "properties": {
                    "baseline_tokens": {"type": "integer"},
                    "returned_tokens": {"type": "integer"},
                    "savings_percent": {"type": "number"},
                },
                "required": ["baseline_tokens", "returned_tokens", "savings_percent"],
            },
            "notes": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["tools", "token_metrics"],
    },
)

CALL_TOOL: Final = Tool(
    name=CALL,
    description="Call a tool that find_tool has found, with parameters as its input schema says. "
    "Returns what that tool returns.",
    input_schema={
        "type": "object",
        "properties": {
            "tool_name": {"type": "string", "description": "The name, as find_tool gave it."},
            "parameters": {"type": "object", "description": "The tool's own parameters."},
        },
        "required": ["tool_name", "parameters"],
    },
)


def service(finder: Finder) -> Server[Any]:
    """A server that offers the two tools over what `finder` has."""

    async def list_tools(_ctx: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[FIND_TOOL, CALL_TOOL])

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        given = params.arguments or {}
        try:
            if params.name == FIND:
                return await _find(finder, given)
            if params.name == CALL:
                return await _call(finder, given, ctx)
        except WarmindexError as error:
            # Told to the model and not to the protocol: it can do better next time.
            return _failed(error.message)
        raise MCPError(INVALID_PARAMS, f"there is no tool {params.name!r:.100}")

    return Server(
        "warmindex-mcp",
        version=__version__,
        title="warmindex: find and call tools",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


Context = ServerRequestContext[Any, Any]


async def _find(finder: Finder, given: Mapping[str, Any]) -> CallToolResult:
    description = given.get("tool_description") or ""
    keywords = given.get("tool_keywords") or []
    if isinstance(keywords, str):
        # Models that were told of a list send a string now and then.
        keywords = keywords.replace(",", " ").split()
    if not isinstance(description, str):
        raise InvalidError("tool_description is no string", field="tool_description")
    if not isinstance(keywords, list) or not all(isinstance(each, str) for each in keywords):
        raise InvalidError("tool_keywords is no list of strings", field="tool_keywords")
    if not description.strip() and not any(each.strip() for each in keywords):
        raise InvalidError(
            "tool_description is empty: say what the tool should do", field="tool_description"
        )
    answer = await finder.find(description, keywords)
    return CallToolResult(content=[TextContent(text=compact(answer))], structured_content=answer)


async def _call(finder: Finder, given: Mapping[str, Any], ctx: Context) -> CallToolResult:
    name = given.get("tool_name")
    if not isinstance(name, str) or not name:
        raise InvalidError("tool_name is missing: give the name from find_tool", field="tool_name")
    parameters = _object(given.get("parameters"))
    try:
        result = await finder.call(name, parameters, ctx.session.report_progress)
    except WarmindexError:
        raise
    except MCPError as error:
        return _failed(f"{name}: {error.message}")
    except (RuntimeError, ValueError) as error:
        # What the SDK makes of an answer that is not what the protocol, or the tool, says.
        return _failed(f"{name}: {error}"[:ERROR_MAX])
    # What the protocol itself put there speaks of another connection.
    meta = {k: v for k, v in (result.meta or {}).items() if not k.startswith(PROTOCOL_META)}
    return result.model_copy(update={"meta": meta or None})


def _object(parameters: object) -> dict[str, Any]:
    """The parameters as an object; some models write it as a string. Raises InvalidError."""
    if parameters is None:
        return {}
    if isinstance(parameters, str):
        try:
            parameters = json.loads(parameters or "{}")
        except (json.JSONDecodeError, RecursionError) as error:
            raise InvalidError(f"parameters is no JSON: {error}", field="parameters") from error
    if not isinstance(parameters, dict):
        raise InvalidError("parameters is no object", field="parameters")
    return parameters


def _failed(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=message)], is_error=True)
