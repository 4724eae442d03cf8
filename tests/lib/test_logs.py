"""Logs: one JSON object a line, whatever is in it."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from warmindex.logs import JsonFormatter


def test_a_record_is_one_line_that_says_when_in_any_zone():
    """Line breaks and extras stay inside; the time names its zone."""
    record = logging.makeLogRecord({"msg": "two\nlines \ud83d", "levelname": "INFO", "name": "x"})
    record.replica_id = object()
    line = JsonFormatter().format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["message"], entry["level"], entry["logger"]) == ("two\nlines \ud83d", "info", "x")
    assert "replica_id" in entry
    written = datetime.fromisoformat(entry["time"])
    assert abs(written - datetime.fromtimestamp(record.created, UTC)).total_seconds() < 0.001
