"""The examples of the documents, taken out so that a test can run them as they are printed.

A shell example that begins with grpcurl and has the comment ``<!-- runs -->`` on the line
above it is one that must work against a fresh server at the default address::

    <!-- runs -->
    ```sh
    grpcurl -plaintext 127.0.0.1:50151 list
    ```

A ``json`` block right after it, with only blank lines between, is what it prints, shortened
to the fields that are worth reading: `matches` says whether an answer has all of them.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Example:
    """One grpcurl command of a document, and the answer shown for it, if one is."""

    path: Path
    line: int
    command: str
    answer: Any = None

    def arguments(self, address: str = DEFAULT_ADDRESS) -> list[str]:
        """The command as a shell would split it, sent to `address` instead."""
        words = shlex.split(self.command.replace("\\\n", " "))
        return [address if word == DEFAULT_ADDRESS else word for word in words]

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
    previous: Block | None = None
    for block in blocks(path.read_text(encoding="utf-8")):
        if previous and block.language == "json" and not block.before.strip():
            found[-1] = Example(path, previous.line, previous.text.strip(), json.loads(block.text))
        previous = None
        if _is_example(block):
            found.append(Example(path, block.line, block.text.strip()))
            previous = block
    return found


def _is_example(block: Block) -> bool:
    marked = block.before.rstrip().endswith(RUNS)
    return marked and block.language == "sh" and block.text.startswith("grpcurl ")


def matches(shown: Any, answer: Any) -> bool:
    """Whether an answer has all that a document shows of it; lists are shown whole."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(
            key in answer and matches(value, answer[key]) for key, value in shown.items()
        )
    if isinstance(shown, list):
        return (
            isinstance(answer, list)
            and len(shown) == len(answer)
            and all(map(matches, shown, answer, strict=True))
        )
    return bool(shown == answer)
