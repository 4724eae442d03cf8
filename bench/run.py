"""Runs the benchmarks one after the other and writes what they print into docs/benchmarks.md.

    make bench                      all of them
    make bench ARGS="session fetch" those whose name has one of these words

What stands outside the two marks in docs/benchmarks.md (what the figures mean, which were
missed and why) is written by people and stays.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"
SECONDS_MAX = 600

# Name, script with its arguments, and what it is about. Those with a network of peers last.
RUNS = [
    ("index", ["index.py"], "The pure index: holds, memory, removals, prefixes"),
    ("search", ["search_speed.py"], "Search beside a bare product and a bare FTS5 query"),
    ("server", ["server.py"], "The server beside an empty handler of the same bytes"),
    ("session", ["session.py"], "A session cold and warm, beside an empty call"),
    ("build", ["build.py"], "Builds over one and four embedding servers"),
    ("embedders", ["embedders.py"], "Embedders beside plain loops"),
    ("journal", ["journal.py"], "Journals beside each other and a bare Redis pipeline"),
    ("watch", ["watch.py"], "Watches and mirrors, beside redis-py with hiredis"),
    ("kv", ["kv_sidecar.py"], "The KV sidecar, from ZMQ frame to acknowledged publish"),
    ("kv-processes", ["kv_end_to_end.py"], "KV events over processes, and how soon a route knows"),
]


def machine() -> str:
    """What this was measured on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores ({model}), {memory_gib:.0f} GiB, {platform.system()} "
        f"{platform.release()}, Python {platform.python_version()}; load average {load:.1f} when "
        f"it began, {time.strftime('%Y-%m-%d')}"
    )


def run(name: str, command: list[str], title: str) -> str:
    """One benchmark's part of the page."""
    print(f"{name} …", flush=True)
    script, *arguments = command
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    text = done.stdout.rstrip()
    if done.returncode:
        text += f"\n(ended with exit code {done.returncode})\n{done.stderr[-500:]}"
    print(text, flush=True)
    seconds = time.monotonic() - started
    return f"### {title}\n\n`bench/{script}`, {seconds:.0f} s\n\n```text\n{text}\n```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("words", nargs="*", help="run those whose name has one of these")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    chosen = [
        each
        for each in RUNS
        if not arguments.words or any(word in each[0] for word in arguments.words)
    ]
    parts = [f"Measured on {machine()}.\n", *(run(*each) for each in chosen)]
    if arguments.dry or arguments.words:
        return
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    measured = "\n".join(parts)
    PAGE.write_text(f"{before}{BEGIN}\n\n{measured}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
