"""Logs: one line an event, for people or as JSON for machines. On stderr, always."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

from warmindex.options import Options

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")

# What a LogRecord has by itself; all else was given as `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and whatever was given as extra."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as JSON."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name, value in vars(record).items() if name not in _OWN}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def add_options(options: Options) -> None:
    """Add --log-format and --log-level to a command."""
    options.add("--log-format", default="text", choices=FORMATS, help="form of logs")
    options.add("--log-level", default="info", choices=LEVELS, help="least level that is logged")


def configure(log_format: str, level: str) -> None:
    """Send logs to stderr, as "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # A line for every request, or for every file that changed: what matters of those is said by
    # whoever uses them.
    for chatty in ("httpx", "watchfiles"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLogger().level))
