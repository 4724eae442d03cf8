"""The grpcurl examples of the documents can be taken out, and speak the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import warmindex.v1.index_service_pb2  # noqa: F401 - registers the service in the pool
from google.protobuf import descriptor_pool, json_format, message_factory
from support.examples import Example, blocks, examples, matches
from support.tree import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "contract.md")
EXAMPLES = [example for path in DOCUMENTS for example in examples(path)]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_grpcurl_example_is_one_that_runs(path: Path):
    """No example escapes the tests: each is marked, and each is taken out."""
    shown = [block.line for block in blocks(path.read_text(encoding="utf-8")) if block.is_grpcurl]
    assert [example.line for example in examples(path)] == shown


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.method], ids=str)
def test_an_example_speaks_the_contract(example: Example):
    """What is sent, and what is shown of the answer, has only fields that exist."""
    service, _, name = example.method.partition("/")
    method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
    for request in example.requests:
        decode(request, method.input_type)
    for answer in example.answers or ():
        decode(answer, method.output_type)


def decode(value: object, message_type) -> None:
    json_format.ParseDict(value, message_factory.GetMessageClass(message_type)())


DOCUMENT = """
Text.

<!-- runs -->
```sh
grpcurl -plaintext -d '{"part":
  1}' 127.0.0.1:50151 \\
  a.Service/Method
```

```json
{"answer": 2}
{"answer": 3}
```

```json
{"not": "an answer"}
```

```sh
grpcurl not marked
```
"""


def test_an_example_is_taken_out_whole(tmp_path: Path):
    """Command, line, requests and answers are read as they stand."""
    path = tmp_path / "doc.md"
    path.write_text(DOCUMENT)
    (example,) = examples(path)
    assert example.line == 5
    assert example.requests == ({"part": 1},)
    assert example.method == "a.Service/Method"
    assert example.answers == ({"answer": 2}, {"answer": 3})
    assert example.arguments("127.0.0.1:1")[-2:] == ["127.0.0.1:1", "a.Service/Method"]


@pytest.mark.parametrize(
    ("shown", "answer", "same"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {}, False),
        ({"a": {"b": [1]}}, {"a": {"b": [1], "c": 2}}, True),
        ([1], [1, 2], False),
        (({"a": 1},), [{"a": 1}], True),
    ],
)
def test_an_answer_matches_where_it_has_all_that_is_shown(shown, answer, same):
    """Fields may be left out of a document, list members may not."""
    assert matches(shown, answer) is same
