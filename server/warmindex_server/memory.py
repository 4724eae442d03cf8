"""How the process deals with its memory."""

from __future__ import annotations

from typing import Final

from warmindex import limits

# The largest size for which glibc learns (32 MiB at most), and room for two messages.
LEARNED_BYTES: Final = 2 * limits.MESSAGE_BYTES_MAX - limits.MIB


def keep_freed_memory() -> None:
    """Have the allocator keep the memory of one answer for the next one.

    glibc asks the system for every block of 128 KiB and more, and gives it back when it is
    freed, so an answer of 1.5 MB costs 700 page faults, which take longer than all the rest
    of the call. Freeing one large block raises that size, and twice that for what may lie
    free at the heap's end: the "dynamic mmap threshold" of mallopt(3). Other allocators are
    not impressed, and not harmed.
    """
    block = bytearray(LEARNED_BYTES)
    del block
