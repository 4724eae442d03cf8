"""Adapter versions, from the list of models that an engine serves.

Engines list their adapters beside the base model, with the place that each was loaded from:

    GET /v1/models -> {"data": [{"id": "sql-lora", "root": "/adapters/sql/7", "parent": "base"}]}

The place is the version: an adapter that is loaded again from elsewhere is another adapter.
One that is replaced in place looks the same; whoever does that gives `--adapter-version`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpx

from warmindex_subscriber.kv.adapters import Adapters
from warmindex_subscriber.kv.decode import EngineEvent, Stored

_log = logging.getLogger(__name__)

POLL_S: Final = 10.0
# A name that the list does not have is looked for again, but not with every batch.
ASK_AGAIN_S: Final = 2.0
TIMEOUT_S: Final = 2.0


def versions_of(models: Any, configured: Mapping[str, str]) -> dict[str, str]:
    """Versions by adapter name, of a decoded model list; `configured` ones win.

    Entries that are not as expected are passed over.
    """
    versions: dict[str, str] = {}
    entries = models.get("data") if isinstance(models, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict):
            continue
        name, root, parent = entry.get("id"), entry.get("root"), entry.get("parent")
        # The base model has no parent, and needs no version.
        if isinstance(name, str) and isinstance(root, str) and name and root and parent:
            versions[name] = root
    return {**versions, **configured}


class AdapterVersions:
    """Keeps `adapters` up to date with an engine's list at `url` (its base URL)."""

    def __init__(self, url: str, adapters: Adapters, configured: Mapping[str, str]) -> None:
        self._url = f"{url.rstrip('/').removesuffix('/v1')}/v1/models"
        self._adapters = adapters
        self._configured = dict(configured)
        self._lock = asyncio.Lock()
        self._asked_at = float("-inf")
        self._failing = False

    async def ensure(self, events: Iterable[EngineEvent]) -> None:
        """Look for the versions of adapters that come up for the first time."""
        for event in events:
            if type(event) is Stored and event.lora_name:
                await self._ensure(event.lora_name)

    async def _ensure(self, name: str) -> None:
        if self._adapters.has_version(name):
            return
        async with self._lock:
            # Somebody may just have been reading it.
            known = self._adapters.has_version(name)
        if not known and time.monotonic() - self._asked_at >= ASK_AGAIN_S:
            await self.refresh()

    async def run(self) -> None:
        """Read the list again and again, until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(POLL_S)

    async def refresh(self) -> None:
        """Read the list now. Where that fails, what is known stays."""
        async with self._lock:
            self._asked_at = time.monotonic()
            try:
                async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
                    response = await client.get(self._url)
                    models = response.raise_for_status().json()
            except (httpx.HTTPError, ValueError) as error:
                if not self._failing:
                    _log.warning("no adapter versions from %s: %r", self._url, error)
                self._failing = True
                return
            self._failing = False
            self._adapters.set_versions(versions_of(models, self._configured))
