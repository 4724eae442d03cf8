"""The examples of the documents, taken out so that a test can run them as they are printed.

A shell example that begins with grpcurl and has the comment ``<!-- runs -->`` on the line
above it is one that must work against a fresh server at the default address, after the
examples above it in the same document::

    <!-- runs -->
    ```sh
    grpcurl -plaintext 127.0.0.1:50151 warmindex.v1.IndexService/GetServerInfo
    ```

A ``json`` block right after it, with only blank lines between, is what it prints, shortened
to the fields that are worth reading: `matches` says whether an answer has all of them. A
stream has several JSON values, one after the other, in its ``-d`` and in its answer.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEFAULT_ADDRESS = "127.0.0.1:50151"
RUNS = "<!-- runs -->"

_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the line its fence stands on."""

    language: str
    text: str
    line: int
    # What stands between the block before it, or the start, and this one.
    before: str

    @property
    def is_grpcurl(self) -> bool:
        """Whether it is a shell command that begins with grpcurl."""
        return self.language == "sh" and self.text.startswith("grpcurl ")

    @property
    def runs(self) -> bool:
        """Whether the document says that it works as it stands."""
        return self.before.rstrip().endswith(RUNS)


@dataclass(frozen=True, slots=True)
class Example:
    """One grpcurl command of a document, and what the document shows of its answer."""

    path: Path
    line: int
    command: str
    # The JSON values shown, in order; None where the document shows no answer.
    answers: tuple[Any, ...] | None = None

    def arguments(self, address: str = DEFAULT_ADDRESS) -> list[str]:
        """The command as a shell would split it, sent to `address` instead."""
        words = shlex.split(self.command.replace("\\\n", " "))
        return [address if word == DEFAULT_ADDRESS else word for word in words]

    @property
    def method(self) -> str:
        """The method called, "package.Service/Method", or "" for list and describe."""
        last = self.arguments()[-1]
        return last if "/" in last else ""

    @property
    def requests(self) -> tuple[Any, ...]:
        """The JSON values that it sends."""
        words = self.arguments()
        return json_values(words[words.index("-d") + 1]) if "-d" in words else ()

    def __str__(self) -> str:
        return f"{self.path.name}:{self.line}"


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, in order."""
    end = 0
    for match in _FENCE.finditer(text):
        yield Block(
            language=match["language"],
            text=match["text"],
            line=text.count("\n", 0, match.start()) + 1,
            before=text[end : match.start()],
        )
        end = match.end()


def examples(path: Path) -> list[Example]:
    """The grpcurl examples of a document that are marked to run, in order."""
    found: list[Example] = []
    after_example = False
    for block in blocks(path.read_text(encoding="utf-8")):
        if after_example and block.language == "json" and not block.before.strip():
            found[-1] = replace(found[-1], answers=json_values(block.text))
        after_example = block.is_grpcurl and block.runs
        if after_example:
            found.append(Example(path, block.line, block.text.strip()))
    return found


def json_values(text: str) -> tuple[Any, ...]:
    """The JSON values of a text, one after the other."""
    decoder = json.JSONDecoder()
    values: list[Any] = []
    rest = text.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        values.append(value)
        rest = rest[end:].lstrip()
    return tuple(values)


def matches(shown: Any, answer: Any) -> bool:
    """Whether an answer has all that a document shows of it; lists are shown whole."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(
            key in answer and matches(value, answer[key]) for key, value in shown.items()
        )
    if isinstance(shown, list | tuple):
        return (
            isinstance(answer, list | tuple)
            and len(shown) == len(answer)
            and all(map(matches, shown, answer))
        )
    return bool(shown == answer)
