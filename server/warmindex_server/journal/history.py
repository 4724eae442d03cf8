"""Histories: one journal's life, and where its revisions start."""

from __future__ import annotations

import secrets
import time


def new_history_id() -> str:
    """A name that no other history has."""
    return secrets.token_hex(16)


def first_revision(above: int = 0) -> int:
    """The first revision of a history that begins now.

    Unix microseconds: no journal appends a million records a second for years, so a new
    history starts above all that came before, also where nothing is left to tell. `above` is
    the last revision known, for a clock that was set back.
    """
    return max(time.time_ns() // 1000, above + 1)
