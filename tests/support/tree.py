"""Where things are: the project's root, its files, its documents, its tools."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
# Where `make proto` puts what it generates; it is nobody's style.
STUBS = (ROOT / "lib" / "warmindex" / "v1", ROOT / "lib" / "warmindex" / "storage" / "v1")
RELEASED_CONTRACT = PROTO / "released" / "warmindex.v1.yaml"

# Where Python code is kept.
PACKAGES = (
    ROOT / "lib" / "warmindex",
    ROOT / "server" / "warmindex_server",
    ROOT / "subscriber" / "warmindex_subscriber",
)
CODE_FOLDERS = (*PACKAGES, ROOT / "tests", ROOT / "bench", ROOT / "scripts")


def tool(name: str) -> str:
    """The path of a development tool, installed beside the Python that runs the tests."""
    path = Path(sys.executable).parent / name
    assert path.exists(), f"{name} is not in {path.parent}; `make install` puts it there"
    return str(path)


@cache
def files() -> tuple[Path, ...]:
    """Every file of the project: what git tracks, and what it would track if it were added.

    Without git (an unpacked source distribution), everything outside hidden folders.
    """
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0 and listing.stdout:
        paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return tuple(sorted(path for path in paths if path.is_file()))


def code() -> list[Path]:
    """Every Python file that people wrote."""
    return [
        path
        for path in files()
        if path.suffix == ".py"
        and not any(path.is_relative_to(folder) for folder in STUBS)
        and any(path.is_relative_to(folder) for folder in CODE_FOLDERS)
    ]


def documents() -> list[Path]:
    """Every Markdown file."""
    return [path for path in files() if path.suffix == ".md"]


def relative(path: Path) -> str:
    """The path as people name it, from the root."""
    return path.relative_to(ROOT).as_posix()
