"""How fast a search is, beside what it is made of, measured in the same run.

    python bench/search_speed.py [--quick] [--write]

Hybrid over 1,000 tools is held against one numpy product and one FTS5 query, each as bare as
can be; exact search over 100 thousand vectors against the product and the selection. Each
round measures everything once, so that what else the machine does falls on all alike; the
table gives medians, and ratios of medians. `--write` puts it into docs/search.md.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from warmindex.event import Document
from warmindex.index.search import search
from warmindex.index.vectors import VectorStore
from warmindex.index.words import WordIndex

REPORT = Path(__file__).parents[1] / "docs" / "search.md"
MARKS = ("<!-- speed: begin -->\n", "<!-- speed: end -->\n")
DIMENSIONS = 384
LIMIT = 8
SYLLABLES = "ba co di fu ge ha li mo nu pe ra si to vu we za".split()  # noqa: SIM905 - short
COMMON = "the of a to with for in by from and all".split()  # noqa: SIM905 - short


def vocabulary(count: int) -> list[str]:
    """Make up words; the first ones are meant to be the frequent ones."""
    rng = random.Random(0)
    made = dict.fromkeys(
        "".join(rng.choices(SYLLABLES, k=rng.randrange(2, 5))) for _ in range(2 * count)
    )
    return list(made)[:count]


WORDS = vocabulary(4000)
# Zipf's law, as in the descriptions of real tools.
FREQUENCIES = [1 / (rank + 10) for rank in range(len(WORDS))]


def some_words(rng: random.Random, count: int) -> list[str]:
    return [
        rng.choice(COMMON) if rng.random() < 0.3 else rng.choices(WORDS, FREQUENCIES)[0]
        for _ in range(count)
    ]


def tools(count: int, seed: int = 1) -> list[Document]:
    """Make up tools: a name of three words, a description of 35 on average."""
    rng = random.Random(seed)
    return [
        Document(
            "_".join(rng.choices(WORDS, FREQUENCIES, k=3)),
            " ".join(some_words(rng, rng.randrange(10, 60))),
        )
        for _ in range(count)
    ]


def queries(count: int, seed: int = 2) -> list[str]:
    """Make up questions of twelve words, of which one is nowhere."""
    rng = random.Random(seed)
    return [" ".join([*some_words(rng, 11), f"acme{rng.randrange(10)}zed"]) for _ in range(count)]


def key(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest()


def filled(documents: list[Document], rows: np.ndarray) -> tuple[VectorStore, WordIndex]:
    vectors, words = VectorStore(rows.shape[1]), WordIndex()
    for start in range(0, len(rows), 4096):
        some = rows[start : start + 4096]
        vectors.put([key(start + at) for at in range(len(some))], some)
    for number, document in enumerate(documents):
        words.put(key(number), document)
    return vectors, words


def bare_engine(documents: list[Document]) -> sqlite3.Connection:
    engine = sqlite3.connect(":memory:", isolation_level=None)
    engine.execute("create virtual table t using fts5(name, description, tokenize='porter')")
    engine.executemany("insert into t(name, description) values (?, ?)", documents)
    return engine


def bare_words(engine: sqlite3.Connection, text: str) -> list[tuple[int, float]]:
    words = dict.fromkeys(re.findall(r"\w+", text.lower()))
    match = " OR ".join(f'"{word}"' for word in words)
    sql = "select rowid, rank from t where t match ? order by rank limit ?"
    return engine.execute(sql, (match, LIMIT)).fetchall()


def bare_meaning(matrix: np.ndarray, query: np.ndarray) -> np.ndarray:
    scores = matrix @ query
    top = np.argpartition(scores, len(scores) - LIMIT)[-LIMIT:]
    return top[np.argsort(-scores[top])]


def measured(steps: dict[str, Callable[[int], object]], rounds: int) -> dict[str, float]:
    """Give the median of each step in milliseconds, all of them once a round."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(-3, rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step(turn % rounds)
            if turn >= 0:
                times[name].append((time.perf_counter() - start) * 1000)
    return {name: float(np.median(values)) for name, values in times.items()}


