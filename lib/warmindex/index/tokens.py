"""From text to the words that are indexed, and to the words that are looked for.

The full-text engine gets words that need no further cutting, so what counts as a word is
decided here alone, for documents and queries alike:

    create_issue, create-issue, createIssue   create, issue, and the whole: createissue
    38.101, grammar::fa                       38, 101, 38101; grammar, fa, grammarfa
    C++, don't                                c, c++; dont
    Größe, Café                               grosse, cafe
    读取文件                                   each character and each pair of neighbours

Case, accents and compatibility forms do not count. Scripts that are written without spaces
are cut into pairs, the usual way to find their words by substrings without a dictionary.
Anything that is no letter, digit or pictograph separates words, NUL and quotes included, so
no word can be read as an engine's query syntax.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A longer run is a digest or base64, which nobody types twice; its head is kept.
WORD_CHARACTERS_MAX: Final = 64

# English words that say nothing about what is looked for. They are left out of queries,
# never of documents; a query of nothing else is looked for among names.
STOP_WORDS: Final = frozenset(
    """a about above after again against all also am an and any are as at be because been before
    being below between both but by can could did do does doing dont down during each few for
    from further had has have having he her here hers him his how i if im in into is it its
    itself ive just let lets like me more most my myself need no nor not now of off on once one
    only or other our out over own please same she should so some such than that thats the
    their them then there these they this those through to too under until up us very want was
    we were what when where which while who whom why will with would you your yours""".split()  # noqa: SIM905 - a list of 150 quoted words is not read by anybody
)

# Scripts whose words are not set apart, or (Hangul) carry their particles: Thai, Lao, Myanmar,
# Khmer, kana, Han.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_SCRIPTS: Final = re.compile(rf"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_IS_UNSPACED: Final = re.compile(rf"[{_UNSPACED}]")
# Marks that people leave out when they type: Latin, Greek and Cyrillic accents, Hebrew
# points, Arabic vowels.
_ACCENTS: Final = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf-\u05c7\u064b-\u0655\u0670]")
_PICTOGRAPHS: Final = "\u2190-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
_PARTS: Final = re.compile(r"[-_./:]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _chunk_pattern(letter: str, other: str) -> re.Pattern[str]:
    """Match one identifier: words glued by single separators; a letter may carry + or #."""
    run = rf"{letter}+(?:['\u2019]{letter}+)*"
    return re.compile(rf"{run}(?:[-_./:]{{1,2}}{run})*(?:[+#]{{1,2}}(?!{letter}))?{other}")


_ASCII_CHUNK: Final = _chunk_pattern("[A-Za-z0-9]", "")


@cache
def _unicode_chunk() -> re.Pattern[str]:
    # Combining marks are parts of words in Indic scripts and others, but not of Python's \w.
    # Made at the first text that needs it: it takes some milliseconds.
    marks = "".join(
        chr(code)
        for start, end in ((0x300, 0x1E00), (0xA600, 0xAC00))
        for code in range(start, end)
        if unicodedata.category(chr(code)).startswith("M")
    )
    return _chunk_pattern(rf"(?:[^\W_]|[{marks}])", f"|[{_PICTOGRAPHS}]")


# A query of more terms than this is a text, whose first words and most repeated ones say
# what it is about. It bounds what 64 KiB of text can cost.
TERMS_MAX: Final = 64
# So many words of a long text are looked at to choose those from, and so much of what is
# written without a space.
CHUNKS_MAX: Final = 512
CHUNK_CHARACTERS_MAX: Final = 1024


class Term(NamedTuple):
    """One thing that a query asks for.

    word: what is looked for. instead: what to look for where no document has `word`.
    whole: it only repeats its neighbours as one word, so it earns a score where it is
    found and is not missed where it is not.
    """

    word: str
    instead: tuple[str, ...] = ()
    whole: bool = False


def name_words(name: str) -> tuple[list[str], int]:
    """Cut a name into all the words under which it is found; and count its distinct parts."""
    parts: list[str] = []
    wholes: list[str] = []
    for chunk in _chunks(name):
        pieces = [hump for piece in _pieces(chunk) for hump in _HUMP.split(piece)]
        parts += _cut(pieces)
        wholes += _wholes(chunk, pieces)
    return parts + wholes, len(set(parts))


