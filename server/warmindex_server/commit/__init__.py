"""How records get from publishers to the journal and from there to the index, in order.

    immediate   (memory)  appended and applied in the publisher's own step
    grouped     (sqlite)  publishers that arrive together share one append; while it is
                          written, what the last one brought is applied
    shared      (redis)   appended in groups too, but applied from the journal's tail, where
                          other servers' records come as well; a publisher waits for its own

Each gives a future per call of `submit`; calls are answered in the order of their records.
"""

from __future__ import annotations

from warmindex_server.commit.base import Committer, Target
from warmindex_server.commit.grouped import Grouped
from warmindex_server.commit.immediate import Immediate
from warmindex_server.commit.shared import Shared
from warmindex_server.journal.base import Journal

__all__ = ["Committer", "Target", "committer_of"]


def committer_of(journal: Journal, target: Target) -> Committer:
    """The way that fits a journal."""
    if journal.immediate:
        return Immediate(journal, target)
    return Shared(journal, target) if journal.shared else Grouped(journal, target)
