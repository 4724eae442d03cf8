"""The Go example, by Go's own tools, against a server of this project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import toolchain, tour
from support.server import ServerProcess
from support.tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * toolchain.RUN_S_MAX)]

EXAMPLE = ROOT / "examples" / "go"
# The Go that is here, and no other that it would fetch.
VARIABLES = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}


@pytest.fixture(scope="module")
def go() -> str:
    """Go, with all modules that the example needs."""
    program = toolchain.program("go")
    wanted = re.findall(r"^go (\S+)$", (EXAMPLE / "go.mod").read_text(), re.MULTILINE)[0]
    version = toolchain.run([program, "env", "GOVERSION"], ROOT, **VARIABLES).strip()
    if numbers(version.removeprefix("go")) < numbers(wanted):
        pytest.skip(f"{version} is installed, and the example needs go{wanted}")
    toolchain.fetch([program, "mod", "download"], EXAMPLE, **VARIABLES)
    return program


def numbers(version: str) -> list[int]:
    """The numbers of a version: "1.26.0" -> [1, 26, 0]."""
    return [int(number) for number in re.findall(r"\d+", version)]


def test_its_own_tests_pass(go: str, index: ServerProcess):
    """Keys, identities, get, put, claims and search do what they should."""
    server = {"WARMINDEX_SERVER": index.address}
    out = toolchain.run([go, "test", "-count=1", "-v", "."], EXAMPLE, **VARIABLES, **server)
    assert "--- SKIP" not in out
    assert out.count("--- PASS") >= 8


def test_keys_are_the_contracts(go: str, more_vectors: Path):
    """Its keys and identities are those of the contract's own vectors too."""
    golden = ["-run", "TestTextKeys|TestChainKeys|TestModelIDs"]
    vectors = {"WARMINDEX_VECTORS": str(more_vectors)}
    out = toolchain.run(
        [go, "test", "-count=1", "-v", *golden, "."], EXAMPLE, **VARIABLES, **vectors
    )
    assert out.count("--- PASS") == 3


async def test_it_shares_with_this_package(go: str, index: ServerProcess):
    """What it publishes this package finds under its own keys; a second run computes nothing."""
    await tour.clear(index.address)
    command = [go, "run", "./cmd/tour", "-server", index.address]
    first = toolchain.run(command, EXAMPLE, **VARIABLES).splitlines()
    assert first[:5] == tour.printed(computed=3)
    assert first[5].endswith(" read_rain_gauge")
    await tour.check_published(index.address)
    assert toolchain.run(command, EXAMPLE, **VARIABLES).splitlines()[:5] == tour.printed(0)


def test_its_generated_code_is_the_contracts(go: str, tmp_path: Path):
    """The committed code is what today's contract gives; a comment may be of an older day."""
    copy = toolchain.copy_of("go", tmp_path)
    toolchain.run(["buf", "generate"], copy, **VARIABLES)
    committed, made = (statements(folder / "warmindexv1") for folder in (EXAMPLE, copy))
    assert committed.keys() == made.keys()
    for name, lines in made.items():
        assert lines == committed[name], f"run `buf generate` in examples/go: {name} has changed"


def statements(folder: Path) -> dict[str, list[str]]:
    """The lines of each file, comments left out."""
    return {
        path.name: [
            line
            for line in path.read_text(encoding="utf-8").splitlines()
            if not line.lstrip().startswith("//")
        ]
        for path in folder.iterdir()
    }


def test_it_is_formatted_and_vetted(go: str):
    """Neither gofmt nor vet finds anything."""
    toolchain.run([go, "vet", "./..."], EXAMPLE, **VARIABLES)
    gofmt = str(Path(go).resolve().parent / "gofmt")
    assert toolchain.run([gofmt, "-l", "."], EXAMPLE) == ""
