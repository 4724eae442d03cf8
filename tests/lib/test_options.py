"""Options from flags and from WARMINDEX_* variables."""

from __future__ import annotations

import argparse

import pytest
from warmindex.options import Options, address, seconds, variable_of


def parser() -> argparse.ArgumentParser:
    """A command with an option of each kind."""
    parser = argparse.ArgumentParser(prog="x", exit_on_error=True)
    options = Options(parser)
    options.add("--server", default="127.0.0.1:1", type=address, help="where, at 100%")
    options.add("--wait", default=2.5, type=seconds, help="how long")
    options.add("--form", default="text", choices=("text", "json"), help="which form")
    options.add("--name", default="", help="who")
    options.switch("--secure", help="whether")
    return parser


def parse(*arguments: str) -> dict[str, object]:
    return vars(parser().parse_args(list(arguments)))


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for flag in ("--server", "--wait", "--form", "--name", "--secure"):
        monkeypatch.delenv(variable_of(flag), raising=False)


def test_the_defaults():
    """Without flags and variables."""
    assert parse() == {
        "server": "127.0.0.1:1",
        "wait": 2.5,
        "form": "text",
        "name": "",
        "secure": False,
    }


def test_a_variable_has_the_flags_name():
    """In capitals, with underscores."""
    assert variable_of("--http-listen") == "WARMINDEX_HTTP_LISTEN"


def test_variables_are_read_like_flags(monkeypatch):
    """With the flag's type."""
    monkeypatch.setenv("WARMINDEX_SERVER", "[::1]:2")
    monkeypatch.setenv("WARMINDEX_WAIT", "7")
    monkeypatch.setenv("WARMINDEX_FORM", "json")
    monkeypatch.setenv("WARMINDEX_SECURE", "yes")
    found = parse()
    assert (found["server"], found["wait"], found["form"]) == ("[::1]:2", 7.0, "json")
    assert found["secure"] is True


def test_a_flag_wins_over_its_variable(monkeypatch):
    """Either way round for a switch."""
    monkeypatch.setenv("WARMINDEX_WAIT", "7")
    monkeypatch.setenv("WARMINDEX_SECURE", "1")
    found = parse("--wait", "3", "--no-secure")
    assert (found["wait"], found["secure"]) == (3.0, False)
    monkeypatch.setenv("WARMINDEX_SECURE", "0")
    assert parse("--secure")["secure"] is True


@pytest.mark.parametrize("word", ["1", "true", "YES", " on "])
def test_words_for_true(monkeypatch, word: str):
    """As people write them."""
    monkeypatch.setenv("WARMINDEX_SECURE", word)
    assert parse()["secure"] is True


@pytest.mark.parametrize("word", ["", "0", "False", "no", "OFF"])
def test_words_for_false(monkeypatch, word: str):
    """An empty variable is as good as none."""
    monkeypatch.setenv("WARMINDEX_SECURE", word)
    assert parse()["secure"] is False


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WARMINDEX_SERVER", "nowhere"),
        ("WARMINDEX_WAIT", "long"),
        ("WARMINDEX_FORM", "xml"),
        ("WARMINDEX_SECURE", "perhaps"),
    ],
)
def test_a_bad_variable_is_refused_by_name(monkeypatch, capsys, variable: str, value: str):
    """People must find out which one of many it was."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit) as ended:
        parse()
    said = f"{ended.value.code} {capsys.readouterr().err}"
    flag = "--" + variable.removeprefix("WARMINDEX_").lower()
    assert variable in said or flag in said
    assert value in said


def test_an_empty_variable_of_a_value_is_that_value(monkeypatch):
    """A name may be set to nothing."""
    monkeypatch.setenv("WARMINDEX_NAME", "")
    assert parse()["name"] == ""


def test_help_shows_default_and_variable(capsys):
    """Of each, percent signs and all."""
    with pytest.raises(SystemExit) as ended:
        parse("--help")
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "where, at 100%" in shown
    assert "[default: 127.0.0.1:1; WARMINDEX_SERVER]" in shown
    assert "[default: none; WARMINDEX_NAME]" in shown
    assert "[default: off; WARMINDEX_SECURE]" in shown


@pytest.mark.parametrize("text", ["127.0.0.1:0", "host:65535", "[::1]:50151", "a.b-c:1"])
def test_addresses(text: str):
    """HOST:PORT."""
    assert address(text) == text


@pytest.mark.parametrize("text", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1"])
def test_what_is_no_address(text: str):
    """No host, no port, or a port that is none."""
    with pytest.raises(argparse.ArgumentTypeError, match="HOST:PORT"):
        address(text)


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("1.5", 1.5), ("1e3", 1000.0)])
def test_seconds(text: str, value: float):
    """Any number of them, none too."""
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "-0.001"])
def test_what_is_no_number_of_seconds(text: str):
    """Less than none, more than any."""
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)
