"""What a word that no document has may have been meant to be.

One edit away (a letter left out, put in, replaced, or two swapped), as in Peter Norvig's "How
to Write a Spelling Corrector": all such strings are made, and those that the documents have
are the candidates. That takes about 0.1 ms a word and no structure but the set of words.
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

# A shorter word is one edit away from too many others: cat, cut, cast, at.
CORRECTED_CHARACTERS_MIN: Final = 5
# The strings to make grow with the length, and words that long are not typed.
CORRECTED_CHARACTERS_MAX: Final = 24
# More candidates than any language has; it bounds what made-up documents can cost.
CANDIDATES_MAX: Final = 64


def candidates(word: str, vocabulary: AbstractSet[str]) -> list[str]:
    """Give words of the vocabulary, in order, that are one edit away from a Latin word."""
    if not CORRECTED_CHARACTERS_MIN <= len(word) <= CORRECTED_CHARACTERS_MAX:
        return []
    if not (word.isascii() and word.isalpha()):
        return []
    return sorted(_edits(word) & vocabulary)[:CANDIDATES_MAX]


def _edits(word: str) -> set[str]:
    cuts = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    edits = {head + tail[1:] for head, tail in cuts}
    edits.update([head + tail[1] + tail[0] + tail[2:] for head, tail in cuts[:-2]])
    for letter in ascii_lowercase:
        edits.update([head + letter + tail for head, tail in cuts])
        edits.update([head + letter + tail[1:] for head, tail in cuts])
    return edits
