"""What people type: exact phrases, words to leave out, and words that no document has."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from indexes import BM25Settings, Query, compile_where, written_value
from retriever.documents.division import normalized

if TYPE_CHECKING:
    from indexes import View, Where
    from retriever.documents.analyzer import Analyzer

# A phrase, or a word with a letter after its hyphen; both at the beginning of the text or after
# white space.
_OPERATOR = re.compile(
    r'(?<!\S)(?:(?P<not>-)?["“”](?P<phrase>[^"“”]*)["“”]|-(?P<word>[^\W\d_]\S*))'
)
_WORD_END = ".,;:!?)]}"
# Scripts that set no space between words: Thai to Burmese, Khmer, kana and ideographs.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
# The parts of a unit that are terms in every language.
_PARTS = re.compile(r"(?<![^._])[^._'’]+(?![^._])")
# Documents that a filter can name.
_MOST_IDS = 10_000
# Characters of the shortest word that is corrected, and of the shortest part of a divided one.
_SHORTEST, _SHORTEST_PART = 4, 3
_LATIN = "abcdefghijklmnopqrstuvwxyz"


class ParsedQuery(NamedTuple):
    """What to search for, phrases that each hit holds, and phrases and words that none holds."""

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


def parse_query(text: str) -> ParsedQuery:
    """Read ``"an exact phrase"``, ``-word`` and ``-"a phrase"`` in a query.

    An operator begins the text or follows white space, and a word to leave out begins with a
    letter: ``state-of-the-art``, ``-5`` and ``--flag`` are text.
    """
    phrases: list[str] = []
    excluded: list[str] = []

    def read(match: re.Match[str]) -> str:
        phrase = match["phrase"]
        if phrase is None:
            excluded.append(match["word"].rstrip(_WORD_END))
            return " "
        if not re.search(r"\w", phrase):
            return match[0]
        (excluded if match["not"] else phrases).append(phrase)
        return " " if match["not"] else phrase

    return ParsedQuery(_OPERATOR.sub(read, text).strip(), tuple(phrases), tuple(excluded))


class Demands:
    """Which passages may be hits of a query, by the stored texts of their documents.

    Where no passage holds every phrase though the document does, any of its passages may.
    """

    def __init__(self, query: ParsedQuery, view: View, analyzer: Analyzer) -> None:
        self._view, self._analyzer = view, analyzer
        self._phrases = [_folded(one) for one in query.phrases]
        self._held = view.setting("languages", {})
        # A word is left out in all its forms, anything else as it is written.
        words = {one: self._terms_of(one) for one in query.excluded}
        self._terms = set(chain.from_iterable(words.values()))
        self._excluded = [_folded(text) for text, terms in words.items() if not terms]
        self._allowed: dict[str, frozenset[int]] = {}

    def _terms_of(self, text: str) -> set[str]:
        """The terms of a text that is one word; none of another."""
        is_word = self._analyzer.words(text) == [text] and _PARTS.fullmatch(text)
        if not is_word or _UNSPACED.search(text):
            return set()
        return set(self._analyzer.forms(text, self._held))

    def __call__(self, document: str, passage: int) -> bool:
        """Whether a passage may be a hit; `document` is the id of its document."""
        if document not in self._allowed:
            self._allowed[document] = frozenset(self._passages(document))
        return passage in self._allowed[document]

    def _passages(self, id_: str) -> Iterable[int]:
        stored = self._view.document(id_)
        if stored is None:
            return ()
        text = f"{stored.title or ''}\n{stored.text}"
        if not self._terms.isdisjoint(self._analyzer.tokens(text) if self._terms else ()):
            return ()
        folded = _folded(text)
        if any(holds(folded, one) for one in self._excluded):
            return ()
        if not all(holds(folded, one) for one in self._phrases):
            return ()
        passages = [number for number, _, _ in stored.passages]
        shown = []
        for number, first, last in stored.passages if self._phrases else ():
            folded = _folded(f"{stored.title or ''}\n{stored.text[first:last]}")
            if all(holds(folded, one) for one in self._phrases):
                shown.append(number)
        return shown or passages


def within(query: ParsedQuery, view: View, analyzer: Analyzer, where: Where | None) -> Where | None:
    """`where`, narrowed to documents with the rarest word of a phrase if these are few enough."""
    held = view.setting("languages", {})
    for phrase in query.phrases:
        # How a script without spaces is divided depends on what stands around the phrase.
        if _UNSPACED.search(phrase):
            continue
        words = chain.from_iterable(map(_PARTS.findall, analyzer.words(phrase)))
        forms = list(filter(None, (analyzer.forms(word, held) for word in words)))
        counts = view.document_frequencies(set(chain.from_iterable(forms)))
        rarest = min(forms, key=lambda one: sum(map(counts.__getitem__, one)), default=None)
        number = 0 if rarest is None else sum(map(counts.__getitem__, rarest))
        if rarest is None or number > _MOST_IDS:
            continue
        ids: set[str] = set()
        if number:
            ranking = view.ranking(BM25Settings(), where, None)
            (found,) = ranking.candidates([Query(sorted(rarest))], "bm25", number)
            if not found.complete:
                continue
            ids.update(view.documents_of(found.passages.tolist()).values())
        listed = ", ".join(map(written_value, sorted(ids))) or '""'
        also = "" if where is None else f" and ({where.text})"
        where = compile_where(f"id in ({listed}){also}")
    return where


def holds(text: str, phrase: str) -> bool:
    """Whether a folded text holds a folded phrase of whole words."""
    start = -1
    while (start := text.find(phrase, start + 1)) >= 0:
        stop = start + len(phrase)
        if not (_joined(text, start) or _joined(text, stop)):
            return True
    return False


def _joined(text: str, place: int) -> bool:
    """Whether a word goes on at a place of a text."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if after in "'’" and place + 1 < len(text):
        after = text[place + 1]
    if before in "'’" and place > 1:
        before = text[place - 2]
    return not _UNSPACED.search(before + after) and _in_word(before) and _in_word(after)


