"""A process that appends to a journal and says what was acknowledged, until it is killed.

    python journal_writer.py URL FIRST_NUMBER RECORDS_PER_APPEND [FILE_BYTES_MAX]

Prints one line per append: "ok REVISION NUMBER" for its last record, or "failed REASON". With
FILE_BYTES_MAX the disk is full at that size of a file; after the first failure the process
makes room ("room" is printed) and ends, as if killed, after one more append.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys

from support.records import embedded
from warmindex.errors import JournalUnavailableError
from warmindex_server.journal.registry import open_journal


def say(*words: object) -> None:
    """One line for whoever started the process."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(url: str, number: int, per_append: int, file_bytes_max: int = 0) -> None:
    """Append for ever, or until the disk has been full once."""
    journal = open_journal(url)
    await journal.start()
    say("started", journal.history_id, journal.revision)
    if file_bytes_max:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, hard))
    was_full = False
    while True:
        events = [
            embedded(place, hashes=20, dimensions=8) for place in range(number, number + per_append)
        ]
        try:
            revisions = await journal.append(events)
        except JournalUnavailableError as error:
            say("failed", str(error).replace("\n", " "))
            if was_full:
                break
            was_full = True
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            say("room")
            continue
        number += per_append
        say("ok", revisions[-1], number - 1)
        if was_full:
            break
    # Like a crash: nothing is closed.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
