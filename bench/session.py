"""A session's cold build beside its warm one, and the warm one beside an empty call.

    .venv/bin/python bench/session.py

Cold embeds 140 tools with the local embedder and publishes them; warm fetches them over the
network from the same server. The empty call is GetServerInfo by the same client, so what is
compared is what a session does beside one round trip. Rounds alternate; ratios are of medians.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from statistics import median

from warmindex.client import IndexClient
from warmindex.embedders import LocalEmbedder
from warmindex.session import Session

TOOLS = 140
COLD_ROUNDS = 3
WARM_ROUNDS = 200
COLD_OVER_WARM_MIN = 100
WARM_OVER_EMPTY_MAX = 3.0

WORDS = ["mail", "calendar", "code", "tables", "cluster", "pages", "money", "home", "music", "rain"]


def tools(salt: int) -> list[tuple[str, str]]:
    """140 tools of a dozen words each; another salt gives other texts."""
    return [
        (
            f"{WORDS[n % 10]}_tool_{n}_{salt}",
            (
                f"Look up or change what the {WORDS[n % 10]} service knows about item {n} of list "
                f"{salt}, and tell the caller whether it went well."
            ),
        )
        for n in range(TOOLS)
    ]


async def session_s(client: IndexClient, embedder: LocalEmbedder, salt: int, reused: int) -> float:
    """How long a session takes from opening to ready."""
    given = tools(salt)
    started = time.perf_counter()
    async with Session(given, embedder=embedder, client=client) as session:
        assert await session.ready(), session.degraded
        elapsed = time.perf_counter() - started
        assert session.counts.reused == reused, session.counts
    return elapsed


async def measure(address: str) -> None:
    embedder = LocalEmbedder()
    await embedder.embed_query("load the model")
    async with IndexClient(address) as client:
        cold = [await session_s(client, embedder, salt, 0) for salt in range(COLD_ROUNDS)]
        warm, empty = [], []
        for _ in range(WARM_ROUNDS):
            warm.append(await session_s(client, embedder, 0, TOOLS))
            started = time.perf_counter()
            await client.server_info()
            empty.append(time.perf_counter() - started)
    await embedder.close()
    faster = median(cold) / median(warm)
    slower = median(warm) / median(empty)
    print(f"cold build of {TOOLS} tools   {median(cold) * 1e3:8.1f} ms")
    print(f"warm session               {median(warm) * 1e3:8.2f} ms")
    print(f"empty call                 {median(empty) * 1e3:8.2f} ms")
    print(f"cold / warm                {faster:8.0f}    (at least {COLD_OVER_WARM_MIN})")
    print(f"warm / empty               {slower:8.2f}    (at most {WARM_OVER_EMPTY_MAX})")


def main() -> None:
    command = [sys.executable, "-m", "warmindex_server"]
    flags = ["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            asyncio.run(measure(server.stdout.readline().split()[-1]))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
