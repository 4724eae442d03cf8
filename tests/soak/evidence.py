"""What the processes of a run write down, a JSON object a line, for the checks afterwards.

A line that a kill -9 has cut short is the last one of its life and is left out.

    ack     an event's answer: its producer and number, the revision, what became of it
    failed  a call that was not answered, and why
    seen    what a watcher was told of one revision
    copy    what a copy had, or a server, at one revision
    truth   what a producer holds in the end
    wrong   something that may never be
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.model import Place


class View(NamedTuple):
    """Which part of the index somebody watches."""

    tenant_id: str = ""
    adapter_ids: tuple[str, ...] = ()
    embeddings: bool = True


class Evidence:
    """One process's file; several lives of it follow each other in one."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        # A life before may have been killed in the middle of a line.
        self._file.write("\n")

    def note(self, kind: str, **fields: Any) -> None:
        """Write down one thing; it is there although the process is killed now."""
        self._file.write(json.dumps({"kind": kind, **fields}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Write no more."""
        self._file.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """What was written down."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        yield found


def lines_of(content: Mapping[Place, Any], view: View) -> list[str]:
    """What a view of some content comes to, one line an entry, in order."""
    found = []
    for place, (holds, vector, document, tokens) in content.items():
        if place.key.tenant_id != view.tenant_id:
            continue
        if view.adapter_ids and place.key.adapter_id not in view.adapter_ids:
            continue
        names = sorted((hold.replica_id, int(hold.tier)) for hold in holds)
        row = vector.hex() if vector is not None and view.embeddings else None
        text = list(document) if document is not None else None
        found.append(repr((*place.key, place.content_hash.hex(), names, row, text, tokens)))
    return sorted(found)


def digest(lines: list[str] | list[bytes]) -> str:
    """A short name for some lines."""
    whole = hashlib.sha256()
    for line in lines:
        whole.update(line if isinstance(line, bytes) else line.encode())
        whole.update(b"\n")
    return whole.hexdigest()[:16]
