"""The pure index: no I/O, no clock, no chance. `Index` is the way in."""

from warmindex.index.change import Applied, Change, Outcome
from warmindex.index.index import Index

__all__ = ["Applied", "Change", "Index", "Outcome"]
