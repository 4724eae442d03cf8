"""What fails beside LangChain: single texts, the model, the index."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from support.langchain_model import TEXTS, WIDTH, Model, same
from support.server import server_process
from warmindex.embedders import BadAnswerError
from warmindex.langchain import IndexBackedEmbeddings
from warmindex.langchain_source import FAILURES_MAX

Open = Callable[..., IndexBackedEmbeddings]


# ---- texts that fail -------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
def test_texts_that_fail_leave_their_neighbours_in_the_index(
    wrapped: Open, model: Model, asynchronous: bool
):
    """The model's own error is raised; all others are computed once and found by everybody."""
    model.guilty = {TEXTS[n] for n in (3, 4, 77, 139)}
    embeddings = wrapped()

    def call() -> object:
        if asynchronous:
            return asyncio.run(embeddings.aembed_documents(TEXTS))
        return embeddings.embed_documents(TEXTS)

    with pytest.raises(ValueError, match="refused") as caught:
        call()
    assert "4 texts have no vector" in caught.value.__notes__[0]
    good = [text for text in TEXTS if text not in model.guilty]
    assert same(wrapped().embed_documents(good), model, good)
    assert model.texts == dict.fromkeys(good, 1)
    model.guilty = set()
    assert same(wrapped().embed_documents(TEXTS), model, TEXTS)
    assert model.texts == dict.fromkeys(TEXTS, 1)


def test_a_model_that_is_away_is_not_asked_for_each_text(wrapped: Open, model: Model):
    """Its error is raised after a bounded number of calls; later the same texts go through."""
    model.away = True
    embeddings = wrapped()
    with pytest.raises(ConnectionError, match="away"):
        embeddings.embed_documents(TEXTS)
    assert len(model.batches) <= FAILURES_MAX
    model.away = False
    assert same(embeddings.embed_documents(TEXTS), model, TEXTS)


def test_vectors_that_no_index_holds_are_the_callers_alone(wrapped: Open, model: Model):
    """Zeros, infinities and other widths come as the model gave them, computed every time."""
    model.rows = {
        "zero": [0.0] * WIDTH,
        "infinite": [float("inf")] + [0.0] * (WIDTH - 1),
        "large": [1e300] * WIDTH,
        "short": [1.0] * 3,
    }
    texts = ["a good text", *model.rows]
    embeddings = wrapped()
    for times in (1, 2):
        rows = embeddings.embed_documents(texts)
        assert rows[1:] == list(model.rows.values())
        assert model.texts["a good text"] == 1
        assert model.texts["zero"] == times


def test_a_text_that_is_no_unicode_has_no_key(wrapped: Open, model: Model):
    """It is computed every time, beside neighbours that are not."""
    texts = ["a", "\ud83d", "\ud83d", "b"]
    embeddings = wrapped()
    assert same(embeddings.embed_documents(texts), model, texts)
    assert same(embeddings.embed_documents(texts), model, texts)
    assert model.texts == {"a": 1, "b": 1, "\ud83d": 2}


def test_a_model_that_answers_with_too_few_rows_is_found_out(wrapped: Open):
    """Rows are not taken for those of other texts."""

    class Short(Model):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return super().embed_documents(texts)[:-1]

    with pytest.raises(BadAnswerError, match="vectors came back for"):
        wrapped(Short()).embed_documents(["a", "b", "c"])


# ---- what is away ----------------------------------------------------------------------


def test_index_away(wrapped: Open, model: Model):
    """Everything is embedded as without an index; within the process it is kept."""
    embeddings = wrapped(server="127.0.0.1:9")
    assert same(embeddings.embed_documents(TEXTS), model, TEXTS)
    assert same(embeddings.embed_documents(TEXTS), model, TEXTS)
    assert model.texts.total() == 140
    assert embeddings.counts.index_errors == 1


def test_without_memory_the_index_is_asked_every_time(wrapped: Open, model: Model):
    """An index that goes away and comes back is asked again, after a while."""
    with server_process() as index:
        embeddings = wrapped(server=index.address, memory_mib=0)
        embeddings.embed_documents(["a"])
        port = index.port
    assert same(embeddings.embed_documents(["a"]), model, ["a"])
    assert model.texts["a"] == 2
    with server_process("--listen", f"127.0.0.1:{port}"):
        errors = 0
        while embeddings.counts.index_errors != errors:
            errors = embeddings.counts.index_errors
            time.sleep(0.1)
            embeddings._away_until_s = 0.0  # ten seconds have passed
            embeddings.embed_documents(["a"])
        computed = model.texts["a"]
        assert same(embeddings.embed_documents(["a"]), model, ["a"])
        assert model.texts["a"] == computed


async def test_a_mirror_answers_while_the_server_is_away(wrapped: Open, model: Model):
    """A copy in the process has what others had published."""
    with server_process() as index:
        await wrapped(server=index.address).aembed_documents(TEXTS)
        embeddings = wrapped(server=index.address, mirror=True, memory_mib=0)
        await embeddings.aembed_documents(["another"])
        assert embeddings._mirror is not None
        await embeddings._loop.run_async(embeddings._mirror.ready(timeout_s=10))
    assert same(await embeddings.aembed_documents(TEXTS), model, TEXTS)
    assert model.texts.total() == 141
