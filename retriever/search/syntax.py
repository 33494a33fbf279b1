"""What people type: exact phrases, words to leave out, and words that no document has."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from indexes import BM25Settings, Query, compile_where, written_value
from retriever.documents.division import normalized

if TYPE_CHECKING:
    from indexes import Mode, Term, View, Where
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
# Characters of the shortest word that is corrected, of the shortest part of a divided one, of the
# shortest word that is corrected by two edits, and of the longest word.
_SHORTEST = 4
_SHORTEST_PART = 3
_TWO_EDITS = 6
_LONGEST = 30
# A query's unknown words that are looked at, edits of each, and terms of these; more are no typing.
_MOST_UNKNOWN = 5
_MOST_EDITS = 10_000
_MOST_TERMS = 24
# Passages with a term that are read for how it is written, and characters of each.
_READ = 8
_READ_CHARACTERS = 10_000
_LATIN = "abcdefghijklmnopqrstuvwxyz"


class ParsedQuery(NamedTuple):
    """A query without what it excludes.

    Attributes:
        text: the text for BM25, with the quotation marks of phrases.
        phrases: the phrases that each hit holds.
        excluded: the phrases and words that no hit holds.
    """

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def plain(self) -> str:
        """The text for the encoder, without the quotation marks of phrases."""
        return _OPERATOR.sub(r"\g<phrase>", self.text) if self.phrases else self.text


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
        return " " if match["not"] else match[0]

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
        if self._terms and any(self._analyzer.spans(text, self._terms, self._held)):
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


def no_hits_reason(
    query: ParsedQuery,
    mode: Mode,
    where: Where | None,
    view: View,
    terms: Sequence[Term],
    has_hits: Callable[[str, str | None], bool],
) -> str:
    """Say what emptied the hits of a query, and what to change.

    `terms` are those of the query with its expansions. `has_hits` says whether a text and a filter
    have hits, in the same mode.
    """
    if not view.count_documents():
        return "the index is empty: add documents"
    counts = view.facets([], where, terms, 1)
    if not counts.documents:
        return "no document passes the filter: change it or leave it out"
    among = "" if where is None else " that passes the filter"
    if mode == "bm25" and not counts.matches:
        if not terms:
            from retriever.search.stop_words import describe_texts

            return (
                "the query has only stop words and punctuation, which as a phrase are in no title "
                f"and in none of the texts of {describe_texts(counts.documents)}: add another "
                "word, or use the mode hybrid"
            )
        is_elsewhere = where is not None and view.facets([], None, terms, 1).matches
        remedy = "change the filter" if is_elsewhere else "check the spelling"
        return f"no document{among} has a word of the query: {remedy}, or use the mode hybrid"
    phrases = " and ".join(f'"{phrase}"' for phrase in query.phrases)
    filter_text = None if where is None else where.text
    if query.excluded and (not query.phrases or has_hits(query.text, filter_text)):
        conditions = ["a word of the query"] if mode == "bm25" else []
        conditions += [phrases] if phrases else []
        with_these = f" with {' and '.join(conditions)}" if conditions else ""
        excluded = ", ".join(
            f'-"{text}"' if re.search(r"\s", text) else f"-{text}" for text in query.excluded
        )
        return (
            f"every document{among}{with_these} has what the query leaves out ({excluded}): remove "
            "a minus sign and what follows it"
        )
    if not phrases:
        return f"no document{among} was ranked: search again"
    remedy = "remove quotation marks"
    if where is not None and has_hits(query.text, None):
        remedy = f"change the filter, or {remedy}"
    return f"no document{among} has {phrases} as written: {remedy}"


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


def suggested(
    text: str, view: View, analyzer: Analyzer, is_known: Callable[[str], bool] = lambda word: False
) -> str | None:
    """The text with unknown words replaced by the nearest words of the index; None if none is.

    The first few words that no document has are looked at, but those that `is_known` knows. A
    replacement is a word as documents write it, or two where the word is divided: the nearest by
    edits (a letter more, less or other, or two exchanged), of these the most frequent, in passages;
    of equal ones the first by code point.
    """
    held = view.setting("languages", {})
    count = view.document_frequencies
    frequencies = count(analyzer.query_tokens(text, held, count))
    if all(frequencies.values()):
        return None
    pieces = []
    end = 0
    unknown_words = 0
    for start, stop in sorted({span[1:] for span in analyzer.spans(text, None, held)}):
        word = text[start:stop].lower()
        if start < end or not _SHORTEST <= len(word) <= _LONGEST or _UNSPACED.search(word):
            continue
        terms = frequencies.keys() & analyzer.query_tokens(word, held, count)
        if not terms or any(map(frequencies.__getitem__, terms)):
            continue
        unknown_words += 1
        if unknown_words > _MOST_UNKNOWN:
            break
        better = None if is_known(word) else _nearest(word, view, analyzer)
        if better is not None:
            pieces += [text[end:start], better]
            end = stop
    return "".join([*pieces, text[end:]]) if pieces else None


def _nearest(word: str, view: View, analyzer: Analyzer) -> str | None:
    held = view.setting("languages", {})
    edited = set(islice(_edited(word), _MOST_EDITS)) - {word}
    parts = set(chain.from_iterable(map(str.split, edited)))
    forms = {part: analyzer.forms(part, held) for part in parts}
    counts = view.document_frequencies(set(chain.from_iterable(forms.values())))
    # By the frequency of a word's stem.
    frequencies = {part: sum(map(counts.__getitem__, forms[part])) for part in parts}
    likely = sorted(
        (candidate for candidate in edited if all(map(frequencies.__getitem__, candidate.split()))),
        key=lambda candidate: (-min(map(frequencies.__getitem__, candidate.split())), candidate),
    )
    terms = dict.fromkeys(
        term
        for candidate in likely
        for part in candidate.split()
        for term in sorted(forms[part])
        if counts[term]
    )
    written = _written(list(terms)[:_MOST_TERMS], view, analyzer)
    nearest = [
        (1, -min(map(frequencies.__getitem__, candidate.split())), candidate)
        for candidate in likely
        if written.keys() >= set(candidate.split())
    ]
    if not nearest and len(word) >= _TWO_EDITS:
        # Another form of a word at one edit.
        nearest = [
            (distance, -sum(map(counts.__getitem__, terms)), written_word)
            for written_word, terms in written.items()
            if (distance := _distance(word, written_word)) <= 2
        ]
    return min(nearest)[-1] if nearest else None


def _written(terms: Sequence[str], view: View, analyzer: Analyzer) -> dict[str, set[str]]:
    """The words of a few passages with each term that have one of the terms, and these."""
    ranking = view.ranking(BM25Settings(), None, None)
    term_set = frozenset(terms)
    candidates = ranking.candidates([Query([term]) for term in terms], "bm25", _READ)
    passages = {passage for ranked in candidates for passage in ranked.passages.tolist()[:_READ]}
    languages = view.setting("languages", {})
    words: dict[str, set[str]] = {}
    for passage in view.passages(sorted(passages)).values():
        text = f"{passage.title or ''}\n{passage.text[passage.start : passage.stop]}"
        for term, start, stop in analyzer.spans(text[:_READ_CHARACTERS], term_set, languages):
            if term in term_set:
                words.setdefault(text[start:stop].lower(), set()).add(term)
    return words


def _distance(word: str, other: str) -> int:
    """The number of edits between two words, none of which changes a letter twice."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word):
        last, before, row = before, row, [i + 1]
        for j, second in enumerate(other):
            least = min(before[j] + (letter != second), before[j + 1] + 1, row[j] + 1)
            if i and j and letter == other[j - 1] and word[i - 1] == second:
                least = min(least, last[j - 1] + 1)
            row.append(least)
    return row[-1]


def _edited(word: str) -> Iterator[str]:
    """All words at one edit, and all divisions."""
    letters = set(word)
    if any(map(str.isascii, word)):
        letters.update(_LATIN)
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
