"""A server for whoever asks for one."""

from __future__ import annotations

from support.server import server

__all__ = ["server"]
