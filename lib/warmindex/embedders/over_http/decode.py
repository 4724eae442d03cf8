"""From an answer's bytes to vectors. Pure.

What came decides how it is read, never what was asked for: servers ignore
`encoding_format`, and a list of floats read as base64 would be a quarter as wide without
any error. Whatever does not hold exactly one vector for each text is BadAnswerError.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from warmindex.embedders.base import FloatMatrix, FloatVector
from warmindex.embedders.errors import BadAnswerError
from warmindex.limits import DIMENSIONS_MAX


@dataclass(frozen=True, slots=True)
class Rows:
    """Vectors, float32 (n, d), in the order of the request. Values are not checked yet.

    `model` is the model that the server says it answered with, "" where it does not.
    """

    matrix: FloatMatrix
    model: str = ""


def tei_rows(body: bytes, count: int) -> Rows:
    """The answer of TEI's /embed: a bare list of lists, in the order of the request."""
    value = _json(body)
    if not isinstance(value, list):
        raise BadAnswerError(f"the answer is a JSON {_kind(value)}, not a list of vectors")
    return Rows(_matrix(value, count))


def openai_rows(body: bytes, count: int) -> Rows:
    """The answer of /v1/embeddings: `data` in any order, by `index`; lists or base64."""
    value = _json(body)
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise BadAnswerError(f"the answer is a JSON {_kind(value)} without a list `data`")
    if len(data) != count:
        raise BadAnswerError(f"{count} texts were sent and {len(data)} vectors came")
    ordered: list[Any] = [None] * count
    filled = [False] * count
    for position, item in enumerate(data):
        # Without any index the order is all there is.
        index = item.get("index", position)
        if not isinstance(index, int) or not 0 <= index < count or filled[index]:
            raise BadAnswerError(f"the vectors are numbered wrongly: {index!r:.20} of {count}")
        ordered[index], filled[index] = item.get("embedding"), True
    model = value.get("model")
    return Rows(_matrix(ordered, count), model if isinstance(model, str) else "")


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        start = body[:20].decode("utf-8", errors="replace")
        raise BadAnswerError(f"the answer is no JSON; it begins with {start!r}") from error


def _matrix(rows: list[Any], count: int) -> FloatMatrix:
    if len(rows) != count:
        raise BadAnswerError(f"{count} texts were sent and {len(rows)} vectors came")
    vectors = [_vector(row) for row in rows]
    widths = {len(vector) for vector in vectors}
    if len(widths) != 1:
        raise BadAnswerError(f"the vectors have different widths: {sorted(widths)[:4]}")
    width = widths.pop()
    if not 1 <= width <= DIMENSIONS_MAX:
        raise BadAnswerError(f"the vectors are {width} wide; allowed is 1..{DIMENSIONS_MAX}")
    return np.stack(vectors)


def _vector(value: Any) -> FloatVector:
    if isinstance(value, str):
        return _from_base64(value)
    if not isinstance(value, list):
        raise BadAnswerError(f"a vector is a JSON {_kind(value)}, not a list of numbers")
    try:
        numbers = np.array(value)
        if numbers.dtype == object:
            # null is how JSON says NaN: the row is found out by whoever checks values.
            numbers = np.array([np.nan if item is None else item for item in value])
    except ValueError as error:
        raise BadAnswerError("a vector is a list of lists") from error
    if numbers.ndim != 1 or numbers.dtype.kind not in "fiu":
        raise BadAnswerError(f"a vector holds {numbers.dtype}, not numbers")
    with np.errstate(over="ignore"):  # Becomes infinite, and is found out.
        return numbers.astype(np.float32)


def _from_base64(text: str) -> FloatVector:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadAnswerError("a vector is a text that is no base64") from error
    if len(data) % 4:
        raise BadAnswerError(f"a vector is base64 of {len(data)} bytes, not of float32 numbers")
    return np.frombuffer(data, dtype="<f4").astype(np.float32)


def _kind(value: Any) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
