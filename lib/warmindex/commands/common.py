"""What the commands share: where the index is, which partition is meant, how answers look."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from enum import Enum
from typing import Any

from rich.console import Console
from rich.table import Table

from warmindex.connection import add_connection_options, client_of
from warmindex.errors import InvalidError
from warmindex.event import PartitionKey
from warmindex.options import Options

__all__ = [
    "add_command",
    "add_partition_options",
    "client_of",
    "content_hash",
    "key_of",
    "plain",
    "show_json",
    "show_table",
]


def add_command(commands: Any, name: str, help: str, description: str) -> argparse.ArgumentParser:  # noqa: A002 - argparse's own word
    """A command with --server and --json."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=help, description=description)
    options = Options(command)
    add_connection_options(options)
    options.switch("--json", help="print JSON instead of a table")
    return command


def add_partition_options(command: argparse.ArgumentParser, scheme_default: str = "") -> None:
    """Which partition is meant."""
    options = Options(command)
    options.add("--tenant", default="", metavar="NAME", help="the tenant")
    options.add("--model", default="", metavar="MODEL_ID", help="the model's identity")
    options.add("--adapter", default="", metavar="NAME", help="the adapter's partition")
    options.add(
        "--scheme", default=scheme_default, metavar="NAME", help="the hash scheme of the keys"
    )


def key_of(arguments: argparse.Namespace) -> PartitionKey:
    """The partition that the options name. Raises InvalidError without a model."""
    if not arguments.model:
        raise InvalidError("--model is empty: name the model_id, as ListPartitions shows it")
    return PartitionKey(arguments.tenant, arguments.model, arguments.scheme, arguments.adapter)


def content_hash(text: str) -> bytes:
    """A content hash from hex digits; for an argument's `type`."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not hex digits") from None


def show_json(value: Any) -> None:
    """Print a value as JSON: tuples as lists, bytes as hex, enums by name."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """A value as JSON can carry it; named tuples become objects."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows as a table, whole values and no frame."""
    table = Table(*columns, box=None, padding=(0, 2), header_style="bold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console().print(table)
