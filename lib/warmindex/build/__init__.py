"""One build: the vectors of a set of texts, each of them computed once in the whole fleet.

    identity -> ask for all, with claims -> embed what is claimed -> identity again -> publish
                       ^                                                   |         |
                       +------------- pending: wait, claim when they fall -+---------+

Several pods that want the same texts share the work: each claims a part at a time. Whatever
is away costs speed and never the build:

    index away        every text is embedded here, nothing is published
    backend away      what the index has is used, the rest fails for now
    identity away     the last one that was read finds vectors; nothing is published under it
    identity changes  the batch between the two readings is thrown away, and the build starts
                      over under the new identity, twice at most
"""

from __future__ import annotations

from warmindex.build.builder import Builder
from warmindex.build.result import Built, Counts, Item

__all__ = ["Builder", "Built", "Counts", "Item"]
