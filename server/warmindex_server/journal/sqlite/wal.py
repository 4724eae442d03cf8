"""What SQLite does not say about its write-ahead log: that it has dropped something.

When SQLite opens a log that was not closed, it takes over all whole transactions up to the
first frame that does not verify, and forgets the rest without a word. That is right for the
transaction that was under way at a crash, and wrong for damage in the middle: every commit
here is fsynced before the next one starts, so a crash can spoil the last one only. Two
commits behind the first bad frame mean that acknowledged records were lost.

The layout is SQLite's own, documented as its file format: a header of 32 bytes, then frames
of 24 bytes and one page each; each frame repeats the two salts of the header, and the last
one of a transaction gives the database's size in pages.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct(">8I")
_FRAME: Final = struct.Struct(">4I")
_FRAME_HEADER_BYTES: Final = 24
# The lowest bit says in which byte order checksums are computed.
_MAGIC: Final = 0x377F0682


class WalTail(NamedTuple):
    """What stands in a log behind the frames that SQLite took over."""

    header_damaged: bool = False
    frames: int = 0
    commits: int = 0
    bytes_left: int = 0

    @property
    def torn(self) -> bool:
        """Whether a transaction was begun and never ended: a crash while writing."""
        return bool(self.frames or self.bytes_left)

    @property
    def damaged(self) -> bool:
        """Whether acknowledged transactions are gone: no crash leaves such a log."""
        return self.header_damaged or self.commits > 1


def read_tail(wal: Path, frames_taken: int) -> WalTail:
    """Look behind the first `frames_taken` frames of a log; no file is an empty one."""
    try:
        with wal.open("rb") as file:
            size = wal.stat().st_size
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return WalTail(bytes_left=len(header))
            if not _header_verifies(header):
                return WalTail(header_damaged=size > _HEADER.size)
            _, _, page_bytes, _, *salts, _, _ = _HEADER.unpack(header)
            frame_bytes = _FRAME_HEADER_BYTES + page_bytes
            frames = commits = 0
            for start in range(_HEADER.size + frames_taken * frame_bytes, size, frame_bytes):
                file.seek(start)
                head = file.read(_FRAME.size)
                if len(head) < _FRAME.size:
                    break
                _, pages_after_commit, *frame_salts = _FRAME.unpack(head)
                if frame_salts != salts:
                    continue  # Left over from before the log was last begun anew.
                if start + frame_bytes > size:
                    return WalTail(False, frames, commits, size - start)
                frames += 1
                commits += pages_after_commit > 0
            return WalTail(False, frames, commits)
    except FileNotFoundError:
        return WalTail()


def _header_verifies(header: bytes) -> bool:
    magic, *_, sum_1, sum_2 = _HEADER.unpack(header)
    if magic & ~1 != _MAGIC:
        return False
    first = second = 0
    for word_1, word_2 in struct.iter_unpack(">2I" if magic & 1 else "<2I", header[:24]):
        first = (first + word_1 + second) & 0xFFFFFFFF
        second = (second + word_2 + first) & 0xFFFFFFFF
    return (first, second) == (sum_1, sum_2)
