"""LangChain's Embeddings over an index: computed once, for everybody, and never mixed up."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from support.server import ServerProcess, server_process
from warmindex.embedders import BadAnswerError, MisconfiguredError
from warmindex.errors import InvalidError
from warmindex.identity import ModelIdentity
from warmindex.langchain import IndexBackedEmbeddings
from warmindex.langchain_source import FAILURES_MAX

WIDTH = 16
TEXTS = [f"text number {n}" for n in range(140)]

Open = Callable[..., IndexBackedEmbeddings]


class Model(Embeddings):
    """A model of LangChain's, that counts and that can be told to refuse."""

    def __init__(self, width: int = WIDTH) -> None:
        self._fake = DeterministicFakeEmbedding(size=width)
        self.texts: Counter[str] = Counter()
        self.batches: list[int] = []
        self.queries = 0
        self.guilty: set[str] = set()
        self.away = False
        self.rows: dict[str, list[float]] = {}
        self.running = 0
        self.running_max = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.running += 1
        self.running_max = max(self.running, self.running_max)
        try:
            self.batches.append(len(texts))
            if self.away:
                raise ConnectionError("the model is away")
            if refused := self.guilty & set(texts):
                raise ValueError(f"refused: {sorted(refused)}")
            self.texts.update(texts)
            return [self.row(text) for text in texts]
        finally:
            self.running -= 1

    def row(self, text: str) -> list[float]:
        """What it gives for a text."""
        return self.rows.get(text) or self._fake.embed_query(ascii(text))

    def embed_query(self, text: str) -> list[float]:
        self.queries += 1
        return self.row(text)


@pytest.fixture(scope="module")
def index() -> Iterator[ServerProcess]:
    """An index as a process: a sync call holds this process's own loop."""
    with server_process() as process:
        yield process


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def wrapped(index: ServerProcess, model: Model, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Wraps the model, each test in a tenant of its own; each wrapper as another process's."""
    opened = []

    def open_one(underlying: Embeddings = model, name: str = "fake", **options: Any) -> Any:
        identity = ModelIdentity(provider="fake", model=name, normalized=False, truncation="none@0")
        given = {"server": index.address, "tenant_id": request.node.name[:60], **options}
        opened.append(IndexBackedEmbeddings(underlying, given.pop("identity", identity), **given))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def same(rows: list[list[float]], model: Model, texts: list[str]) -> bool:
    """Whether rows are the model's own, as float32."""
    expected = np.array([model.row(text) for text in texts], np.float32)
    return np.array_equal(np.array(rows), expected.astype(np.float64))


# ---- in place of a cache ---------------------------------------------------------------


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


# ---- threads and loops -----------------------------------------------------------------


async def test_the_models_coroutine_runs_in_the_callers_loop(wrapped: Open):
    """A model whose connections belong to that loop works; so do the caller's variables."""
    variable = contextvars.ContextVar("variable", default="")
    seen = []

    class Async(Model):
        async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
            seen.append((asyncio.get_running_loop(), variable.get()))
            return self.embed_documents(texts)

    variable.set("the caller's")
    await wrapped(Async()).aembed_documents(["a"])
    assert seen == [(asyncio.get_running_loop(), "the caller's")]


def test_sync_calls_work_in_every_loop_and_thread(wrapped: Open, model: Model):
    """Within a running loop, where others could not wait, and from many threads at once."""
    embeddings = wrapped()

    async def within() -> list[list[float]]:
        return embeddings.embed_documents(["a"])

    assert same(asyncio.run(within()), model, ["a"])
    assert same(asyncio.run(within()), model, ["a"])
    each = [wrapped(), wrapped(), embeddings]
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda n: each[n % 3].embed_documents(TEXTS), range(12)))
    assert all(same(rows, model, TEXTS) for rows in answers)
    # Three processes' worth of wrappers, one computation: claims keep them apart.
    assert model.texts == {"a": 1, **dict.fromkeys(TEXTS, 1)}


async def test_a_cancelled_call_lets_go(wrapped: Open, model: Model):
    """The caller is free at once, and the next call is served."""
    started = asyncio.Event()

    class Slow(Model):
        async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
            started.set()
            await asyncio.sleep(3600)
            return self.embed_documents(texts)

    embeddings = wrapped(Slow(), server="127.0.0.1:9")
    task = asyncio.create_task(embeddings.aembed_documents(["a"]))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert same(await asyncio.to_thread(embeddings.embed_documents, ["a"]), model, ["a"])


def test_closing_is_final_for_nobody(wrapped: Open, model: Model):
    """It may be closed twice, ends its thread, and opens again when it is needed."""
    embeddings = wrapped(memory_mib=0)
    with embeddings:
        embeddings.embed_documents(["a"])
        assert any(thread.name == "warmindex-langchain" for thread in threading.enumerate())
    embeddings.close()
    assert not any(thread.name == "warmindex-langchain" for thread in threading.enumerate())
    embeddings.embed_documents(["a"])
    assert model.texts == {"a": 1}


PROGRAM = """
import os, sys
from langchain_core.embeddings import DeterministicFakeEmbedding
from warmindex.langchain import IndexBackedEmbeddings
embeddings = IndexBackedEmbeddings(DeterministicFakeEmbedding(size=16), sys.argv[2],
                                   server=sys.argv[1], tenant_id="program")
print(len(embeddings.embed_documents(["a", "b"])))
if "fork" in sys.argv:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            embeddings.embed_documents(["c"])
        except RuntimeError as error:
            print(error, flush=True)
        os._exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_program(index: ServerProcess, model_id: str, *arguments: str) -> str:
    """What the program prints; it must end well."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, index.address, model_id, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_program_that_forgets_to_close_ends(index: ServerProcess, wrapped: Open):
    """The thread does not hold it."""
    assert run_program(index, wrapped().identity.model_id) == "2\n"


def test_a_forked_process_is_told_what_it_cannot_have(index: ServerProcess, wrapped: Open):
    """The thread and the connection are its parent's: an error, not a call that never ends."""
    printed = run_program(index, wrapped().identity.model_id, "fork")
    assert "was used before this process was forked" in printed
