"""An engine's names and numbers for adapters -> adapter ids of the index.

The name wins over the number: a number is the order in which one engine loaded its
adapters, so that equal numbers on two engines may mean different ones. A number without a
name needs a map; without an entry there the adapter is unknown, and unknown is never the
base model. Names are opaque: case and white space count.

A name alone does not identify an adapter that is reloaded, so that a version, where one is
known, is part of the id: "sql-lora@7".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from warmindex import limits

_log = logging.getLogger(__name__)

# Each unmapped adapter is warned of once; an engine that makes numbers up shall not fill
# the memory with what was warned of.
_WARNED_MAX: Final = 1024

BASE: Final = ""


class Adapters:
    """Resolves what an engine calls an adapter.

    `name_of_id` maps an engine's numbers to names, `version_of_name` names to versions. With
    `versions_required` an adapter without a version is unknown: it may be any of its lives.
    """

    def __init__(
        self,
        name_of_id: Mapping[int, str] | None = None,
        version_of_name: Mapping[str, str] | None = None,
        *,
        versions_required: bool = False,
    ) -> None:
        self._name_of_id = dict(name_of_id or {})
        self._version_of_name = dict(version_of_name or {})
        self._versions_required = versions_required
        self._resolved: dict[str, str] = {}
        self._warned: set[object] = set()

    def set_versions(self, version_of_name: Mapping[str, str]) -> None:
        """Take versions over; what is stored from now on goes under them."""
        if version_of_name.items() <= self._version_of_name.items():
            return
        self._version_of_name.update(version_of_name)
        self._resolved.clear()

    def has_version(self, name: str) -> bool:
        """Whether a version of the adapter is known."""
        return name in self._version_of_name

    def resolve(self, lora_name: str | None, lora_id: int | None) -> str | None:
        """The adapter id; "" is the base model, None is an adapter that nobody can name."""
        if lora_name is None or lora_name == "":
            if lora_id is None:
                return BASE
            name = self._name_of_id.get(lora_id)
            if not name:
                self._warn(lora_id, f"lora_id {lora_id} has no name: add it to --adapter-map")
                return None
            lora_name = name
        adapter_id = self._resolved.get(lora_name)
        return adapter_id if adapter_id is not None else self._with_version(lora_name)

    def _with_version(self, name: str) -> str | None:
        version = self._version_of_name.get(name)
        if version is None and self._versions_required:
            self._warn(name, f"adapter {name[:64]!r} has no version yet: its blocks are left out")
            return None
        adapter_id = name if version is None else f"{name}@{version}"
        if len(adapter_id.encode()) > limits.ADAPTER_ID_BYTES_MAX:
            self._warn(
                name,
                f"adapter {name[:64]!r} has more than {limits.ADAPTER_ID_BYTES_MAX} bytes with "
                "its version: its blocks are not indexed",
            )
            return None
        if len(self._resolved) < _WARNED_MAX:
            self._resolved[name] = adapter_id
        return adapter_id

    def _warn(self, key: object, text: str) -> None:
        if key not in self._warned and len(self._warned) < _WARNED_MAX:
            self._warned.add(key)
            _log.warning("%s", text)
