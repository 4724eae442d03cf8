"""Names of tools of several servers: each tool has one, and no name is two tools."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from warmindex_subscriber.mcp_server.names import ToolNames

# Few letters, so that everything collides with everything, separators included.
words = st.text("ab_", min_size=1, max_size=4)
tools = st.lists(st.tuples(words, words), unique=True, max_size=12).map(
    lambda pairs: [(server, name, f"{server}/{name}") for server, name in pairs]
)


def named(*pairs: tuple[str, str]) -> ToolNames[str]:
    return ToolNames((server, name, f"{server}/{name}") for server, name in pairs)


@given(tools)
def test_every_tool_is_called_by_its_one_name(listed: list[tuple[str, str, str]]):
    """As many names as tools, all different, and each leads to its tool."""
    names = ToolNames(listed)
    assert sorted(each.tool for each in names.tools) == sorted(tool for _, _, tool in listed)
    assert len({each.name for each in names.tools}) == len(listed)
    for each in names.tools:
        assert names.get(each.name) == each


@given(tools)
def test_the_same_set_has_the_same_names(listed: list[tuple[str, str, str]]):
    """A restart does not rename anything."""
    assert ToolNames(listed).tools == ToolNames(listed).tools


@given(tools, words)
def test_a_name_leads_to_a_tool_that_has_it_or_to_none(
    listed: list[tuple[str, str, str]], name: str
):
    """No name is ever guessed: what it leads to is called that, there or here."""
    found = ToolNames(listed).get(name)
    if found is not None:
        assert name in {found.name, f"{found.server}__{found.tool_name}"}


def test_a_tool_that_one_server_has_keeps_its_name():
    """It is also found under its server's name."""
    names = named(("github", "create_issue"), ("mail", "send"))
    assert [each.name for each in names.tools] == ["create_issue", "send"]
    assert names.get("github__create_issue") == names.get("create_issue")


def test_a_name_of_several_servers_is_none():
    """Each is told from the others by its server's name, and the plain name says which."""
    names = named(("github", "search"), ("mail", "send"), ("wiki", "search"))
    assert names.get("search") is None
    assert names.alternatives("search") == ["github__search", "wiki__search"]
    found = names.get("wiki__search")
    assert found is not None
    assert found.tool == "wiki/search"


def test_a_name_that_looks_like_anothers_stays_with_its_owner():
    """A tool that is called like a server and a tool keeps its name; the other gets a number."""
    names = named(("a", "b"), ("c", "b"), ("d", "a__b"))
    assert {each.name: each.tool for each in names.tools} == {
        "a__b": "d/a__b",
        "a__b_2": "a/b",
        "c__b": "c/b",
    }
