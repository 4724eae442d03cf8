"""Requests that break the contract: the reason, the field at fault, words of the message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.messages import partition
from support.server import ServerHere, fault_of
from warmindex.v1 import event_pb2


@dataclass(frozen=True, slots=True)
class BadRequest:
    """One violation."""

    name: str
    request: Any
    reason: str
    at: str
    says: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


def bad_partitions(
    make: Callable[[event_pb2.PartitionKey | None], Any], *, scheme_matters: bool = True
) -> list[BadRequest]:
    """What a partition's key can break, in a request made of it."""
    found = [
        BadRequest("no partition", make(None), "FIELD_REQUIRED", "partition.model_id"),
        BadRequest(
            "no model", make(partition(model_id="")), "FIELD_REQUIRED", "partition.model_id"
        ),
    ]
    for name, most in (
        ("tenant_id", 128),
        ("model_id", 2048),
        ("adapter_id", 256),
        ("hash_scheme", 64),
    ):
        if name == "hash_scheme" and not scheme_matters:
            continue
        key = partition(**{name: "é" * (most // 2) + "x"})
        says = (f"{most + 1} bytes", str(most))
        field = f"partition.{name}"
        found.append(BadRequest(f"long {name}", make(key), "FIELD_TOO_LONG", field, says))
    return found


async def assert_refused(server: ServerHere, method: str, bad: BadRequest) -> None:
    """The call is refused as it should be, and nothing has changed."""
    before, revision = server.state(), server.store.revision
    fault = await fault_of(getattr(server.stub, method)(bad.request))
    assert fault.status == "INVALID_ARGUMENT", fault
    assert fault.reason == f"ERROR_REASON_{bad.reason}"
    assert fault.domain == "warmindex.v1"
    assert fault.field == bad.at
    assert fault.description == fault.message
    for words in (bad.at, *bad.says):
        assert words in fault.message
    assert (server.state(), server.store.revision) == (before, revision)
