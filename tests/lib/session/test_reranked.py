"""Sessions with a second stage: another order of the same tools, or the first one's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support import tiny_cross_encoder
from warmindex.rerank import CrossEncoder, Reranker
from warmindex.session import Session

TOOLS = [
    ("rain_gauge", "Read the gauge"),
    ("rain_radar", "Read the gauge and the radar"),
    ("rain_\ud800", "Read the radar"),
]


async def test_the_second_stage_orders_the_hits(
    open_session: Callable[..., Session], tmp_path: Path
):
    """The scorer's best is first, also one that the first stage alone leaves out of the answer."""
    scorer = CrossEncoder(tiny_cross_encoder.write(tmp_path / "tiny", {"radar": 1.0, "gauge": -1}))
    reranker = Reranker(scorer, weight=1.0)
    plain = open_session(TOOLS, embedder=None)
    session = open_session(TOOLS, embedder=None, reranker=reranker)
    before = await plain.find("rain gauge", limit=3)
    after = await session.find("rain gauge", limit=3)
    assert before[0].tool.name == "rain_gauge"
    assert {hit.tool.name for hit in after} == {hit.tool.name for hit in before}
    assert after[0].tool.name == "rain_\ud800"
    assert [hit.tool.name for hit in await session.find("rain gauge", limit=1)] == ["rain_\ud800"]
    await reranker.close()


async def test_without_its_model_the_first_order_stands(
    open_session: Callable[..., Session], tmp_path: Path
):
    """A folder without a model fails no search, and `degraded` says what is missing."""
    reranker = Reranker(CrossEncoder(tmp_path))
    session = open_session(TOOLS, embedder=None, reranker=reranker)
    hits = await session.find("rain gauge")
    assert hits[0].tool.name == "rain_gauge"
    await session.ready()
    assert "tokenizer.json" in session._rerank_problem
    await reranker.close()
