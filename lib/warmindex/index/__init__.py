"""The pure index: no I/O, no clock, no chance. `Index` is the way in."""

from warmindex.index.change import Applied, Change, Outcome
from warmindex.index.index import Index
from warmindex.index.reports import is_large

__all__ = ["Applied", "Change", "Index", "Outcome", "is_large"]
