"""A cross-encoder of a few hundred bytes, made by hand: real files for the real runtime.

Its logit is the sum of the weights of the second text's words: a table looked up by
input_ids, times token_type_ids, times attention_mask. Written as ONNX's messages are (field
numbers of onnx.proto), since the library that writes them is needed for nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, processors

FLOAT, INT64 = 1, 7
UNKNOWN = "[UNK]"


def write(folder: Path, weights: Mapping[str, float], *, labels: int = 1) -> Path:
    """Make the model's folder; words that are not in `weights` weigh nothing."""
    words = {word: place for place, word in enumerate(["[PAD]", UNKNOWN, "[SEP]", *weights])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B:1 [SEP]:1", special_tokens=[("[SEP]", words["[SEP]"])]
    )
    (folder / "onnx").mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64}))
    table = np.array([[0.0, 0.0, 0.0, *weights.values()]] * labels, np.float32).T
    (folder / "onnx" / "model.onnx").write_bytes(_model(table))
    return folder


def _model(table: np.ndarray) -> bytes:
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    nodes = [
        _node("Gather", ["table", "input_ids"], "weights"),
        _node("Mul", ["attention_mask", "token_type_ids"], "counted"),
        _node("Cast", ["counted"], "counts", _attribute("to", FLOAT)),
        _node("Unsqueeze", ["counts", "last"], "column"),
        _node("Mul", ["weights", "column"], "products"),
        _node("ReduceSum", ["products", "tokens"], "logits", _attribute("keepdims", 0)),
    ]
    tensors = [
        _tensor("table", FLOAT, table),
        _tensor("last", INT64, np.array([2], np.int64)),
        _tensor("tokens", INT64, np.array([1], np.int64)),
    ]
    graph = b"".join(
        [_field(1, node) for node in nodes]
        + [_field(2, b"tiny")]
        + [_field(5, tensor) for tensor in tensors]
        + [_field(11, _value(name, INT64, ["rows", "tokens"])) for name in inputs]
        + [_field(12, _value("logits", FLOAT, ["rows", "labels"]))]
    )
    opset = _field(8, _field(1, b"") + _number(2, 13))
    return _number(1, 8) + _field(7, graph) + opset


def _node(kind: str, inputs: list[str], output: str, attribute: bytes = b"") -> bytes:
    named = b"".join(_field(1, name.encode()) for name in inputs)
    return named + _field(2, output.encode()) + _field(4, kind.encode()) + attribute


def _attribute(name: str, value: int) -> bytes:
    return _field(5, _field(1, name.encode()) + _number(3, value) + _number(20, 2))


def _tensor(name: str, kind: int, array: np.ndarray) -> bytes:
    dimensions = b"".join(_number(1, size) for size in array.shape)
    return dimensions + _number(2, kind) + _field(8, name.encode()) + _field(9, array.tobytes())


def _value(name: str, kind: int, dimensions: list[str]) -> bytes:
    shape = b"".join(_field(1, _field(2, each.encode())) for each in dimensions)
    tensor = _number(1, kind) + _field(2, shape)
    return _field(1, name.encode()) + _field(2, _field(1, tensor))


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
