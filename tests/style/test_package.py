"""What is installed: three packages, typed, with the generated stubs, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
from support.tree import PACKAGES, ROOT, STUBS, files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[PurePosixPath]:
    """The names of the files in the wheel that users get."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    (path,) = out.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return [PurePosixPath(name) for name in archive.namelist()]


def test_only_the_three_packages_become_importable(wheel: list[PurePosixPath]):
    """No `tests`, no `server`, no `v1` lands at the top of somebody's site-packages."""
    top = {name.parts[0] for name in wheel if not name.parts[0].endswith(".dist-info")}
    assert top == {package.name for package in PACKAGES}


def test_every_package_says_that_it_is_typed(wheel: list[PurePosixPath]):
    """Type checkers of users read our annotations only where py.typed is."""
    for package in PACKAGES:
        assert PurePosixPath(package.name, "py.typed") in wheel


def test_every_source_file_is_in_the_wheel(wheel: list[PurePosixPath]):
    """The generated stubs and their types too."""

    def installed(path: Path) -> PurePosixPath | None:
        for package in PACKAGES:
            if path.is_relative_to(package):
                return PurePosixPath(path.relative_to(package.parent).as_posix())
        return None

    missing = {installed(path) for path in files()} - set(wheel) - {None}
    assert not missing
    assert any(installed(folder / "event_pb2.pyi") in wheel for folder in STUBS)


def test_the_commands_have_their_modules():
    """Each command of pyproject.toml names a module that is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"warmindex", "warmindex-server", "warmindex-subscriber"} <= set(project["scripts"])
    for target in project["scripts"].values():
        module = target.partition(":")[0].replace(".", "/")
        places = [
            package.parent / f"{module}{tail}"
            for package in PACKAGES
            for tail in (".py", "/__init__.py")
        ]
        assert any(place.exists() for place in places), target
