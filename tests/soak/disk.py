"""A disk that fills up: a small file system where one may be mounted, else a limit on files."""

from __future__ import annotations

import resource
import subprocess
from contextlib import suppress
from pathlib import Path

DISK_BYTES = 64 * 2**20
# What is still free when it is full.
SPARE_BYTES = 8 * 1024
BLOCK = bytes(2**20)


def mounted(folder: Path) -> bool:
    """Mount a small file system there; False where that is not allowed."""
    options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES}", "warmindex-soak"]
    try:
        done = subprocess.run(["mount", *options, folder], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return done.returncode == 0


class Disk:
    """A folder for a journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.own = mounted(folder)
        self.full = False

    def fill(self, pid: int, log: Path) -> None:
        """From now on there is hardly any room."""
        self.full = True
        if not self.own:
            sizes = [each.stat().st_size for each in self.folder.iterdir()]
            limit = max(sizes, default=0) + SPARE_BYTES
            _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (max(limit, log.stat().st_size), hard))
            return
        with (self.folder / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while filler.write(BLOCK) == len(BLOCK):
                pass
            while filler.write(BLOCK[:4096]) == 4096:
                pass
        with (self.folder / "filler").open("r+b") as filler:
            filler.truncate(max(0, filler.seek(0, 2) - SPARE_BYTES))

    def free(self, pid: int) -> None:
        """There is room again."""
        if self.own:
            (self.folder / "filler").unlink(missing_ok=True)
        else:
            with suppress(ProcessLookupError):
                _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        self.full = False

    def close(self) -> None:
        """Unmount it."""
        if self.own:
            subprocess.run(["umount", self.folder], check=False)
