"""A cold build over embedding servers that sleep: four beside one, and beside the bare embedder.

    .venv/bin/python bench/build.py

Each stand-in answers a batch of 32 after 100 ms, one batch at a time, so what is measured is
how well a build keeps its backends busy. The build asks the index with claims, reads the identity
before and after each share, and publishes; the bare embedder does none of that. Rounds alternate.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.embedding_server import running
from warmindex.build import Builder, Item
from warmindex.client import IndexClient
from warmindex.embedders import EmbedderOptions, open_embedder
from warmindex.hashing import text_hash

TEXTS = 448
ROUNDS = 3
FASTER_MIN = 1.8
SLOWER_MAX = 1.05


def texts(salt: int) -> list[str]:
    return [f"tool {n} of list {salt} does a thing of its own" for n in range(TEXTS)]


async def build_s(client: IndexClient, urls: tuple[str, ...], salt: int) -> float:
    """How long a build of texts that nobody has takes."""
    embedder = open_embedder(EmbedderOptions(kind="tei", urls=urls))
    builder = Builder(embedder, client, replica_id="bench")
    items = {text_hash(text): Item(text) for text in texts(salt)}
    started = time.perf_counter()
    built = await builder.build(items)
    elapsed = time.perf_counter() - started
    assert built.counts.embedded == TEXTS, built
    await embedder.close()
    return elapsed


async def bare_s(urls: tuple[str, ...], salt: int) -> float:
    """How long the embedder alone takes for as many texts."""
    embedder = open_embedder(EmbedderOptions(kind="tei", urls=urls))
    await embedder.identity()
    started = time.perf_counter()
    embedded = await embedder.embed_documents(texts(salt))
    elapsed = time.perf_counter() - started
    assert not embedded.failures
    await embedder.close()
    return elapsed


async def measure(address: str, urls: tuple[str, ...]) -> None:
    one, four, bare = [], [], []
    async with IndexClient(address) as client:
        for salt in range(ROUNDS):
            one.append(await build_s(client, urls[:1], 3 * salt))
            four.append(await build_s(client, urls, 3 * salt + 1))
            bare.append(await bare_s(urls[:1], 3 * salt + 2))
    faster = median(one) / median(four)
    slower = median(one) / median(bare)
    print(f"build, one backend      {median(one) * 1e3:8.0f} ms")
    print(f"build, four backends    {median(four) * 1e3:8.0f} ms")
    print(f"bare embedder, one      {median(bare) * 1e3:8.0f} ms")
    print(f"one / four              {faster:8.2f}    (at least {FASTER_MIN})")
    print(f"build / bare            {slower:8.2f}    (at most {SLOWER_MAX})")


def main() -> None:
    command = [sys.executable, "-m", "warmindex_server", "--log-level", "warning"]
    flags = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    with ExitStack() as stack:
        backend = ("--batch-sleep-ms", "100", "--serial", "true")
        urls = tuple(stack.enter_context(running(*backend)) for _ in range(4))
        server = stack.enter_context(
            subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True)
        )
        try:
            assert server.stdout is not None
            asyncio.run(measure(server.stdout.readline().split()[-1], urls))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
