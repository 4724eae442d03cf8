"""LangChain from any thread and any loop, to the end of the process."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.langchain_model import TEXTS, Model, same
from support.server import ServerProcess
from warmindex.langchain import IndexBackedEmbeddings

Open = Callable[..., IndexBackedEmbeddings]


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
