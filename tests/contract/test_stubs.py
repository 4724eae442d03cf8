"""The committed stubs are what the contract and the pinned generators give."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from support.tree import PROTO, ROOT, STUBS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The stubs made anew, by their path from lib."""
    out = tmp_path_factory.mktemp("lib")
    subprocess.run(
        [str(ROOT / "scripts" / "proto.sh"), str(out)],
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
        timeout=60,
    )
    return stubs_below(out, out.rglob("*.py*"))


def stubs_below(lib: Path, paths: Iterable[Path]) -> dict[str, str]:
    return {
        path.relative_to(lib).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
        if path.suffix in {".py", ".pyi"} and path.name != "__init__.py"
    }


def test_the_stubs_have_not_drifted(generated: dict[str, str]):
    """Every committed stub equals one made now, and none is missing or left over."""
    committed = stubs_below(ROOT / "lib", (path for folder in STUBS for path in folder.iterdir()))
    assert sorted(committed) == sorted(generated), "run `make proto` and commit what it changes"
    drifted = [name for name in generated if committed[name] != generated[name]]
    assert not drifted, "run `make proto` and commit what it changes"


def test_every_proto_file_has_stubs_and_types(generated: dict[str, str]):
    """A .proto file that the script forgets would leave its importers without types."""
    for proto in PROTO.rglob("*.proto"):
        stem = proto.relative_to(PROTO).with_suffix("").as_posix()
        assert {f"{stem}_pb2.py", f"{stem}_pb2.pyi"} <= set(generated)


def lower_bound(name: str) -> tuple[int, ...]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["dependencies"]:
        if match := re.fullmatch(rf"{name}>=([\d.]+)", requirement):
            return version(match[1])
    raise AssertionError(f"pyproject.toml gives {name} no lower bound")


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def test_the_stubs_load_with_the_oldest_runtime_allowed(generated: dict[str, str]):
    """Stubs refuse an older runtime than their generator's, so the dependencies must too."""
    calls = generated["warmindex/v1/index_service_pb2_grpc.py"]
    messages = generated["warmindex/v1/index_service_pb2.py"]
    grpc_needed = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", calls)
    protobuf_needed = re.search(r"Protobuf Python Version: ([\d.]+)", messages)
    assert grpc_needed
    assert protobuf_needed
    assert lower_bound("grpcio") >= version(grpc_needed[1])
    assert lower_bound("protobuf") >= version(protobuf_needed[1])
