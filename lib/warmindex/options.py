"""Options of the commands: each from a flag or from a WARMINDEX_* variable.

A flag wins over its variable, the variable over the default; `--help` shows both. A bad
value is refused with its name, wherever it came from.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ENVIRONMENT_PREFIX = "WARMINDEX_"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


class Options:
    """Adds options to a parser (or a group of one) that also come from the environment."""

    def __init__(self, parser: argparse._ActionsContainer) -> None:
        self._parser = parser

    def add(
        self,
        flag: str,
        *,
        default: Any,
        help: str,  # noqa: A002 - argparse's own word
        type: Callable[[str], Any] = str,  # noqa: A002 - argparse's own word
        metavar: str | None = None,
        choices: Sequence[str] | None = None,
    ) -> None:
        """Add `--flag VALUE`, read from WARMINDEX_FLAG where the flag is not given."""
        variable = variable_of(flag)
        value = os.environ.get(variable, default)
        if choices is not None and isinstance(value, str) and value not in choices:
            # argparse checks choices of flags only, never those of defaults.
            raise SystemExit(f"error: {variable} is {value!r}; choose from {', '.join(choices)}")
        shown = default if default not in (None, "") else "none"
        self._parser.add_argument(
            flag,
            default=value,
            type=type,
            metavar=metavar,
            choices=choices,
            help=_escaped(f"{help} [default: {shown}; {variable}]"),
        )

    def switch(self, flag: str, *, help: str) -> None:  # noqa: A002 - argparse's own word
        """Add `--flag` / `--no-flag`, off by default."""
        variable = variable_of(flag)
        self._parser.add_argument(
            flag,
            action=argparse.BooleanOptionalAction,
            default=_truth(variable, os.environ.get(variable, "")),
            help=_escaped(f"{help} [default: off; {variable}]"),
        )


def variable_of(flag: str) -> str:
    """The environment variable of a flag: `--http-listen` has WARMINDEX_HTTP_LISTEN."""
    return ENVIRONMENT_PREFIX + flag.lstrip("-").replace("-", "_").upper()


def seconds(text: str) -> float:
    """A number of seconds, 0 or more; for an option's `type`."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds, 0 or more")
    return value


def address(text: str) -> str:
    """HOST:PORT, with brackets around an IPv6 host; for an option's `type`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return text


def _truth(variable: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise SystemExit(f"error: {variable} is {text!r}; use 1 or 0")
    return word in _TRUE


def _escaped(text: str) -> str:
    """The text as argparse prints it, which takes % for a place to fill in."""
    return text.replace("%", "%%")
