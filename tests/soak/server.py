"""A server as its command starts it, but for how much it keeps.

python -m soak.server RECORDS KEEP BYTES OPTIONS…: a snapshot after so many records, behind which
so many records stay in the log; and so much of the effects is kept for watchers.
"""

from __future__ import annotations

import sys

from warmindex_server import __main__ as command
from warmindex_server import snapshots
from warmindex_server.watch import EffectLog

# What a real server does every 50,000 records and after half a minute must happen in seconds.
CHECK_S = 0.1
RETRY_S = 0.5


def main() -> None:
    """Run the command."""
    records, keep, in_bytes, *options = sys.argv[1:]
    snapshots.RECORDS_MAX = int(records)
    snapshots.KEEP_RECORDS = int(keep)
    snapshots.CHECK_S = CHECK_S
    snapshots.RETRY_S = RETRY_S
    EffectLog.__init__.__defaults__ = (int(in_bytes), 4 * int(in_bytes))
    sys.argv[1:] = options
    command.main()


if __name__ == "__main__":
    main()
