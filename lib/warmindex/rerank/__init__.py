"""A second stage of search, by choice: the first hits, scored again by a slower model.

    session = Session(tools, embedder=…, reranker=Reranker(CrossEncoder("path/to/a/model")))

Models run in this process, from files that the user names or that a package ships; nothing
is ever fetched. Needs the extra `rerank`.
"""

from __future__ import annotations

from warmindex.rerank.cross_encoder import CrossEncoder
from warmindex.rerank.late_interaction import LateInteraction
from warmindex.rerank.stage import HITS_DEFAULT, Reranker, Scorer

__all__ = ["HITS_DEFAULT", "CrossEncoder", "LateInteraction", "Reranker", "Scorer"]