def description_words(description: str) -> list[str]:
    """Cut a description into all the words under which it is found."""
    words: list[str] = []
    for chunk in _chunks(description):
        if _is_plain(chunk):
            words.append(chunk.lower()[:WORD_CHARACTERS_MAX])
            continue
        pieces = [hump for piece in _pieces(chunk) for hump in _humps(piece)]
        words += _cut(pieces)
        words += _wholes(chunk, pieces)
    return words


def query_terms(text: str) -> Counter[Term]:
    """Give what a query asks for, in order, with how often; stop words too."""
    chunks = Counter(_chunks(text))
    if len(chunks) > CHUNKS_MAX:
        chunks = Counter(dict(chunks.most_common(CHUNKS_MAX)))
    terms: Counter[Term] = Counter()
    for chunk, count in chunks.items():
        if _is_plain(chunk):
            terms[Term(chunk.lower()[:WORD_CHARACTERS_MAX])] += count
            continue
        for term in _terms(chunk[:CHUNK_CHARACTERS_MAX]):
            terms[term] += count
    return terms


def _terms(chunk: str) -> Iterator[Term]:
    humps = [hump for piece in _pieces(chunk) for hump in _humps(piece)]
    for hump in humps:
        inner = _HUMP.split(hump)
        if len(inner) > 1:
            # MongoDB is one word, unless no document writes it so.
            yield Term(_fold(hump), tuple(map(_fold, inner)))
        else:
            yield from map(Term, _cut([hump], query=True))
    yield from (Term(whole, whole=True) for whole in _wholes(chunk, humps))


def chosen_terms(query_text: str, keywords: Iterable[str]) -> tuple[dict[Term, float], bool]:
    """Give the terms to ask for, with their weights, and whether to look in names only.

    A term weighs 1, or 2 where both the text and the keywords have it. Stop words are left
    out; a query of nothing else asks for them, in names only.
    """
    repeated = query_terms(query_text)
    asked = dict.fromkeys(chain.from_iterable(map(query_terms, keywords)), 1.0)
    counted = dict(asked)
    for term in repeated:
        counted[term] = counted.get(term, 0.0) + 1.0
    chosen = {term: weight for term, weight in counted.items() if term.word not in STOP_WORDS}
    in_names_only = not chosen
    chosen = chosen or counted
    if len(chosen) > TERMS_MAX:
        kept = sorted(chosen, key=lambda term: (term not in asked, -repeated[term]))
        chosen = {term: chosen[term] for term in kept[:TERMS_MAX]}
    return chosen, in_names_only


def _chunks(text: str) -> Iterable[str]:
    if text.isascii():
        return _ASCII_CHUNK.findall(text)
    return _unicode_chunk().findall(unicodedata.normalize("NFKC", text))


def _is_plain(chunk: str) -> bool:
    """Whether there is nothing to cut or fold, as in nearly every word of English prose."""
    return chunk.isalnum() and chunk.isascii() and (chunk.islower() or chunk.istitle())


def _pieces(chunk: str) -> list[str]:
    return [piece for piece in _PARTS.split(chunk.rstrip("+#")) if piece]


def _humps(piece: str) -> list[str]:
    """Cut createIssue, which is an identifier; leave MongoDB, which is a name."""
    return _HUMP.split(piece) if piece[:1].islower() else [piece]


def _cut(pieces: Iterable[str], *, query: bool = False) -> list[str]:
    words: list[str] = []
    for piece in pieces:
        if piece.isascii():
            words.append(_fold(piece))
            continue
        for run in _SCRIPTS.findall(piece):
            if not _IS_UNSPACED.match(run):
                words.append(_fold(run))
                continue
            pairs = [run[start : start + 2] for start in range(len(run) - 1)]
            words += pairs if query and pairs else [*run, *pairs]
    return [word for word in words if word]


def _wholes(chunk: str, pieces: list[str]) -> list[str]:
    """Give the chunk as one word, where it was cut; and c++ for itself."""
    wholes = []
    if len(pieces) > 1:
        wholes.append("".join(map(_fold, pieces)))
    if chunk[-1:] in "+#" and pieces:
        wholes.append(_fold(pieces[-1]) + chunk[len(chunk.rstrip("+#")) :])
    return [whole for whole in wholes if len(whole) <= WORD_CHARACTERS_MAX]


def _fold(word: str) -> str:
    word = word[:WORD_CHARACTERS_MAX].casefold()
    if word.isascii():
        return word.replace("'", "")
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", word))
    return unicodedata.normalize("NFC", plain).replace("\u2019", "").replace("'", "")
