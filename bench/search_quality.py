"""How often the right tool is found, beside simpler ways of looking for it.

    python bench/search_quality.py [--data DIR] [--cache FILE] [--rerank [DIR]] [--write]

For each set of labelled queries: the share of queries whose tool is first, among the first
five, and among the first ten, by

    FTS5       plain SQLite FTS5, Porter stemming, all words of the query joined by OR
    merge      the first half by meaning, the rest by that FTS5: a semantic-first merge
    words      the words arm alone
    meaning    the meaning arm alone
    hybrid     both
    reranked   with --rerank: hybrid's first 30, in the order of a second stage

The last row is what each costs: milliseconds a query, its own vector not counted. The second
stage is late interaction over the local embedder's tokens, or the cross-encoder in DIR.

Vectors come from the local embedder (pip install 'warmindex[local]') and are kept in the
cache, since computing them takes minutes. `--write` puts the table into docs/search.md.

The data is not part of the project. DIR has catalogue-140.json, catalogue-2901.json and
metatool-tools.json (lists of server, name, description), and queries-dev.jsonl and
metatool-queries-dev.jsonl (query, relevant, granularity, id).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import re
import sqlite3
import string
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from warmindex.embedders import LocalEmbedder
from warmindex.event import Document
from warmindex.index.search import Hit, search
from warmindex.index.vectors import VectorStore
from warmindex.index.words import WordIndex
from warmindex.rerank import CrossEncoder, LateInteraction, Reranker, Scorer

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "search.md"
MARKS = ("<!-- quality: begin -->\n", "<!-- quality: end -->\n")
CUTS = (1, 5, 10)
METHODS = ["FTS5", "merge", "words", "meaning", "hybrid"]
RERANKED = "reranked"
# Token vectors of all catalogues at once, so that each text is computed once.
KEPT_TOKENS_MAX = 1 << 20
TYPO_SHARE = 0.3


@dataclass(frozen=True)
class Query:
    """A text, and the (server, name) of the tools that answer it."""

    text: str
    relevant: frozenset[tuple[str, str]]


@dataclass
class QuerySet:
    """Queries over a catalogue; `server` limits the search to its tools."""

    name: str
    tools: list[dict[str, str]]
    queries: list[Query]
    server: str | None = None
    counts: bool = True  # in the mean
    keys: dict[tuple[str, str], bytes] = field(default_factory=dict)
    documents: dict[bytes, Document] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tool in self.tools:
            text = tool_text(tool)
            key = hashlib.sha256(text.encode()).digest()
            self.keys[tool["server"], tool["name"]] = key
            self.documents[key] = Document(tool["name"], tool["description"])

    def allowed(self) -> list[bytes] | None:
        if self.server is None:
            return None
        return sorted({key for (server, _), key in self.keys.items() if server == self.server})


def tool_text(tool: dict[str, str]) -> str:
    return f"name: {tool['name']} description: {tool['description']}"


# -- the sets ------------------------------------------------------------------------------


def load(data: Path) -> list[QuerySet]:
    big, small, metatool = (
        json.loads((data / f"{name}.json").read_text())
        for name in ("catalogue-2901", "catalogue-140", "metatool-tools")
    )
    rows = [json.loads(line) for line in (data / "queries-dev.jsonl").open()]
    more = [json.loads(line) for line in (data / "metatool-queries-dev.jsonl").open()]

    def pick(rows: list[dict], start: str, granularity: str) -> list[Query]:
        return [
            Query(row["query"], frozenset((one["server"], one["name"]) for one in row["relevant"]))
            for row in rows
            if row["id"].startswith(start) and row["granularity"] == granularity
        ]

    azure = pick(rows, "az", "single")
    sets = [
        QuerySet("az, whole catalogue", big, azure),
        QuerySet("az, among its own", big, azure, server="azure"),
        QuerySet("mdb", big, pick(rows, "mdb", "single")),
        QuerySet("live, steps", big, pick(rows, "live", "step")),
        QuerySet("au", small, pick(rows, "au", "single")),
        QuerySet("metatool", metatool, pick(more, "mt", "single")),
    ]
    typos = [misspelt(one) for one in sets if one.name not in ("az, among its own", "metatool")]
    tasks = pick(rows, "live", "task") + pick(rows, "mdb", "task")
    return [
        *sets,
        QuerySet("tasks, any of their tools", big, tasks, counts=False),
        QuerySet("metatool, several tools", metatool, pick(more, "mt", "multi"), counts=False),
        *typos,
    ]


def misspelt(one: QuerySet) -> QuerySet:
    """Make a typo in three of ten longer words."""
    rng = random.Random(7)
    queries = [Query(typos(query.text, rng), query.relevant) for query in one.queries]
    return QuerySet(f"{one.name}, misspelt", one.tools, queries, one.server, counts=False)


def typos(text: str, rng: random.Random) -> str:
    def typo(match: re.Match[str]) -> str:
        word = match.group()
        if len(word) < 5 or not word.isalpha() or rng.random() > TYPO_SHARE:
            return word
        at = rng.randrange(1, len(word) - 1)
        letter = rng.choice(string.ascii_lowercase)
        return rng.choice(
            [
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at:],
                word[:at] + letter + word[at + 1 :],
            ]
        )

    return re.sub(r"\w+", typo, text)


# -- vectors -------------------------------------------------------------------------------


def embed(texts: Sequence[str], cache: Path) -> dict[str, np.ndarray]:
    """Give the vector of each text, computing those that are not in the cache."""
    known: dict[str, np.ndarray] = {}
    if cache.exists():
        stored = np.load(cache)
        known = dict(zip(stored["names"].tolist(), stored["rows"], strict=True))
    names = {text: hashlib.sha256(text.encode()).hexdigest() for text in texts}
    missing = [text for text, name in names.items() if name not in known]
    if missing:
        print(f"embedding {len(missing)} texts", file=sys.stderr)
        rows = asyncio.run(computed(missing))
        known.update(zip((names[text] for text in missing), rows, strict=True))
        np.savez(cache, names=np.array(list(known)), rows=np.array(list(known.values())))
    return {text: known[name] for text, name in names.items()}


async def computed(texts: Sequence[str]) -> np.ndarray:
    embedder = LocalEmbedder()
    try:
        embedded = await embedder.embed_documents(texts)
    finally:
        await embedder.close()
    assert not embedded.failures
    return embedded.vectors


# -- the methods ---------------------------------------------------------------------------


class Second:
    """The second stage, from a program that has no event loop."""

    def __init__(self, folder: str) -> None:
        self._loop = asyncio.new_event_loop()
        self.scorer: Scorer = (
            CrossEncoder(folder) if folder else LateInteraction(kept_tokens_max=KEPT_TOKENS_MAX)
        )
        self._reranker = Reranker(self.scorer)
        self.hits = self._reranker.hits

    def prepare(self, texts: Sequence[str]) -> None:
        """Let the scorer keep what it keeps of texts; it costs minutes, once a catalogue."""
        if isinstance(self.scorer, LateInteraction):
            self._loop.run_until_complete(self.scorer.scores("", list(texts)))

    def order(self, text: str, texts: Sequence[str], scores: Sequence[float]) -> list[int]:
        return self._loop.run_until_complete(self._reranker.order(text, texts, scores))

    def close(self) -> None:
        self._loop.run_until_complete(self._reranker.close())
        self._loop.close()


class Plain:
    """FTS5 as one would first think of it."""

    def __init__(self, documents: dict[bytes, Document], allowed: list[bytes] | None) -> None:
        self._engine = sqlite3.connect(":memory:")
        self._engine.execute(
            "create virtual table t using fts5(key unindexed, name, description, tokenize='porter')"
        )
        self._engine.executemany(
            "insert into t values (?, ?, ?)",
            [(key.hex(), *text) for key, text in documents.items()],
        )
        self._allowed = None if allowed is None else {key.hex() for key in allowed}

    def ask(self, text: str) -> list[bytes]:
        words = dict.fromkeys(re.findall(r"\w+", text.lower()))
        if not words:
            return []
        match = " OR ".join(f'"{word}"' for word in words)
        sql = "select key from t where t match ? order by rank"
        keys = (key for (key,) in self._engine.execute(sql, (match,)))
        listed = [key for key in keys if self._allowed is None or key in self._allowed]
        return [bytes.fromhex(key) for key in listed[: max(CUTS)]]


def ways(
    one: QuerySet, vectors: dict[str, np.ndarray], second: Second | None
) -> dict[str, Callable[[str], list[bytes]]]:
    """Give each method as a function from a query to the keys that it lists."""
    store, words = VectorStore(len(next(iter(vectors.values())))), WordIndex()
    texts = {hashlib.sha256(text.encode()).digest(): text for text in map(tool_text, one.tools)}
    for key, document in one.documents.items():
        store.put([key], vectors[texts[key]][None, :])
        words.put(key, document)
    allowed = one.allowed()
    plain = Plain(one.documents, allowed)

    def hits(text: str, *, by_meaning: bool = True, by_words: bool = True, limit: int) -> list[Hit]:
        return search(
            store,
            words,
            query=vectors[text] if by_meaning else None,
            query_text=text if by_words else "",
            allowed=allowed,
            limit=limit,
        )

    def ask(text: str, **arms: bool) -> list[bytes]:
        return [hit.content_hash for hit in hits(text, limit=max(CUTS), **arms)]

    def reranked(text: str) -> list[bytes]:
        assert second is not None
        found = hits(text, limit=second.hits)
        order = second.order(
            text, [texts[hit.content_hash] for hit in found], [hit.score for hit in found]
        )
        return [found[place].content_hash for place in order[: max(CUTS)]]

    def merge(text: str) -> list[bytes]:
        near = ask(text, by_words=False)
        half = near[: max(CUTS) // 2]
        return list(dict.fromkeys(half + plain.ask(text) + near))[: max(CUTS)]

    return {
        "FTS5": plain.ask,
        "merge": merge,
        "words": lambda text: ask(text, by_meaning=False),
        "meaning": lambda text: ask(text, by_words=False),
        "hybrid": ask,
        RERANKED: reranked,
    }


def shares(one: QuerySet, method: Callable[[str], list[bytes]]) -> list[float]:
    """Give the share of queries that have a right tool among the first of each cut."""
    found = [0] * len(CUTS)
    for query in one.queries:
        right = {one.keys[tool] for tool in query.relevant}
        listed = method(query.text)
        for place, cut in enumerate(CUTS):
            found[place] += bool(right & set(listed[:cut]))
    return [count / len(one.queries) for count in found]


# -- the table -----------------------------------------------------------------------------


def table(
    results: dict[str, tuple[QuerySet, dict[str, list[float]]]], cost_s: dict[str, float]
) -> str:
    head = f"| set | queries | {' | '.join(METHODS)} |\n"
    lines = [head, "|---|---|" + "---|" * len(METHODS) + "\n"]

    def line(name: str, count: str, by_method: dict[str, list[float]]) -> str:
        cells = [" ".join(f"{share:.2f}" for share in by_method[method]) for method in METHODS]
        return f"| {name} | {count} | {' | '.join(cells)} |\n"

    counted = [by_method for one, by_method in results.values() if one.counts]
    mean = {
        method: np.mean([by_method[method] for by_method in counted], axis=0).tolist()
        for method in METHODS
    }
    for name, (one, by_method) in results.items():
        if not one.counts and "**mean of the above**" not in "".join(lines):
            lines.append(line("**mean of the above**", "", mean))
        lines.append(line(name, str(len(one.queries)), by_method))
    queries = sum(len(one.queries) for one, _ in results.values())
    cells = [f"{1000 * cost_s[method] / queries:.1f}" for method in METHODS]
    lines.append(f"| ms a query | {queries} | {' | '.join(cells)} |\n")
    return "".join(lines)


def write(text: str) -> None:
    report = REPORT.read_text()
    begin, end = (report.index(mark) for mark in MARKS)
    REPORT.write_text(report[: begin + len(MARKS[0])] + text + report[end:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    cache = Path(tempfile.gettempdir()) / "warmindex-search-vectors.npz"
    parser.add_argument("--cache", type=Path, default=cache)
    parser.add_argument("--write", action="store_true", help=f"put the table into {REPORT.name}")
    parser.add_argument("--rerank", nargs="?", const="", help="with a second stage")
    options = parser.parse_args()
    if not options.data.exists():
        sys.exit(f"error: {options.data} is not there; --data names the labelled queries' folder")
    sets = load(options.data)
    texts = [tool_text(tool) for one in sets for tool in one.tools]
    texts += [query.text for one in sets for query in one.queries]
    vectors = embed(texts, options.cache)
    second = None
    if options.rerank is not None:
        METHODS.append(RERANKED)
        second = Second(options.rerank)
        print("the second stage reads the catalogues", file=sys.stderr)
        second.prepare(list(dict.fromkeys(tool_text(tool) for one in sets for tool in one.tools)))
    results = {}
    cost_s = dict.fromkeys(METHODS, 0.0)
    for one in sets:
        methods = ways(one, vectors, second)
        results[one.name] = (one, {})
        for name in METHODS:
            methods[name]("warm up" if name == "FTS5" else one.queries[0].text)
            begin_s = time.perf_counter()
            results[one.name][1][name] = shares(one, methods[name])
            cost_s[name] += time.perf_counter() - begin_s
    if second is not None:
        second.close()
    text = table(results, cost_s)
    print(f"hit@{', hit@'.join(map(str, CUTS))}\n\n{text}")
    if options.write:
        write(text)


if __name__ == "__main__":
    main()
