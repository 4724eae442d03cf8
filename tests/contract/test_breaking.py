"""The gate before every change of the contract: `make proto-breaking`, tried on real changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.tree import PROTO, RELEASED_CONTRACT, ROOT, tool

EVENT = "event.proto"
SERVICE = "index_service.proto"
REASONS = "error_reason.proto"

# What `buf breaking` exits with when it has found something; 1 is a failure of its own.
FOUND = 100


@dataclass(frozen=True)
class Change:
    """One edit of a .proto file, and words of what the gate says to it ("" for nothing)."""

    name: str
    file: str
    old: str
    new: str
    complaint: str = ""

    def __str__(self) -> str:
        return self.name


REFUSED = [
    Change(
        "an implicit field made optional",
        EVENT,
        "  string adapter_id = 7;",
        "  optional string adapter_id = 7;",
        'Field "7" with name "adapter_id" on message "CacheEvent" changed cardinality',
    ),
    Change(
        "a field removed",
        EVENT,
        "  bool adapter_scoped = 8;\n",
        "",
        'Previously present field "8" with name "adapter_scoped" on message "CacheEvent" was del',
    ),
    Change(
        "a field removed, its number reserved",
        EVENT,
        "  bool adapter_scoped = 8;\n",
        "  reserved 8;\n",
        'Previously present field "8" with name "adapter_scoped" on message "CacheEvent" was del',
    ),
    Change(
        "a field renumbered",
        EVENT,
        "  string hash_scheme = 9;",
        "  string hash_scheme = 17;",
        'Previously present field "9" with name "hash_scheme" on message "CacheEvent" was deleted',
    ),
    Change(
        "a field renamed",
        EVENT,
        "  string hash_scheme = 9;",
        "  string scheme = 9;",
        'Field "9" on message "CacheEvent" changed name from "hash_scheme" to "scheme"',
    ),
    Change(
        "a field of another type",
        EVENT,
        "  int64 timestamp_us = 6;",
        "  uint64 timestamp_us = 6;",
        'Field "6" with name "timestamp_us" on message "CacheEvent" changed type',
    ),
    Change(
        "an enum value renumbered",
        EVENT,
        "    ALL_CLEARED = 4;",
        "    ALL_CLEARED = 5;",
        'Previously present enum value "4" on enum "Type" was deleted',
    ),
    Change(
        "an enum value renamed",
        REASONS,
        "  ERROR_REASON_QUOTA = 40;",
        "  ERROR_REASON_LIMIT = 40;",
        'Enum value "40" on enum "ErrorReason" changed name',
    ),
    Change(
        "a reserved number set free",
        EVENT,
        "    reserved 3;\n",
        "",
        'Previously present reserved range "[3]" on enum "Type" is missing',
    ),
    Change(
        "a call removed",
        SERVICE,
        "  rpc ReleaseClaims(ReleaseClaimsRequest) returns (ReleaseClaimsResponse);\n",
        "",
        'Previously present RPC "ReleaseClaims" on service "IndexService" was deleted',
    ),
    Change(
        "a unary call made a stream",
        SERVICE,
        "  rpc Search(SearchRequest) returns (SearchResponse);",
        "  rpc Search(SearchRequest) returns (stream SearchResponse);",
        'RPC "Search" on service "IndexService" changed from server unary to server streaming',
    ),
]

ALLOWED = [
    Change("no change", EVENT, "", ""),
    Change(
        "a field added",
        EVENT,
        "  Cause cause = 16;\n",
        "  Cause cause = 16;\n  // block_bytes is a block's size.\n  uint32 block_bytes = 17;\n",
    ),
    Change(
        "a comment added",
        EVENT,
        "  // type is required.\n",
        "  // type is required. An event without one is refused.\n",
    ),
    Change(
        "an enum value added",
        REASONS,
        "  ERROR_REASON_PERMISSION = 51;\n",
        "  ERROR_REASON_PERMISSION = 51;\n  // ERROR_REASON_OTHER: …\n  ERROR_REASON_OTHER = 52;\n",
    ),
    Change(
        "a call added",
        SERVICE,
        "  // Search ranks",
        "  // Ping answers.\n"
        "  rpc Ping(GetServerInfoRequest) returns (GetServerInfoResponse);\n"
        "  // Search ranks",
    ),
    Change(
        "a home for Go's generated code",
        EVENT,
        "package warmindex.v1;\n",
        'package warmindex.v1;\n\noption go_package = "example.com/warmindex/v1;warmindexv1";\n',
    ),
]


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    """A copy of the contract with its rules, without any part of the user's environment."""
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    shutil.copytree(PROTO, tmp_path / "proto")
    return tmp_path


