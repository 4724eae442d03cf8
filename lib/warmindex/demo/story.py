"""The demo's story: a cold build, a warm session, three searches, and the removal table."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from warmindex.client import IndexClient
from warmindex.demo.processes import line_with, running
from warmindex.demo.removals import ADAPTERS, ROWS, survivors
from warmindex.embedders import LocalEmbedder
from warmindex.session import Session
from warmindex.tools import Tool

# What is asked, and the tool that has to be among those shown.
QUERIES: Final = (
    ("somebody reported that login is broken, write that down for the developers", "create_issue"),
    ("is there an hour at which all of us are free?", "find_free_time"),
    ("it is too cold in the living room", "set_thermostat"),
)
POLL_S: Final = 0.05


async def tell(console: Console) -> bool:
    """Run the demo; whether all of it held."""
    started = time.perf_counter()
    embedder = LocalEmbedder()
    # Fails at once, and says what to install, where the model is not there.
    await embedder.identity()
    console.rule("warmindex: ask once, compute once")
    with resources.as_file(resources.files("warmindex.demo") / "catalogue") as folder:
        tools = _tools(folder)
        async with _server() as client:
            cold_s = await _cold(console, client, folder, tools)
            held = await _warm(console, client, embedder, tools, cold_s)
            held = await _removals(console, client) and held
    verdict = "[green]all of it held[/]" if held else "[red]something did not hold[/]"
    console.print(f"\n{verdict}, in {time.perf_counter() - started:.1f} s")
    return held


@asynccontextmanager
async def _server() -> AsyncIterator[IndexClient]:
    flags = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
    async with running("warmindex_server", flags) as process:
        address = (await line_with(process, "listening on")).rpartition(" ")[2]
        async with IndexClient(address) as client:
            yield client


def _tools(folder: Path) -> list[Tool]:
    return [
        Tool.of(each)
        for path in sorted(folder.glob("*.json"))
        for each in json.loads(path.read_text(encoding="utf-8"))["tools"]
    ]


async def _cold(console: Console, client: IndexClient, folder: Path, tools: list[Tool]) -> float:
    """The subscriber embeds the catalogue; the seconds from its first text to the last."""
    console.print(
        f"\n[bold]1. Cold.[/] A subscriber embeds the {len(tools)} tools of eight servers and "
        "publishes them."
    )
    flags = ("catalogue", str(folder), "--server", client.address, "--replica", "demo")
    async with running("warmindex_subscriber", flags) as subscriber:
        summary = asyncio.create_task(line_with(subscriber, "embedded"))
        with Progress(
            TextColumn("   embedding"), BarColumn(), MofNCompleteColumn(), console=console
        ) as bar:
            task = bar.add_task("", total=len(tools))
            while not summary.done():
                bar.update(task, completed=sum(p.embeddings for p in await client.partitions()))
                await asyncio.sleep(POLL_S)
            bar.update(task, completed=len(tools))
        console.print(f"   {await summary}")
        return float((await summary).rpartition(", ")[2].split()[0])


async def _warm(
    console: Console,
    client: IndexClient,
    embedder: LocalEmbedder,
    tools: list[Tool],
    cold_s: float,
) -> bool:
    """A gateway's session on the same tools, and three searches."""
    console.print("\n[bold]2. Warm.[/] A client session opens on the same tools.")
    started = time.perf_counter()
    async with Session(tools, embedder=embedder, client=client) as session:
        ready = await session.ready()
        warm_s = time.perf_counter() - started
        counts = session.counts
        console.print(
            f"   reused {counts.reused}, embedded {counts.embedded}: ready in "
            f"{warm_s * 1000:.1f} ms, {cold_s / warm_s:.0f} times faster than cold"
        )
        console.print("\n[bold]3. Find.[/] Tools in plain words, by meaning and by words.")
        table = Table("asked", "found", "score", box=None, padding=(0, 2), header_style="bold")
        found = True
        for query, wanted in QUERIES:
            hits = await session.find(query, limit=3)
            found = found and wanted in {hit.tool.name for hit in hits}
            for place, hit in enumerate(hits):
                table.add_row(query if place == 0 else "", hit.tool.name, f"{hit.score:.2f}")
        console.print(table)
    await embedder.close()
    return ready and found and counts.reused == len(tools) and counts.embedded == 0


async def _removals(console: Console, client: IndexClient) -> bool:
    """One EVICTED per row of the removal table."""
    console.print(
        "\n[bold]4. Remove.[/] One content under three adapters; what one EVICTED leaves of it."
    )
    table = Table("scoped", "adapter_id", box=None, padding=(0, 2), header_style="bold")
    for adapter_id in ADAPTERS:
        table.add_column(repr(adapter_id))
    table.add_column("as ruled")
    held = True
    for row in ROWS:
        left = await survivors(client, row)
        right = set(left) == set(row.survives)
        held = held and right
        table.add_row(
            str(row.adapter_scoped).lower(),
            repr(row.adapter_id),
            *("[green]stays[/]" if each in left else "[dim]gone[/]" for each in ADAPTERS),
            "[green]yes[/]" if right else "[red]NO[/]",
        )
    console.print(table)
    return held
