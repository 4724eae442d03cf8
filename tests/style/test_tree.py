"""What every file of the project keeps to: size, words, documents that are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.tree import PACKAGES, ROOT, STUBS, code, documents, files, relative

# One concept a file: 300 lines is the rule, and this is where a file is certainly two.
FILE_LINES_MAX = 400
# A function should fit a screen; a tall screen has 70 lines.
FUNCTION_LINES_MAX = 70
# A file or "file::function" that may be longer, with the reason.
LONGER: dict[str, str] = {}

# A registry's host in a file would bind everybody to one registry, and the tools find
# theirs by themselves. Put together from parts, so that this file passes its own test.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs"),
        ("registry", "yarnpkg"),
        ("crates", "io"),
        ("proxy", "golang"),
        ("sum", "golang"),
        ("repo1", "maven"),
        ("repo", "maven"),
        ("deb", "debian"),
        ("archive", "ubuntu"),
    )
)
# Folders that exist on one machine only.
PRIVATE_FOLDERS = tuple("/".join(("", *parts)) for parts in (("work", ""), ("tmp", "brief")))


def texts() -> list[Path]:
    """Every file that is text; the tree has no binary file of a kind not named here."""
    return [path for path in files() if path.suffix not in {".png", ".onnx", ".npy", ".npz"}]


def python(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.mark.parametrize("path", code(), ids=relative)
def test_a_file_is_one_concept(path: Path):
    """No source file is longer than a reader's patience."""
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES_MAX or relative(path) in LONGER, (
        f"{lines} lines, and {FILE_LINES_MAX} is the most: find the second concept in it"
    )


@pytest.mark.parametrize("path", code(), ids=relative)
def test_a_function_fits_a_screen(path: Path):
    """No function is longer than a tall screen."""
    long = [
        f"{relative(path)}::{node.name} has {length} lines"
        for node in ast.walk(python(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
        and f"{relative(path)}::{node.name}" not in LONGER
    ]
    assert not long, f"{FUNCTION_LINES_MAX} lines is the most"


def test_what_may_be_longer_still_is():
    """An exception goes when its reason goes."""
    for place in LONGER:
        assert (ROOT / place.partition("::")[0]).exists(), place


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in code()
        if any(path.is_relative_to(package) for package in PACKAGES)
        and (not path.name.startswith("_") or path.name == "__init__.py")
    ],
    ids=relative,
)
def test_a_public_module_says_what_it_is(path: Path):
    """Every module that others import, and every package, begins with its docstring."""
    assert ast.get_docstring(python(path)), "say in the first lines what the module is for"


@pytest.mark.parametrize("path", texts(), ids=relative)
def test_no_registry_and_no_private_folder_is_named(path: Path):
    """The tree holds on any machine, behind any registry."""
    text = path.read_text(encoding="utf-8")
    named = [host for host in REGISTRY_HOSTS if host in text]
    named += [folder for folder in PRIVATE_FOLDERS if re.search(rf"(?<![\w.$}}-]){folder}", text)]
    assert not named, "name no registry's host and no folder of one machine"


@pytest.mark.parametrize("path", documents(), ids=relative)
def test_the_links_of_a_document_lead_somewhere(path: Path):
    """A relative link names a file or a folder that is there."""
    text = path.read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


def test_the_generated_stubs_are_left_out_of_the_rules():
    """They are in no list above, and they are there: the filter has not emptied the rules."""
    assert not [path for path in code() for stubs in STUBS if path.is_relative_to(stubs)]
    assert [path for path in code() if path.is_relative_to(PACKAGES[0])]
    assert Path(__file__) in code()
