"""A gateway's session as a process of its own: opens, waits until ready, prints its counts.

python tests/support/session_process.py INDEX_ADDRESS BACKEND_URL TOOLS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict

from warmindex.client import IndexClient
from warmindex.embedders import EmbedderOptions, open_embedder
from warmindex.session import Session


async def main(address: str, url: str, count: int) -> None:
    """Open a session on `count` tools."""
    embedder = open_embedder(EmbedderOptions(kind="tei", urls=(url,)))
    tools = [(f"tool_{n}", f"Tool number {n} does a thing of its own") for n in range(count)]
    async with IndexClient(address) as client:
        print("started", flush=True)  # noqa: T201 - the test reads it
        sys.stdin.readline()
        started = time.perf_counter()
        async with Session(tools, embedder=embedder, client=client) as session:
            ready = await session.ready()
            seconds = time.perf_counter() - started
            answer = {"ready": ready, "seconds": seconds, **asdict(session.counts)}
            print(json.dumps(answer))  # noqa: T201 - the test reads it
    await embedder.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