def unit_rows(count: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((count, DIMENSIONS), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def show(title: str, medians: dict[str, float], floor_names: list[str]) -> str:
    """Print a table, and give it in Markdown."""
    floor = sum(medians[name] for name in floor_names)
    lines = [f"\n| {title} | ms | times the floor |\n|---|---|---|\n"]
    print(f"\n{title}; floor: {' + '.join(floor_names)} = {floor:.3f} ms")
    for name, value in medians.items():
        print(f"  {name:44} {value:9.3f} ms  {value / floor:6.2f} x floor")
        mark = " (floor)" if name in floor_names else ""
        lines.append(f"| {name}{mark} | {value:.3f} | {value / floor:.2f} |\n")
    return "".join(lines)


def a_thousand_tools(rounds: int) -> str:
    documents, rows = tools(1000), unit_rows(1000, 3)
    vectors, words = filled(documents, rows)
    engine, asked, wanted = bare_engine(documents), queries(rounds), unit_rows(rounds, 4)
    some = [key(number) for number in range(0, 1000, 7)]

    def run(turn: int, *, meaning: bool = True, text: bool = True, allowed=None) -> object:
        return search(
            vectors,
            words,
            query=wanted[turn] if meaning else None,
            query_text=asked[turn] if text else "",
            allowed=allowed,
            limit=LIMIT,
        )

    medians = measured(
        {
            "numpy product and selection": lambda turn: bare_meaning(rows, wanted[turn]),
            "FTS5 query": lambda turn: bare_words(engine, asked[turn]),
            "hybrid": run,
            "meaning alone": lambda turn: run(turn, text=False),
            "words alone": lambda turn: run(turn, meaning=False),
            f"hybrid among {len(some)} allowed": lambda turn: run(turn, allowed=some),
        },
        rounds,
    )
    floor = ["numpy product and selection", "FTS5 query"]
    return show(f"1,000 tools, {DIMENSIONS} wide", medians, floor)


def many_vectors(count: int, rounds: int) -> str:
    rows = unit_rows(count, 5)
    vectors, _ = filled([], rows)
    wanted = unit_rows(rounds, 6)
    some = [key(number) for number in range(0, count, max(1, count // 16384))][:16384]
    few = some[:140]

    def run(turn: int, allowed=None) -> object:
        return search(vectors, None, query=wanted[turn], allowed=allowed, limit=LIMIT)

    medians = measured(
        {
            "numpy product and selection": lambda turn: bare_meaning(rows, wanted[turn]),
            "exact search": run,
            f"among {len(few)} allowed": lambda turn: run(turn, few),
            f"among {len(some)} allowed": lambda turn: run(turn, some),
        },
        rounds,
    )
    return show(f"{count:,} vectors, {DIMENSIONS} wide", medians, ["numpy product and selection"])


def fetching(rounds: int) -> str:
    tables = []
    rows = unit_rows(8192, 7)
    vectors, _ = filled([], rows)
    for count in (140, 1000, 4096):
        together = [key(number) for number in range(count)]
        apart = [key(number) for number in np.random.default_rng(8).permutation(8192)[:count]]
        flat = np.ascontiguousarray(rows[:count])
        medians = measured(
            {
                "memcpy to bytes": lambda _turn, flat=flat: flat.tobytes(),
                "gather, published together": lambda _turn, keys=together: vectors.gather(keys),
                "gather, anywhere": lambda _turn, keys=apart: vectors.gather(keys),
            },
            rounds,
        )
        tables.append(show(f"vectors of {count} keys", medians, ["memcpy to bytes"]))
    return "".join(tables)


def many_partitions(count: int) -> None:
    documents, rows = tools(5), unit_rows(5, 9)
    before = resident_bytes()
    kept = [filled(documents, rows) for _ in range(count)]
    told = sum(vectors.memory_bytes + words.memory_bytes for vectors, words in kept)
    after = resident_bytes()
    for _, words in kept[:200]:
        words.search("list file", (), LIMIT)
    searched = (resident_bytes() - after) / 200
    print(f"\n{count} partitions of 5 tools: {(after - before) / count:.0f} bytes each, ")
    print(f"  {told / count:.0f} of them by memory_bytes; an engine, once searched: {searched:.0f}")


def resident_bytes() -> int:
    with open("/proc/self/statm") as status:  # noqa: PTH123 - no file of ours
        return int(status.read().split()[1]) * 4096


def write(text: str) -> None:
    report = REPORT.read_text()
    begin, end = (report.index(mark) for mark in MARKS)
    REPORT.write_text(report[: begin + len(MARKS[0])] + text + "\n" + report[end:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer vectors")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {REPORT.name}")
    options = parser.parse_args()
    quick = options.quick
    text = a_thousand_tools(50 if quick else 300)
    text += many_vectors(20_000 if quick else 100_000, 15 if quick else 60)
    text += fetching(20 if quick else 100)
    many_partitions(1000 if quick else 10_000)
    if options.write:
        write(text)


if __name__ == "__main__":
    main()