def buf(contract: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("buf"), *arguments],
        cwd=contract,
        env={"PATH": os.defpath, "HOME": str(contract)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def gate(contract: Path) -> subprocess.CompletedProcess[str]:
    """What `make proto-breaking` runs for the contract."""
    return buf(contract, "breaking", "--against", str(RELEASED_CONTRACT))


def apply(change: Change, contract: Path) -> None:
    path = contract / "proto" / "warmindex" / "v1" / change.file
    text = path.read_text(encoding="utf-8")
    assert not change.old or text.count(change.old) == 1, "the edit must hit one place"
    path.write_text(text.replace(change.old, change.new, 1), encoding="utf-8")


@pytest.mark.parametrize("change", REFUSED, ids=str)
def test_a_change_that_breaks_somebody_is_refused(change: Change, contract: Path):
    """The gate fails and names what was changed."""
    apply(change, contract)
    result = gate(contract)
    assert result.returncode == FOUND, result.stdout + result.stderr
    assert change.complaint in result.stdout


@pytest.mark.parametrize("change", ALLOWED, ids=str)
def test_a_change_that_only_adds_is_let_through(change: Change, contract: Path):
    """The gate is quiet."""
    apply(change, contract)
    result = gate(contract)
    assert (result.returncode, result.stdout) == (0, ""), result.stdout + result.stderr


def test_a_file_removed_is_refused(contract: Path):
    """The reasons may not vanish from the file where importers look for them."""
    (contract / "proto" / "warmindex" / "v1" / REASONS).rename(
        contract / "proto" / "warmindex" / "v1" / "reasons.proto"
    )
    service = contract / "proto" / "warmindex" / "v1" / SERVICE
    service.write_text(
        service.read_text(encoding="utf-8").replace("v1/error_reason.proto", "v1/reasons.proto"),
        encoding="utf-8",
    )
    result = gate(contract)
    assert result.returncode == FOUND
    assert "error_reason.proto" in result.stdout


@pytest.mark.parametrize(
    "comment",
    [
        "  // outcome is the verdict.\n",
        "    // OUTCOME_APPLIED means that the index changed.\n",
    ],
    ids=["of a field", "of an enum value"],
)
def test_a_missing_comment_is_found(comment: str, contract: Path):
    """`make proto-lint` wants a comment on every field and enum value."""
    apply(Change("a comment removed", SERVICE, comment, ""), contract)
    result = buf(contract, "lint")
    assert result.returncode == FOUND, result.stdout + result.stderr
    assert "should have a non-empty comment" in result.stdout


def test_the_makefile_runs_the_gate(contract: Path):
    """`make proto-breaking` finds what the tests above find, with the image beside it."""
    apply(REFUSED[0], contract)
    shutil.copy(ROOT / "Makefile", contract)
    # An environment that make takes for complete: nothing is installed here.
    environment = contract / "environment"
    environment.mkdir()
    for name in ("pyproject.toml", "requirements-dev.lock"):
        (contract / name).touch()
    for stamp in (".made", ".dev"):
        (environment / stamp).touch()
    result = subprocess.run(
        ["make", "proto-breaking", f"BIN={Path(tool('buf')).parent}", f"VENV={environment}"],
        cwd=contract,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert result.returncode != 0
    assert REFUSED[0].complaint in result.stdout


def test_a_copy_in_another_project_can_be_held_against_it(contract: Path):
    """The command that docs/contract.md gives works on a copy without any configuration."""
    copy = contract / "elsewhere" / "third_party"
    shutil.copytree(PROTO / "warmindex" / "v1", copy / "warmindex" / "v1")
    same = buf(copy.parent, "breaking", "third_party", "--against", str(RELEASED_CONTRACT))
    assert (same.returncode, same.stdout) == (0, ""), same.stderr
    event = copy / "warmindex" / "v1" / EVENT
    text = event.read_text(encoding="utf-8")
    event.write_text(text.replace("  bool adapter_scoped = 8;\n", ""), encoding="utf-8")
    older = buf(copy.parent, "breaking", "third_party", "--against", str(RELEASED_CONTRACT))
    assert older.returncode == FOUND
    assert '"adapter_scoped"' in older.stdout


def test_the_released_contract_is_an_image_of_its_own(contract: Path):
    """It is complete: `buf` reads it alone and finds the service in it."""
    listing = buf(contract, "build", str(RELEASED_CONTRACT), "-o", "released.json")
    assert listing.returncode == 0, listing.stderr
    assert '"IndexService"' in (contract / "released.json").read_text(encoding="utf-8")
