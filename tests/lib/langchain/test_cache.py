"""LangChain's Embeddings over an index: computed once, for everybody, and never mixed up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from support.langchain_model import TEXTS, WIDTH, Model, same
from support.server import ServerProcess
from warmindex.embedders import MisconfiguredError
from warmindex.errors import InvalidError
from warmindex.identity import ModelIdentity
from warmindex.langchain import IndexBackedEmbeddings

Open = Callable[..., IndexBackedEmbeddings]


def test_what_one_has_computed_another_finds(wrapped: Open, model: Model):
    """The first call computes, every other one does not, here and elsewhere, with the same rows."""
    first = wrapped()
    rows = first.embed_documents(TEXTS)
    assert same(rows, model, TEXTS)
    assert model.texts.total() == 140
    other = wrapped()
    assert other.embed_documents(TEXTS) == rows
    assert first.embed_documents(TEXTS) == rows
    assert model.texts.total() == 140
    assert (other.counts.reused, other.counts.embedded) == (140, 0)


async def test_async_is_the_same(wrapped: Open, model: Model):
    """What was embedded one way is found the other way."""
    rows = await wrapped().aembed_documents(TEXTS)
    assert same(rows, model, TEXTS)
    assert await wrapped().aembed_documents(TEXTS) == rows
    assert wrapped().embed_documents(TEXTS) == rows
    assert model.texts.total() == 140


def test_a_text_that_is_given_twice_is_computed_once(wrapped: Open, model: Model):
    """Each place gets its row, and a list of its own."""
    texts = ["a", "b", "a", "a"]
    embeddings = wrapped()
    rows = embeddings.embed_documents(texts)
    assert same(rows, model, texts)
    assert model.texts == {"a": 1, "b": 1}
    rows[0][0] = 7.0
    assert same(embeddings.embed_documents(texts), model, texts)
    assert same(rows[2:], model, texts[2:])


def test_nothing_is_nothing(wrapped: Open, model: Model):
    """An empty list asks nobody."""
    assert wrapped(server="127.0.0.1:9").embed_documents([]) == []
    assert model.batches == []


async def test_queries_go_straight_to_the_model(wrapped: Open, model: Model):
    """As CacheBackedEmbeddings has it: they are not kept, and not rounded."""
    embeddings = wrapped()
    assert embeddings.embed_query("q") == model.row("q")
    assert await embeddings.aembed_query("q") == model.row("q")
    assert model.queries == 2


def test_a_vector_store_of_langchains_takes_it(wrapped: Open, model: Model):
    """Documents through the index, the query beside it."""
    store = InMemoryVectorStore.from_texts(TEXTS[:20], wrapped())
    (found,) = store.similarity_search(TEXTS[3], k=1)
    assert found.page_content == TEXTS[3]
    InMemoryVectorStore.from_texts(TEXTS[:20], wrapped())
    assert model.texts.total() == 20


def test_batches_are_no_larger_than_was_said(wrapped: Open, model: Model):
    """And the model is called by one at a time."""
    assert same(wrapped(batch_size=7).embed_documents(TEXTS), model, TEXTS)
    assert max(model.batches) == 7
    assert model.running_max == 1
    with pytest.raises(InvalidError, match="batch_size"):
        wrapped(batch_size=0)


# ---- identity --------------------------------------------------------------------------


@pytest.mark.parametrize("identity", ["", "text-embedding-3-small", "emb/1;p=x", None, 7, Model()])
def test_an_identity_is_never_guessed(wrapped: Open, identity: Any):
    """Whatever does not say all that determines a vector is refused, with what to give."""
    with pytest.raises(InvalidError, match=r"identity.*ModelIdentity"):
        wrapped(identity=identity)


def test_an_identity_may_be_its_model_id(wrapped: Open, model: Model):
    """The string is the same as what it stands for."""
    first = wrapped()
    first.embed_documents(["a"])
    wrapped(identity=first.identity.model_id).embed_documents(["a"])
    assert model.texts.total() == 1


@pytest.mark.parametrize("other", [{"name": "other"}, {"adapter_id": "a"}, {"tenant_id": "t"}])
def test_identities_adapters_and_tenants_share_nothing(
    wrapped: Open, model: Model, other: dict[str, str]
):
    """The same text elsewhere is another vector, and is computed."""
    wrapped().embed_documents(["a"])
    wrapped(**other).embed_documents(["a"])
    assert model.texts == {"a": 2}


def test_two_models_under_one_identity_are_found_out(wrapped: Open):
    """Where their widths differ, nobody is given a mixture."""
    wrapped().embed_documents(["a"])
    wrong = wrapped(Model(2 * WIDTH))
    with pytest.raises(MisconfiguredError, match="16 and 32"):
        wrong.embed_documents(["a", "b"])


def test_an_identity_that_names_another_width_is_refused(wrapped: Open, index: ServerProcess):
    """What contradicts the identity is neither published nor handed out."""
    identity = ModelIdentity(
        provider="fake", model="m", dimensions=8, normalized=False, truncation="none@0"
    )
    embeddings = wrapped(identity=identity)
    with pytest.raises(MisconfiguredError, match="16 numbers, and its identity says 8"):
        embeddings.embed_documents(["a", "b"])
    assert embeddings.counts.embedded == 0
