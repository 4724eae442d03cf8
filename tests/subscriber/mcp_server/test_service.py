"""find_tool and call_tool through the SDK's client, in one process: what goes in and out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import TextContent
from support.mcp_world import stdio_config, write_tools
from warmindex_subscriber.mcp.config import ServerConfig
from warmindex_subscriber.mcp_server.finder import Finder
from warmindex_subscriber.mcp_server.service import service
from warmindex_subscriber.mcp_server.tokens import Savings, compact, tokens_of


@asynccontextmanager
async def client_of(*configs: ServerConfig) -> AsyncIterator[Client]:
    """A client of the two tools over some servers; entered and left by one task, as it must be."""
    finder = Finder(configs, embedder=None)
    async with finder, Client(service(finder)) as client:
        yield client


def text_of(result: Any) -> str:
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_two_tools_are_offered():
    """With schemas that say what they take, and words for the model on how to use them."""
    async with client_of() as client:
        tools = (await client.list_tools()).tools
        assert "find_tool" in (client.instructions or "")
    assert [tool.name for tool in tools] == ["find_tool", "call_tool"]
    assert tools[0].input_schema["required"] == ["tool_description"]
    assert set(tools[0].input_schema["properties"]) == {"tool_description", "tool_keywords"}
    assert set(tools[1].input_schema["properties"]) == {"tool_name", "parameters"}


async def test_nothing_behind_it_is_an_empty_answer():
    """No tools, nothing saved, and no division by what is not there."""
    async with client_of() as client:
        result = await client.call_tool("find_tool", {"tool_description": "anything"})
    assert not result.is_error
    assert result.structured_content == {
        "tools": [],
        "token_metrics": {"baseline_tokens": 0, "returned_tokens": 0, "savings_percent": 0.0},
        "notes": ["there is no embedder: tools are found by words alone"],
    }
    assert json.loads(text_of(result)) == result.structured_content


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("find_tool", {}, "tool_description is empty"),
        ("find_tool", {"tool_description": "  ", "tool_keywords": [" "]}, "is empty"),
        ("find_tool", {"tool_description": 7}, "tool_description is no string"),
        ("find_tool", {"tool_description": "a", "tool_keywords": {"b": 1}}, "no list of strings"),
        ("find_tool", {"tool_description": "a", "tool_keywords": [1]}, "no list of strings"),
        ("call_tool", {}, "tool_name is missing"),
        ("call_tool", {"tool_name": 1}, "tool_name is missing"),
        ("call_tool", {"tool_name": "a", "parameters": [1]}, "parameters is no object"),
        ("call_tool", {"tool_name": "a", "parameters": "{"}, "parameters is no JSON"),
        ("call_tool", {"tool_name": "a", "parameters": {}}, "no tool here"),
        ("call_tool", {"tool_name": "find_tool", "parameters": {}}, "no tool here"),
    ],
)
async def test_what_cannot_be_done_is_told_to_the_model(
    tool: str, arguments: dict[str, Any], why: str
):
    """An answer that is an error says what to give, so that the next call may be right."""
    async with client_of() as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert why in text_of(result)


async def test_there_is_no_third_tool():
    """Tools behind the server are called through call_tool only."""
    async with client_of() as client:
        with pytest.raises(MCPError, match="no tool 'create_issue'"):
            await client.call_tool("create_issue", {})


async def test_nothing_that_a_model_can_write_fails(tmp_path: Path):
    """Any description and any keyword has an answer, and what is no syntax is none."""
    path = write_tools(tmp_path / "a.json", ("one", "Do a thing"), ("two", "Do another"))
    async with client_of(stdio_config("a", path)) as client:
        for text in ("\0", '"x', "AND", "*", "name:x", "🧑‍🚀", "(", "x " * 50_000, "文書"):
            arguments = {"tool_description": text, "tool_keywords": [text]}
            result = await client.call_tool("find_tool", arguments)
            assert not result.is_error, (text[:9], text_of(result))


async def test_keywords_and_parameters_may_be_strings(tmp_path: Path):
    """As some models write them: words with commas, an object as JSON."""
    path = write_tools(tmp_path / "a.json", ("send_mail", "Write a letter"), ("wipe", "Clean"))
    async with client_of(stdio_config("a", path)) as client:
        arguments = {"tool_description": "", "tool_keywords": "letter, send"}
        found = await client.call_tool("find_tool", arguments)
        assert [each["name"] for each in found.structured_content["tools"]] == ["send_mail"]
        given = {"tool_name": "send_mail", "parameters": '{"to": "you"}'}
        called = await client.call_tool("call_tool", given)
        assert called.structured_content == {"tool": "send_mail", "arguments": {"to": "you"}}


async def test_servers_that_are_away_are_told_of_once_each_and_few(tmp_path: Path):
    """The model learns why something is missing, at a bounded cost."""
    nobody = [ServerConfig(f"s{n}", "/there/is/no/such/program") for n in range(5)]
    path = write_tools(tmp_path / "a.json", ("send_mail", "Write a letter"))
    async with client_of(*nobody, stdio_config("a", path)) as client:
        result = await client.call_tool("find_tool", {"tool_description": "write a letter"})
        assert [each["name"] for each in result.structured_content["tools"]] == ["send_mail"]
        notes = result.structured_content["notes"]
        assert [note.split(":")[0] for note in notes[:3]] == [
            "server 's0' is away",
            "server 's1' is away",
            "server 's2' is away",
        ]
        assert notes[3] == "2 more servers are away"


def test_tokens_are_counted_by_bytes_of_compact_json():
    """Four bytes a token, in the text's own characters, and the rest of a token is one."""
    assert compact({"a": ["ü", 1]}) == '{"a":["ü",1]}'
    assert tokens_of("") == 1
    assert tokens_of("ab") == 1
    assert tokens_of("abc") == 2


def test_what_is_saved_is_told_in_percent():
    """Of what all tools cost; less than nothing where the answer is longer."""
    assert Savings(1000, 25).savings_percent == 97.5
    assert Savings(100, 110).savings_percent == -10.0
    assert Savings(0, 0).savings_percent == 0.0
