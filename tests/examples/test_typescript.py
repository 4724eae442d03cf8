"""The TypeScript example, by Node's own tools, against a server of this project."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import toolchain, tour
from support.server import ServerProcess
from support.tree import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * toolchain.RUN_S_MAX)]

NODE_MAJOR_MIN = 20


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in a folder of its own: installed, generated and built."""
    node, npm = toolchain.program("node"), toolchain.program("npm")
    folder = toolchain.copy_of("typescript", tmp_path_factory.mktemp("typescript"))
    version = toolchain.run([node, "--version"], folder)
    if int(version.lstrip("v").partition(".")[0]) < NODE_MAJOR_MIN:
        pytest.skip(f"node is {version.strip()}, and {NODE_MAJOR_MIN} is the least")
    # No code of a package runs here but what the example calls.
    toolchain.fetch([npm, "ci", "--ignore-scripts"], folder)
    for script in ("generate", "build"):
        toolchain.run([npm, "run", script], folder)
    return folder


def test_its_own_tests_pass(example: Path, index: ServerProcess):
    """Keys, identities, get, put, claims and search do what they should."""
    out = toolchain.run(["npm", "test"], example, WARMINDEX_SERVER=index.address)
    assert re.search(r"^# skipped 0$", out, re.MULTILINE), out
    assert int(re.findall(r"^# pass (\d+)$", out, re.MULTILINE)[0]) >= 8


def test_keys_are_the_contracts(example: Path, more_vectors: Path):
    """Its keys and identities are those of the contract's own vectors too."""
    golden = ["node", "--test", "dist/test/golden.test.js"]
    out = toolchain.run(golden, example, WARMINDEX_VECTORS=str(more_vectors))
    assert re.search(r"^# pass 3$", out, re.MULTILINE), out


async def test_it_shares_with_this_package(example: Path, index: ServerProcess):
    """What it publishes this package finds under its own keys; a second run computes nothing."""
    await tour.clear(index.address)
    command = ["npm", "run", "--silent", "tour", "--", index.address]
    first = toolchain.run(command, example).splitlines()
    assert first[:5] == tour.printed(computed=3)
    assert first[5].endswith(" read_rain_gauge")
    await tour.check_published(index.address)
    assert toolchain.run(command, example).splitlines()[:5] == tour.printed(0)


def test_the_lock_file_names_no_registry():
    """It pins what is installed by checksum, and leaves open where from."""
    lock = (ROOT / "examples" / "typescript" / "package-lock.json").read_text(encoding="utf-8")
    assert '"integrity"' in lock
    assert '"resolved"' not in lock
