"""Parts: what of a build goes into one event."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from warmindex import limits
from warmindex.build.parts import PART_ROWS_MAX, fitting, parts
from warmindex.build.result import Item
from warmindex.event import Document


@given(st.lists(st.sampled_from([0, 10, 60_000, 90_000])), st.sampled_from([1, 384, 8192]))
def test_parts_fit_and_lose_nothing(lengths: list[int], dimensions: int):
    """Every hash is in one part, in order, with its document; no part is more than an event."""
    items = {
        number.to_bytes(32, "big"): Item("text", Document("n", "é" * (length // 2)))
        for number, length in enumerate(lengths)
    }
    made = list(parts(list(items), items, dimensions))
    assert [each for hashes, _ in made for each in hashes] == list(items)
    for hashes, documents in made:
        assert 1 <= len(hashes) <= PART_ROWS_MAX
        assert [fitting(items[each].document or Document()) for each in hashes] == list(documents)
        size = len(hashes) * (dimensions * 4 + 100)
        size += sum(len(each.description.encode()) for each in documents)
        assert size < limits.EVENT_BYTES_MAX


def test_no_documents_are_none():
    """Where all texts stay at home, there is not even an empty document."""
    items = {bytes(32): Item("text"), bytes(31) + b"1": Item("other")}
    assert list(parts(list(items), items, 4)) == [(list(items), ())]


@given(st.text(), st.integers(0, 70_000))
def test_a_document_is_cut_to_what_the_contract_takes(text: str, length: int):
    """Names and descriptions are cut between characters, and only where they must be."""
    text = (text or "x") * (length // len(text or "x"))
    cut = fitting(Document(text, text))
    for part, most in zip(
        cut, (limits.DOCUMENT_NAME_BYTES_MAX, limits.DOCUMENT_DESCRIPTION_BYTES_MAX), strict=True
    ):
        assert text.startswith(part)
        assert len(part.encode()) <= most
        assert part == text or len(part.encode()) > most - 4
