"""docs/contract.md says what the contract and the limits say: its tables are held to them."""

from __future__ import annotations

import re

from support.tree import ROOT
from warmindex import errors, limits
from warmindex.v1.error_reason_pb2 import ErrorReason
from warmindex.v1.event_pb2 import CacheEvent
from warmindex.v1.index_service_pb2 import EventResult, GetEmbeddingsResponse

DOCUMENT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
KIB, MIB = limits.KIB, limits.MIB


def rows(section: str) -> list[list[str]]:
    """The cells of every table row below a heading, up to the next heading of any level."""
    _, found, rest = DOCUMENT.partition(f"# {section}\n")
    assert found, f"no section {section!r}"
    body = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in body.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_field_of_an_event_is_explained():
    """The table has every field of CacheEvent, by number and name, in order."""
    shown = [
        (int(row[0]), row[1].strip("`"))
        for row in rows("An event, field by field")
        if row[0].isdigit()
    ]
    assert shown == [(field.number, field.name) for field in CacheEvent.DESCRIPTOR.fields]


def test_every_outcome_is_explained():
    """Whoever meets an outcome finds what became of the event."""
    shown = [row[0] for row in rows("An event, field by field") if row[0].startswith("OUTCOME_")]
    assert shown == EventResult.Outcome.keys()[1:]


def test_every_state_of_a_key_is_explained():
    """Whoever meets a state finds what to do."""
    shown = {row[0] for row in rows("Claims") if row[0].startswith("STATE_")}
    assert shown == set(GetEmbeddingsResponse.State.keys()[1:])


def test_every_reason_is_explained():
    """The table has every reason that is ever sent, in order, with example and advice."""
    table = [row for row in rows("Reasons") if row[0].startswith("`ERROR_REASON_")]
    assert [row[0].strip("`") for row in table] == ErrorReason.keys()[1:]
    assert all(len(row) == 4 and all(row) for row in table)


def test_the_status_of_a_reason_is_the_one_sent():
    """Where an error of the library carries a reason, the table shows its status."""
    status = {row[0].strip("`"): row[1] for row in rows("Reasons")}
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.WarmindexError)
        and kind.default_reason
    ]
    assert kinds
    for kind in kinds:
        name = ErrorReason.Name(kind.default_reason)
        assert status[name] == kind.status, name


def test_the_librarys_reasons_are_the_contracts():
    """Names and numbers agree, so that an error can be sent by its number."""
    ours = {f"ERROR_REASON_{reason.name}": reason.value for reason in errors.Reason}
    assert ours == dict(ErrorReason.items())


def size(count: int) -> str:
    """A number of bytes as the document writes it."""
    unit, name = (MIB, "MiB") if count >= MIB else (KIB, "KiB")
    assert count % unit == 0
    return f"{count // unit} {name}"


def test_the_limits_are_the_codes():
    """Each number of the table is the constant that the code refuses by."""
    shown = {row[0]: row[1] for row in rows("Limits")}
    hash_bytes = f"1 to {limits.CONTENT_HASH_BYTES_MAX} bytes"
    code = {
        "a gRPC message, either way": size(limits.MESSAGE_BYTES_MAX),
        "an event, encoded": size(limits.EVENT_BYTES_MAX),
        "`replica_id`": f"{limits.REPLICA_ID_BYTES_MAX} bytes",
        "`model_id`": f"{limits.MODEL_ID_BYTES_MAX} bytes",
        "`tenant_id`": f"{limits.TENANT_ID_BYTES_MAX} bytes",
        "`adapter_id`": f"{limits.ADAPTER_ID_BYTES_MAX} bytes",
        "`hash_scheme`": f"{limits.HASH_SCHEME_BYTES_MAX} bytes",
        "`claimant_id`": f"{limits.CLAIMANT_ID_BYTES_MAX} bytes",
        "`content_hashes` of an event, of GetEmbeddings, of ReleaseClaims": str(
            limits.CONTENT_HASHES_MAX
        ),
        "a content hash of `text-sha256`": f"{limits.TEXT_HASH_BYTES} bytes",
        "a content hash of `xxh3-chain/N`": f"{limits.CHAIN_HASH_BYTES} bytes",
        "a content hash of any other scheme": hash_bytes,
        "a content hash of an EVICTED that means every scheme": (
            f"{hash_bytes}, but not {limits.HEX_DIGEST_READ_AS_BASE64_BYTES}"
        ),
        "`dimensions`": f"1 to {limits.DIMENSIONS_MAX}",
        "a document's `name`": size(limits.DOCUMENT_NAME_BYTES_MAX),
        "a document's `description`": size(limits.DOCUMENT_DESCRIPTION_BYTES_MAX),
        "events of one PublishEvents message": str(limits.EVENTS_PER_MESSAGE_MAX),
        "leases of one PublishEvents message": str(limits.LEASES_PER_MESSAGE_MAX),
        "a lease's `ttl`": (
            f"{limits.LEASE_TTL_S_MIN:.0f} s to {limits.LEASE_TTL_S_MAX / 3600:.0f} h"
        ),
        "`claim_ttl`": (
            f"{limits.CLAIM_TTL_S_MAX / 60:.0f} minutes; "
            f"{limits.CLAIM_TTL_S_DEFAULT:.0f} s if unset"
        ),
        "`wait`": f"0 to {limits.WAIT_S_MAX:.0f} s",
        "waiting for `min_revision`": (
            f"`wait` in GetEmbeddings, else {limits.MIN_REVISION_WAIT_S:.0f} s"
        ),
        "`max_bytes`": f"{size(limits.GET_BYTES_MAX)}; {size(limits.GET_BYTES_DEFAULT)} if 0",
        "`query_text`": size(limits.QUERY_TEXT_BYTES_MAX),
        "`keywords`": f"{limits.KEYWORDS_MAX}, together {size(limits.QUERY_TEXT_BYTES_MAX)}",
        "keys in `allowed`": str(limits.ALLOWED_MAX),
        "`limit` of Search": f"{limits.SEARCH_LIMIT_MAX}; {limits.SEARCH_LIMIT_DEFAULT} if 0",
        "`max_distance`": f"0 to {limits.DISTANCE_MAX:.0f}; 1 if unset",
        "`block_hashes`": str(limits.BLOCK_HASHES_MAX),
        "`token_ids`": str(limits.TOKEN_IDS_MAX),
        "`replica_ids` of LookupRoute": str(limits.ROUTE_REPLICAS_MAX),
        "`adapter_ids` of WatchEvents": str(limits.WATCH_ADAPTERS_MAX),
        "`page_size`": f"{limits.PAGE_SIZE_MAX}; {limits.PAGE_SIZE_DEFAULT} if 0",
    }
    del shown["what"]
    # The one limit that no caller can break.
    assert shown.pop("a response of a watch").startswith("4 MiB")
    assert shown == code