def _in_word(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def _folded(text: str) -> str:
    """A text in which case, width and white space make no difference."""
    return " ".join(normalized("NFKC", text).casefold().split())


def suggested(text: str, view: View, analyzer: Analyzer) -> str | None:
    """The text with unknown words replaced by the nearest words of the index; None if none is.

    Nearest are words at one edit (a letter more, less or other, or two exchanged) and divisions
    into two words; of these the most frequent, in passages; of equal ones the first by code point.
    """
    held = view.setting("languages", {})
    count = view.document_frequencies
    frequencies = count(analyzer.query_tokens(text, held, count))
    if all(frequencies.values()):
        return None
    pieces, end = [], 0
    for start, stop in sorted({(start, stop) for _, start, stop in analyzer.spans(text)}):
        word = text[start:stop].lower()
        if start < end or len(word) < _SHORTEST or _UNSPACED.search(word):
            continue
        if any(map(frequencies.get, analyzer.query_tokens(word, held, count))):
            continue
        better = _nearest(word, view, analyzer)
        if better is not None:
            pieces += [text[end:start], better]
            end = stop
    return "".join([*pieces, text[end:]]) if pieces else None


def _nearest(word: str, view: View, analyzer: Analyzer) -> str | None:
    held = view.setting("languages", {})
    edited = set(_edited(word)) - {word}
    forms = {one: [analyzer.forms(part, held) for part in one.split()] for one in edited}
    counts = view.document_frequencies(set(chain.from_iterable(chain(*forms.values()))))
    found = {
        one: min((sum(map(counts.__getitem__, part)) for part in own), default=0)
        for one, own in forms.items()
    }
    best = min(found, key=lambda one: (-found[one], one))
    return best if found[best] else None


def _edited(word: str) -> Iterator[str]:
    """All words at one edit, and all divisions."""
    letters = set(_LATIN if word.isascii() else word)
    for letter in list(letters):
        # The lower-case letters beside it: those of its script.
        first = ord(letter) & ~0x7F
        if first:
            letters.update(
                c for c in map(chr, range(first, first + 0x80)) if c.isalpha() and c.islower()
            )
    for i in range(len(word) + 1):
        before, after = word[:i], word[i:]
        yield from (before + letter + after for letter in letters)
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in letters)
            yield before + after[1:2] + after[:1] + after[2:]
        if min(len(before), len(after)) >= _SHORTEST_PART:
            yield f"{before} {after}"
