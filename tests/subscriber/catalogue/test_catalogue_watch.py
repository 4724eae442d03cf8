"""Watching catalogue files: every change of one is told, and nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from warmindex_subscriber.catalogue_watch import CatalogueWatch

TOLD_S_MAX = 20


@asynccontextmanager
async def watched(path: Path) -> AsyncIterator[asyncio.Event]:
    """The event that a watch of a path sets."""
    changed = asyncio.Event()
    running = asyncio.create_task(CatalogueWatch([path], changed).run())
    await asyncio.sleep(0.2)  # a change before the watch stands is found only when it looks
    try:
        yield changed
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def told(changed: asyncio.Event) -> None:
    """Wait for a change, and for the next one."""
    await asyncio.wait_for(changed.wait(), TOLD_S_MAX)
    changed.clear()


def write(path: Path) -> None:
    path.write_text(path.read_text() + " " if path.exists() else "[]")


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_text("[1]")
    other.rename(path)


@pytest.mark.parametrize("change", [write, replace, Path.unlink])
@pytest.mark.parametrize("folder", [False, True])
async def test_what_happens_to_a_file_is_told(
    tmp_path: Path, change: Callable[[Path], object], folder: bool
):
    """Written to, replaced or removed, named itself or by its folder."""
    path = tmp_path / "tools.json"
    path.write_text("[]")
    async with watched(tmp_path if folder else path) as changed:
        change(path)
        await told(changed)


async def test_what_is_mounted_anew_is_told(tmp_path: Path):
    """A ConfigMap puts another folder behind a link, and takes the last one away."""
    for number in (1, 2):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "tools.json").write_text("[]" * number)
    (tmp_path / "..data").symlink_to("..1")
    path = tmp_path / "tools.json"
    path.symlink_to("..data/tools.json")
    async with watched(path) as changed:
        for number, last in ((2, 1), (3, 2)):
            now = tmp_path / f"..{number}"
            now.mkdir(exist_ok=True)
            (now / "tools.json").write_text("[]" * number)
            (tmp_path / "..new").symlink_to(f"..{number}")
            (tmp_path / "..new").rename(tmp_path / "..data")
            (tmp_path / f"..{last}" / "tools.json").unlink()
            (tmp_path / f"..{last}").rmdir()
            await told(changed)


async def test_a_folder_that_comes_later_is_told(tmp_path: Path):
    """A path may name what does not exist yet."""
    path = tmp_path / "later" / "still" / "tools.json"
    async with watched(path) as changed:
        path.parent.mkdir(parents=True)
        path.write_text("[]")
        await told(changed)


async def test_what_else_happens_in_the_folder_is_nobodys_concern(tmp_path: Path):
    """A neighbour that changes is no change of the catalogue."""
    path = tmp_path / "tools.json"
    path.write_text("[]")
    changed = asyncio.Event()
    watch = CatalogueWatch([path], changed)
    (tmp_path / "neighbour.json").write_text("[]")
    watch._look(path)
    assert not changed.is_set()
    write(path)
    watch._look(path)
    assert changed.is_set()
