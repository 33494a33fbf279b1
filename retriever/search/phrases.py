"""Which documents hold the phrases of a query and none of its excluded texts.

A document holds a phrase in its text, its title, its file name or its keywords. Typographic signs
equal their variants on a keyboard. Texts are compared both as they are and as a reader sees their
markup.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from itertools import chain, combinations
from typing import TYPE_CHECKING

from indexes import Query
from indexes.bm25 import BM25Settings
from indexes.filters import compile_where, written_value
from retriever.documents.division import normalize
from retriever.documents.file_kinds import kind_of
from retriever.documents.outline import read_outline
from retriever.documents.passages import label_text
from retriever.search.syntax import UNSPACED

if TYPE_CHECKING:
    from indexes import View
    from indexes.filters import Where
    from retriever.documents.analyzer import Analyzer
    from retriever.search.syntax import ParsedQuery

# The parts of a unit that are terms in every language.
_PARTS = re.compile(r"(?<![^._])[^._'’]+(?![^._])")
_SUFFIX = re.compile(r"(?<=\w)\.[A-Za-z][A-Za-z0-9]{0,9}$")
# Maximum number of passages whose documents a filter lists: this share of the index, but within
# these two numbers. With more passages, ranking without the filter takes less time.
_MOST_PASSAGES = 2_000
_FEWEST_PASSAGES = 20
_SHARE = 1 / 20
# Letters of the longest word whose parts are looked up.
_LONGEST = 30
# Signs of a keyboard, each with its typographic variants.
_SIGNS = {
    "'": "‘’‚‛‹›´ʹʻʼʽʾʿ′՚׳ꞌ",
    '"': "“”„‟«»″״〝〞",
    "-": "‐‑‒–—―−⸺⸻﹘־",
}
_TYPED = {variant: sign for sign, variants in _SIGNS.items() for variant in variants}
# Characters that a reader does not see: soft hyphens, joiners, directions, variation selectors.
_INVISIBLE = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff"
# A grave accent is an apostrophe within a word; elsewhere it is a sign of markup.
_TYPOGRAPHIC = re.compile(f"[{''.join(_TYPED)}{_INVISIBLE}]|(?<=[^\\W_])`(?=[^\\W_])")

# Each repetition ends at a character that it excludes, or is bounded: no text takes quadratic time.
# Each alternative begins with a literal character, to which `re` can skip.
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


class OperatorFilter:
    """Tells which passages may be hits of a query with phrases or excluded texts.

    If a document holds every phrase, but no single passage does, any of its passages may be a hit.
    """

    def __init__(self, query: ParsedQuery, view: View, analyzer: Analyzer) -> None:
        self._view = view
        self._analyzer = analyzer
        self._phrases = {fold(phrase) for phrase in query.phrases}
        self._languages = view.setting("languages", {})
        # A word is excluded in all its forms, any other text as it is written.
        word_terms = {text: self._word_terms(replace_typography(text)) for text in query.excluded}
        self._excluded_terms = set(chain.from_iterable(word_terms.values()))
        self._excluded_texts = {fold(text) for text, terms in word_terms.items() if not terms}
        # Numbers of passages by document id.
        self._allowed: dict[str, frozenset[int]] = {}

    def __call__(self, document: str, passage: int) -> bool:
        """Return whether a passage may be a hit, by document id and passage number."""
        if document not in self._allowed:
            self._allowed[document] = frozenset(self._allowed_passages(document))
        return passage in self._allowed[document]

    def _word_terms(self, text: str) -> set[str]:
        """Return the terms of a text that is one word; none for any other text."""
        is_word = self._analyzer.words(text) == [text] and _PARTS.fullmatch(text)
        if not is_word or UNSPACED.search(text):
            return set()
        return set(self._analyzer.forms(text, self._languages))

    def _allowed_passages(self, id_: str) -> Iterable[int]:
        stored = self._view.document(id_)
        if stored is None:
            return ()
        names = stored.title or ""
        if labels := label_text(read_outline(stored.outline)):
            # The id of a file is its name with the suffix.
            names = f"{names}\n{stored.id}\n{labels}"
        text = f"{names}\n{stored.text}"
        excluded_terms = self._excluded_terms
        if excluded_terms and any(self._analyzer.spans(text, excluded_terms, self._languages)):
            return ()
        is_markup = kind_of(id_) != "code"
        phrases = find_phrases(text, self._phrases | self._excluded_texts, is_markup=is_markup)
        if phrases & self._excluded_texts or not phrases >= self._phrases:
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


def narrow_filter(
    query: ParsedQuery, view: View, analyzer: Analyzer, where: Where | None
) -> Where | None:
    """Narrow a filter to documents with the rarest word of each phrase, if they are few enough."""
    most = min(_MOST_PASSAGES, max(_FEWEST_PASSAGES, int(_SHARE * view.passage_count)))
    for phrase in query.phrases:
        # The division of a script without spaces depends on the text around the phrase.
        if UNSPACED.search(phrase):
            continue
        terms = _rarest_terms(replace_typography(phrase), view, analyzer)
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
        outer_filter = "" if where is None else f" and ({where.text})"
        where = compile_where(f"id in ({listed}){outer_filter}")
    return where


def _rarest_terms(phrase: str, view: View, analyzer: Analyzer) -> frozenset[str]:
    """Return terms: each document with a phrase has at least one; none without words.

    They belong to the rarest word of the phrase and to the parts of this word, which markup may
    divide: ``**impor**tant``.
    """
    # The suffix of a file name is not a word.
    words = set(chain.from_iterable(map(_PARTS.findall, analyzer.words(_SUFFIX.sub("", phrase)))))
    forms = _counted_forms(words, view, analyzer)
    if not forms:
        return frozenset()
    rarest = min(forms, key=lambda word: (forms[word][1], word))
    return forms[rarest][0] | _terms_of_parts(rarest, view, analyzer)


def _terms_of_parts(word: str, view: View, analyzer: Analyzer) -> set[str]:
    """Return terms: a document with the word in two or three parts has at least one."""
    size = len(word)
    if size > _LONGEST:
        return set()

    def count_parts(parts: Collection[str]) -> dict[str, tuple[frozenset[str], int]]:
        """Return forms and passage counts of the parts in the index, and of stop words."""
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
    """Return the forms of each word that is no stop word, and its number of passages."""
    languages = view.setting("languages", {})
    forms = {word: analyzer.forms(word, languages) for word in words}
    counts = view.document_frequencies(set(chain.from_iterable(forms.values())))
    return {
        word: (terms, sum(map(counts.__getitem__, terms))) for word, terms in forms.items() if terms
    }


def replace_typography(text: str) -> str:
    """Return a text with the apostrophes, quotation marks and hyphens of a keyboard."""
    if text.isascii() and "`" not in text:
        return text
    return _TYPOGRAPHIC.sub(lambda sign: _TYPED.get(sign[0], "'" if sign[0] == "`" else ""), text)


def fold(text: str) -> str:
    """Return a text without differences of typography, case, width and white space."""
    return " ".join(normalize("NFKC", replace_typography(text)).casefold().split())


def strip_markup(text: str) -> str:
    """Return a Markdown text without the signs of emphasis, code, links, quotations and tags."""
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
    """Return the folded phrases in a text, as it is or, if it is markup, as a reader sees it."""
    reading = fold(text)
    matches = {phrase for phrase in phrases if contains_phrase(reading, phrase)}
    if is_markup and len(matches) < len(phrases) and _MARKS.search(text):
        reading = fold(strip_markup(text))
        matches.update(phrase for phrase in phrases if contains_phrase(reading, phrase))
    return matches


def contains_phrase(text: str, phrase: str) -> bool:
    """Return whether a folded text contains a folded phrase of whole words."""
    start = -1
    while (start := text.find(phrase, start + 1)) >= 0:
        stop = start + len(phrase)
        if not (_is_within_word(text, start) or _is_within_word(text, stop)):
            return True
    return False


def _is_within_word(text: str, offset: int) -> bool:
    """Return whether the characters on both sides of an offset belong to one word."""
    if not 0 < offset < len(text):
        return False
    before = text[offset - 1]
    after = text[offset]
    if after == "'" and offset + 1 < len(text):
        after = text[offset + 1]
    if before == "'" and offset > 1:
        before = text[offset - 2]
    return not UNSPACED.search(before + after) and _is_letter(before) and _is_letter(after)


def _is_letter(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"
