"""Documents that hold the phrases of a query, and nothing that it leaves out.

A document holds what is in its text, its title, its name or its keywords.
Texts are compared with the signs of a keyboard in place of typographic ones, and both as they are
and as a reader sees their markup.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from itertools import chain, combinations
from typing import TYPE_CHECKING

from indexes import BM25Settings, Query, compile_where, written_value
from retriever.documents.division import normalized
from retriever.documents.files import kind_of
from retriever.documents.outline import read_outline
from retriever.documents.passages import label_text
from retriever.search.syntax import UNSPACED

if TYPE_CHECKING:
    from indexes import View, Where
    from retriever.documents.analyzer import Analyzer
    from retriever.search.syntax import ParsedQuery

# The parts of a unit that are terms in every language.
_PARTS = re.compile(r"(?<![^._])[^._'’]+(?![^._])")
_SUFFIX = re.compile(r"(?<=\w)\.[A-Za-z][A-Za-z0-9]{0,9}$")
# Passages whose documents a filter names: at most so many, and this share of the index beyond the
# first few. With more of them, finding the hits without the filter takes less time.
_MOST_PASSAGES = 2_000
_FEW_PASSAGES = 20
_SHARE = 1 / 20
# Letters of the longest word whose parts are looked up.
_LONGEST = 30
# Signs of a keyboard, each with those that word processors and languages have in its place.
_SIGNS = {
    "'": "‘’‚‛‹›´ʹʻʼʽʾʿ′՚׳ꞌ",
    '"': "“”„‟«»″״〝〞",
    "-": "‐‑‒–—―−⸺⸻﹘־",
}
_TYPED = {sign: typed for typed, signs in _SIGNS.items() for sign in signs}
# Soft hyphens, joiners, directions, variation selectors: a reader sees none of them.
_INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
# A grave accent is an apostrophe within a word; elsewhere it is a sign of markup.
_TYPOGRAPHIC = re.compile(f"[{''.join(_TYPED)}{_INVISIBLE}]|(?<=[^\\W_])`(?=[^\\W_])")

# Every repetition is of characters that end it, or bounded: no text takes quadratic time. Every
# alternative begins with a literal character, so that `re` skips to the next of them.
_MARKS = re.compile(r"[*_`~=\[<>\\&]")
_QUOTATION = re.compile(r"\n[ \t]*>[ \t>]*")
_ADDRESS = r"(?:<[^<>\n]*>|[^()\s<]*(?:\([^()\s]*\)[^()\s]*)*)"
_TITLE = r"""(?:\s{1,9}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'))?"""
_WIKI = r"\[\[(?:[^\[\]|\n]{0,300}\|)?([^\[\]|\n]{1,300})\]\]"
_LINK = r"\[(?=[^\[\]]{0,1000}\][(\[])"
_LINKS = re.compile(
    # A comment, or a tag, whose attributes have values: not a<b && c>d.
    r"<(?:!--[^<>]{0,1000}-->"
    r"""|/?[A-Za-z][A-Za-z0-9-]{0,30}(?:\s[^<>]{0,300}=["'][^<>]{0,300})?\s?/?>"""
    r"|([a-z]{2,9}:[^<>\s]{1,300})>)"
    rf"|{_WIKI}|!{_WIKI}"  # [[page]], [[page|label]]
    r"|\[\^[^\[\]\s]{1,99}\]"  # A footnote.
    rf"|{_LINK}|!{_LINK}"
    rf"|\](?:\({_ADDRESS}{_TITLE}\)|\[[^\[\]\n]{{0,300}}\])"
)
# [label], where a line defines it.
_DEFINITION = re.compile(r"\n[ \t]{0,3}\[([^\[\]\n]{1,300})\]:[ \t]*\S")
_LABEL = re.compile(r"\[([^\[\]\n]{1,300})\](?!:)")
# Signs of emphasis are at the beginning or the end of a word: not snake_case, nor between spaces.
_RUN = r"|{0}(?<![^\W_]{0})(?<!{0}{0}){0}*+(?=\S)|{0}(?<=\S{0})(?<!{0}{0}){0}*+(?![^\W_])"
_PAIR = (
    r"|{0}{0}(?<![^\W_]{0}{0})(?<!{0}{0}{0})(?=[^\s{0}])"
    r"|{0}{0}(?<=[^\s{0}]{0}{0})(?!{0}|[^\W_])"
)
_EMPHASIS = re.compile(
    r"\\([!-/:-@\[-`{-~]|(?=\n))"
    r"|`(?<!``)([^`]+)`(?!`)"
    r"|``(?<!```)(?!`)((?:[^`]|`(?!`))+)``(?!`)"
    # Within a word they are a pair: **impor**tant, but not 2**8.
    r"|\*(?<=[^\W_]\*)\*{0,2}([^\s*_`]{1,100})\*{1,3}(?!\*)"
    r"|\*(?<!\*\*)\*{0,2}([^\s*_`]{1,100})\*{1,3}(?=[^\W_])"
    + _RUN.format(r"\*")
    + _RUN.format("_")
    + _PAIR.format("~")
    + _PAIR.format("=")
)
_SPACES = ("<br>", "<br/>", "<br />", "&nbsp;")
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'"}


class Demands:
    """The passages that may be hits of a query, by the stored texts of their documents.

    Where no passage holds every phrase though the document does, any of its passages may.
    """

    def __init__(self, query: ParsedQuery, view: View, analyzer: Analyzer) -> None:
        self._view = view
        self._analyzer = analyzer
        self._phrases = {folded(phrase) for phrase in query.phrases}
        self._languages = view.setting("languages", {})
        # A word is left out in all its forms, anything else as it is written.
        words = {text: self._terms_of(typed(text)) for text in query.excluded}
        self._terms = set(chain.from_iterable(words.values()))
        self._excluded = {folded(text) for text, terms in words.items() if not terms}
        self._allowed: dict[str, frozenset[int]] = {}

    def _terms_of(self, text: str) -> set[str]:
        """The terms of a text that is one word; none of another."""
        is_word = self._analyzer.words(text) == [text] and _PARTS.fullmatch(text)
        if not is_word or UNSPACED.search(text):
            return set()
        return set(self._analyzer.forms(text, self._languages))

    def __call__(self, document: str, passage: int) -> bool:
        """Whether a passage may be a hit; `document` is the id of its document."""
        if document not in self._allowed:
            self._allowed[document] = frozenset(self._passages(document))
        return passage in self._allowed[document]

    def _passages(self, id_: str) -> Iterable[int]:
        stored = self._view.document(id_)
        if stored is None:
            return ()
        names = stored.title or ""
        if labels := label_text(read_outline(stored.outline)):
            # The id of a file is its name with the suffix.
            names = f"{names}\n{stored.id}\n{labels}"
        text = f"{names}\n{stored.text}"
        if self._terms and any(self._analyzer.spans(text, self._terms, self._languages)):
            return ()
        is_markup = kind_of(id_) != "code"
        phrases = find_phrases(text, self._phrases | self._excluded, is_markup=is_markup)
        if phrases & self._excluded or not phrases >= self._phrases:
            return ()
        numbers = [
            number
            for number, start, stop in (stored.passages if self._phrases else ())
            if self._phrases
            == find_phrases(
                f"{names}\n{stored.text[start:stop]}", self._phrases, is_markup=is_markup
            )
        ]
        return numbers or [number for number, _, _ in stored.passages]


def within(query: ParsedQuery, view: View, analyzer: Analyzer, where: Where | None) -> Where | None:
    """`where`, narrowed to documents with the rarest word of a phrase if these are few enough."""
    most = min(_MOST_PASSAGES, max(_FEW_PASSAGES, int(_SHARE * view.passage_count)))
    for phrase in query.phrases:
        # How a script without spaces is divided depends on what stands around the phrase.
        if UNSPACED.search(phrase):
            continue
        terms = _rarest_terms(typed(phrase), view, analyzer)
        number = sum(view.document_frequencies(terms).values())
        if not terms or number > most:
            continue
        ids: set[str] = set()
        if number:
            ranking = view.ranking(BM25Settings(), where, None)
            (candidates,) = ranking.candidates([Query(sorted(terms))], "bm25", number + 1)
            if not candidates.complete:
                continue
            ids.update(view.documents_of(candidates.passages.tolist()).values())
        listed = ", ".join(map(written_value, sorted(ids))) or '""'
        also = "" if where is None else f" and ({where.text})"
        where = compile_where(f"id in ({listed}){also}")
    return where


def _rarest_terms(phrase: str, view: View, analyzer: Analyzer) -> frozenset[str]:
    """Terms of which each document with a phrase has one; none of a phrase without words.

    They are those of its rarest word and of the parts of this word, which markup may divide:
    ``**impor**tant``.
    """
    # The suffix of a file is no word of its name.
    words = set(chain.from_iterable(map(_PARTS.findall, analyzer.words(_SUFFIX.sub("", phrase)))))
    forms = _counted_forms(words, view, analyzer)
    if not forms:
        return frozenset()
    rarest = min(forms, key=lambda word: (forms[word][1], word))
    return forms[rarest][0] | _terms_of_parts(rarest, view, analyzer)


def _terms_of_parts(word: str, view: View, analyzer: Analyzer) -> set[str]:
    """Terms of which a document has one where it has a word in two or three parts."""
    size = len(word)
    if size > _LONGEST:
        return set()

    def count_parts(parts: Collection[str]) -> dict[str, tuple[frozenset[str], int]]:
        """Return the forms and numbers of the parts that a passage has, and of stop words."""
        stop_word = (frozenset[str](), view.passage_count)
        forms = dict.fromkeys(parts, stop_word) | _counted_forms(parts, view, analyzer)
        return {part: terms for part, terms in forms.items() if terms[1]}

    ends = range(1, size)
    counted = count_parts({word[:end] for end in ends} | {word[end:] for end in ends})
    middles = [
        (start, stop)
        for start, stop in combinations(ends, 2)
        if word[:start] in counted and word[stop:] in counted
    ]
    counted |= count_parts({word[start:stop] for start, stop in middles})
    divisions: list[tuple[str, ...]] = [(word[:end], word[end:]) for end in ends]
    divisions += [(word[:start], word[start:stop], word[stop:]) for start, stop in middles]
    terms: set[str] = set()
    for parts in divisions:
        if counted.keys() >= set(parts):
            terms |= min((counted[part] for part in parts), key=lambda forms: forms[1])[0]
    return terms


def _counted_forms(
    words: Iterable[str], view: View, analyzer: Analyzer
) -> dict[str, tuple[frozenset[str], int]]:
    """The forms of words but stop words, and the number of passages with each."""
    languages = view.setting("languages", {})
    forms = {word: analyzer.forms(word, languages) for word in words}
    counts = view.document_frequencies(set(chain.from_iterable(forms.values())))
    return {
        word: (terms, sum(map(counts.__getitem__, terms))) for word, terms in forms.items() if terms
    }


def typed(text: str) -> str:
    """A text as a keyboard has it: plain apostrophes, quotation marks and hyphens."""
    if text.isascii() and "`" not in text:
        return text
    return _TYPOGRAPHIC.sub(lambda sign: _TYPED.get(sign[0], "'" if sign[0] == "`" else ""), text)


def folded(text: str) -> str:
    """A text in which typography, case, width and white space make no difference."""
    return " ".join(normalized("NFKC", typed(text)).casefold().split())


def rendered(text: str) -> str:
    """A Markdown text without the signs of emphasis, code, links, quotations and tags."""
    for space in _SPACES:
        text = text.replace(space, " ")
    text = _LINKS.sub(r"\1\2\3", _QUOTATION.sub("\n", text))
    if "]:" in text:
        labels = set(_DEFINITION.findall(text))
        text = _LABEL.sub(lambda label: label[1] if label[1] in labels else label[0], text)
    text = _EMPHASIS.sub(r"\1\2\3\4\5", text)
    if "&" in text:
        for entity, sign in _ENTITIES.items():
            text = text.replace(entity, sign)
    return text


def find_phrases(text: str, phrases: Collection[str], *, is_markup: bool) -> set[str]:
    """The folded phrases that a text holds, as it is or, if it is markup, as a reader sees it."""
    reading = folded(text)
    matches = {phrase for phrase in phrases if holds(reading, phrase)}
    if is_markup and len(matches) < len(phrases) and _MARKS.search(text):
        reading = folded(rendered(text))
        matches.update(phrase for phrase in phrases if holds(reading, phrase))
    return matches


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
    before = text[place - 1]
    after = text[place]
    if after == "'" and place + 1 < len(text):
        after = text[place + 1]
    if before == "'" and place > 1:
        before = text[place - 2]
    return not UNSPACED.search(before + after) and _in_word(before) and _in_word(after)


def _in_word(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"
