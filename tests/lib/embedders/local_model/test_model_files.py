"""A model's folder: what is read from it, its revision, and when it is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from warmindex.embedders import LocalEmbedder, MisconfiguredError
from warmindex.embedders.local_model import model_files

onnx = pytest.mark.skipif(
    model_files.default_folder() is None, reason="the default ONNX model is not installed"
)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the model's folder that a test may change; the weights are links."""
    folder = model_files.default_folder()
    assert folder is not None
    target = tmp_path / "my-model"
    (target / "onnx").mkdir(parents=True)
    for name in ("onnx/model.onnx", "tokenizer.json"):
        shutil.copy(folder.path / name, target / name)
    # A hard link: the runtime wants the weights inside the folder.
    weights = "onnx/model.onnx_data"
    try:
        os.link(folder.path / weights, target / weights)
    except OSError:
        shutil.copy(folder.path / weights, target / weights)
    return target


@onnx
async def test_a_folder_of_the_users_is_loaded_as_it_says(copied: Path):
    """Its length comes from its files, its name is its identity's, its vectors the model's."""
    (copied / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    own, embedder = LocalEmbedder(str(copied)), LocalEmbedder()
    identity = await own.identity()
    assert (identity.model, identity.truncation) == ("my-model", "right@256")
    assert identity.revision == (await embedder.identity()).revision
    vectors = [await each.embed_query("x") for each in (own, embedder)]
    np.testing.assert_array_equal(*vectors)
    await own.close()
    await embedder.close()


@onnx
async def test_any_file_of_the_model_is_part_of_its_revision(copied: Path):
    """Another tokenizer, or another file under onnx/, is another revision."""
    seen = set()
    for change in (None, "onnx/extra.bin", "tokenizer.json"):
        if change is not None:
            with (copied / change).open("a") as file:
                file.write("\n")
        embedder = LocalEmbedder(str(copied), max_tokens=256)
        seen.add((await embedder.identity()).revision)
        await embedder.close()
    assert len(seen) == 3


@onnx
@pytest.mark.parametrize(
    ("file", "content", "field"),
    [
        ("1_Pooling/config.json", '{"pooling_mode_cls_token": true}', "model"),
        ("sentence_bert_config.json", "{", "model"),
        ("sentence_bert_config.json", "{}", "max_tokens"),
        (
            "tokenizer_config.json",
            '{"model_max_length": 1000000000000000019884624838656}',
            "max_tokens",
        ),
        ("tokenizer.json", "{}", "model"),
        ("onnx/model.onnx", "not a model", "model"),
    ],
)
async def test_a_folder_that_cannot_be_computed_right_is_refused(
    copied: Path, file: str, content: str, field: str
):
    """Other pooling, an unknown length, broken files: an error with the field at fault."""
    if file not in {"sentence_bert_config.json", "tokenizer_config.json"}:
        (copied / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    (copied / file).parent.mkdir(exist_ok=True)
    (copied / file).write_text(content)
    embedder = LocalEmbedder(str(copied))
    with pytest.raises(MisconfiguredError) as caught:
        await embedder.identity()
    await embedder.close()
    assert caught.value.field == field


@onnx
def test_weights_that_are_not_the_known_ones_are_refused(copied: Path):
    """The default model is known by checksum, not by its name."""
    folder = model_files.default_folder()
    assert folder is not None
    pinned = model_files.ModelFolder(copied, 256, folder.pinned)
    assert set(model_files.digests(pinned)) == set(folder.pinned)
    (copied / "tokenizer.json").write_text("{}")
    with pytest.raises(MisconfiguredError, match="not the file"):
        model_files.digests(pinned)
    (copied / "onnx/model.onnx_data").unlink()
    with pytest.raises(MisconfiguredError, match="not the file"):
        model_files.digests(pinned)


async def test_a_folder_that_is_none_is_refused(tmp_path: Path):
    """The error says which file is missing."""
    embedder = LocalEmbedder(str(tmp_path))
    with pytest.raises(MisconfiguredError, match=r"has no tokenizer\.json"):
        await embedder.identity()
    await embedder.close()


def test_json_that_is_no_object_says_nothing(tmp_path: Path):
    """A config file with a list in it is as good as none."""
    (tmp_path / "x.json").write_text(json.dumps([1]))
    assert model_files._read_json(tmp_path / "x.json") == {}
