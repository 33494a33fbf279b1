"""Query syntax: exact phrases and excluded words; and corrections of unknown words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from indexes import Query
from indexes.bm25 import BM25Settings
from indexes.filters import narrow_comparison

if TYPE_CHECKING:
    from indexes import Mode, View
    from indexes.bm25 import Term
    from indexes.filters import Where
    from retriever.documents.analyzer import Analyzer

# A phrase, at the beginning of the text or after white space. Straight quotation marks may enclose
# pairs of curly ones.
_PHRASE = (
    r'(?<!\S)(?P<not>-)?(?:"(?P<straight>(?:[^"“”„]|[“„][^"“”„]*[“”])*+)"'
    r'|["“”](?P<curly>[^"“”]*)["“”])'
)
_QUOTED = re.compile(_PHRASE)
_TOKEN = re.compile(rf"{_PHRASE}|\S+")
# The beginning of a phrase or an excluded word.
_OPERATOR = re.compile(r'(?<!\S)(?:-?["“”]|-[^\W\d_])')
_WORD = re.compile(r"\w")
# An excluded word; not an option with a value, such as -std=c17.
_EXCLUDED = re.compile(r"-([^\W\d_][^\s\"“”=/\\:<>|$@]*)")
_LETTER = re.compile(r"[^\W\d_]")
# Letters of the shortest excluded word, in scripts with spaces: -v and -rf are flags.
_LEAST_LETTERS = 3
# Maximum number of excluded words, since each is looked up.
_MOST_EXCLUDED = 50
# Scripts without spaces between words: Thai to Burmese, Khmer, kana and ideographs.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_WORD_END = ".,;:!?)]}"
# Lengths of words that are corrected, in characters.
_SHORTEST = 4
_LONGEST = 30
# Characters of the shortest part of a divided word.
_SHORTEST_PART = 3
# Characters of the shortest word that is corrected by two edits.
_SHORTEST_TWO_EDITS = 6
# Maximum number of unknown words of a query, of edits of each, and of terms of these edits.
_MOST_UNKNOWN = 5
_MOST_EDITS = 10_000
_MOST_TERMS = 24
# Number of passages that are read for the spellings of a term, and of characters of each.
_READ_PASSAGES = 8
_READ_CHARACTERS = 10_000
_LATIN = "abcdefghijklmnopqrstuvwxyz"


class ParsedQuery(NamedTuple):
    """A query, divided into text, phrases and excluded texts.

    Attributes:
        text: the text for BM25, with the quotation marks of phrases, without excluded texts.
        phrases: phrases that each hit holds.
        excluded: phrases and words that no hit holds.
    """

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def plain(self) -> str:
        """The text for the encoder, without the quotation marks of phrases."""
        return _QUOTED.sub(r"\g<straight>\g<curly>", self.text) if self.phrases else self.text


def parse_query(text: str, has_flag: Callable[[str], bool] = lambda word: False) -> ParsedQuery:
    """Read ``"an exact phrase"``, ``-"a phrase"`` and, at the end of a query, ``-word``.

    An operator begins the text or follows white space. A word is excluded if only other exclusions
    follow it, the query has another word, and it has three letters or more. Therefore
    ``python -m venv``, ``rm -rf`` and ``state-of-the-art`` are text. A word is also text if
    `has_flag` returns True for it, because a document has it with its hyphen.
    """
    if not _OPERATOR.search(text):
        return ParsedQuery(text.strip())
    tokens = list(_TOKEN.finditer(text))
    # Whether only excluded texts follow; False from the start if the query has one word.
    is_end = len(list(filter(_WORD.search, text.split()))) > 1
    phrases: list[str] = []
    excluded: list[str] = []
    pieces: list[str] = []
    stop = len(text)
    for token in reversed(tokens):
        phrase = token["curly"] if token["straight"] is None else token["straight"]
        if phrase is not None and not _WORD.search(phrase):
            phrase = None
        excluded_text = phrase if token["not"] else None
        if phrase is not None and excluded_text is None:
            phrases.append(phrase)
        if excluded_text is None and is_end and len(excluded) < _MOST_EXCLUDED:
            excluded_text = _excluded_word(token[0], has_flag)
            is_end = excluded_text is not None
        if excluded_text is not None:
            excluded.append(excluded_text)
            pieces.append(text[token.end() : stop])
            stop = token.start()
    pieces.append(text[:stop])
    remaining = " ".join(reversed(pieces)).strip()
    return ParsedQuery(remaining, tuple(reversed(phrases)), tuple(reversed(excluded)))


def _excluded_word(token: str, has_flag: Callable[[str], bool]) -> str | None:
    """Return the word that a token excludes; None if the token is text."""
    match = _EXCLUDED.fullmatch(token)
    if match is None:
        return None
    word = match[1].rstrip(_WORD_END)
    is_short = len(_LETTER.findall(word)) < _LEAST_LETTERS and not UNSPACED.search(word)
    return None if is_short or has_flag(word) else word


def has_flag_term(view: View, word: str) -> bool:
    """Return whether a document has a word with a hyphen before it, as in ``java -jar``.

    Indexes of earlier releases have no such terms.
    """
    lower = word.lower()
    matches = [re.match(pattern, lower) for pattern in (r"[^\W_]+", r"[\w.'-]+")]
    terms = {f"-{match[0]}" for match in matches if match}
    return any(view.document_frequencies(terms).values())


def operators_note(query: ParsedQuery, raw: str) -> str:
    """Describe the documents that a query excludes; `raw` is the option that turns this off."""
    as_text = f"{raw} searches for the query as it is"
    if not query.excluded:
        return as_text
    texts = " or ".join(f'"{text}"' for text in query.excluded)
    operators = _written_operators(query.excluded)
    return f"documents with {texts} are left out, since the query has {operators}; {as_text}"


def _written_operators(excluded: Sequence[str]) -> str:
    return ", ".join(f'-"{text}"' if re.search(r"\s", text) else f"-{text}" for text in excluded)


def no_hits_reason(
    query: ParsedQuery,
    mode: Mode,
    where: Where | None,
    view: View,
    terms: Sequence[Term],
    has_hits: Callable[[str, str | None], bool],
    exclude: Sequence[str] = (),
) -> str:
    """Say why a query has no hits, and what to change.

    Args:
        query: the query.
        mode: the mode of the search.
        where: its filter.
        view: the index.
        terms: the terms of the query, with expansions.
        has_hits: tells whether a text has hits under a filter, in the same mode.
        exclude: texts that are excluded beside those of the query.
    """
    if not view.count_documents():
        return "the index is empty: add documents"
    counts = view.facets([], where, terms, 1)
    if not counts.documents:
        remedy = None if where is None else narrow_comparison(where.expression)
        return f"no document passes the filter: {remedy or 'change it or leave it out'}"
    filter_text = None if where is None else where.text
    # A query of stop words has no matches, but may have hits.
    is_scanned = not terms and (query.phrases or query.excluded or exclude)
    if (
        mode == "bm25"
        and not counts.matches
        and not (is_scanned and has_hits(query.plain, filter_text))
    ):
        if not terms:
            return _no_phrase_reason(counts.documents)
        return _no_match_reason(query, where, view, terms)
    if (query.excluded or exclude) and (not query.phrases or has_hits(query.text, filter_text)):
        return _exclusion_reason(query, mode, where, exclude)
    subject = _filtered_document("no document", where)
    if not query.phrases:
        return f"{subject} was ranked: search again"
    remedy = "remove quotation marks"
    if where is not None and has_hits(query.text, None):
        remedy = f"change the filter, or {remedy}"
    return f"{subject} has {_quoted_phrases(query)} as written: {remedy}"


def _no_phrase_reason(documents: int) -> str:
    from retriever.search.stop_words import describe_texts

    return (
        "the query has only stop words and punctuation, which as a phrase are in no title "
        f"and in none of the texts of {describe_texts(documents)}: add another "
        "word, or use the mode hybrid"
    )


def _no_match_reason(
    query: ParsedQuery, where: Where | None, view: View, terms: Sequence[Term]
) -> str:
    is_outside_filter = where is not None and view.facets([], None, terms, 1).matches
    remedy = "change the filter" if is_outside_filter else "check the spelling"
    # Hybrid search has the same rule for phrases.
    change = "remove quotation marks and use" if query.phrases else "use"
    subject = _filtered_document("no document", where)
    return f"{subject} has a word of the query: {remedy}, or {change} the mode hybrid"


def _exclusion_reason(
    query: ParsedQuery, mode: Mode, where: Where | None, exclude: Sequence[str]
) -> str:
    conditions = ["a word of the query"] if mode == "bm25" else []
    if query.phrases:
        conditions.append(_quoted_phrases(query))
    with_conditions = f" with {' and '.join(conditions)}" if conditions else ""
    subject = _filtered_document("every document", where)
    reason = f"{subject}{with_conditions} has what the query leaves out"
    if query.excluded:
        operators = _written_operators(query.excluded)
        return f"{reason} ({operators}): remove a minus sign and what follows it"
    texts = ", ".join(f'"{text}"' for text in exclude)
    return f"{reason} ({texts}): take one out of exclude"


def _filtered_document(subject: str, where: Where | None) -> str:
    return subject if where is None else f"{subject} that passes the filter"


def _quoted_phrases(query: ParsedQuery) -> str:
    return " and ".join(f'"{phrase}"' for phrase in query.phrases)


def correct_text(
    text: str, view: View, analyzer: Analyzer, is_known: Callable[[str], bool] = lambda word: False
) -> str | None:
    """Replace unknown words of a query by the nearest words of the index.

    The first five words that no document has are corrected, except those for which `is_known`
    returns True. A replacement is a word as documents write it, or two words where the unknown word
    is divided. The nearest replacement has the fewest edits: a letter inserted, deleted or
    replaced, or two exchanged. Ties go to the word in most passages, then to the first by code
    point.

    Returns:
        The text with replacements; None if there are none.
    """
    languages = view.setting("languages", {})
    count = view.document_frequencies
    frequencies = count(analyzer.query_tokens(text, languages, count))
    if all(frequencies.values()):
        return None
    pieces = []
    end = 0
    unknown_words = 0
    for start, stop in sorted({span[1:] for span in analyzer.spans(text, None, languages)}):
        word = text[start:stop].lower()
        if start < end or not _SHORTEST <= len(word) <= _LONGEST or UNSPACED.search(word):
            continue
        terms = frequencies.keys() & analyzer.query_tokens(word, languages, count)
        if not terms or any(map(frequencies.__getitem__, terms)):
            continue
        unknown_words += 1
        if unknown_words > _MOST_UNKNOWN:
            break
        correction = None if is_known(word) else _nearest_word(word, view, analyzer)
        if correction is not None:
            pieces += [text[end:start], correction]
            end = stop
    return "".join([*pieces, text[end:]]) if pieces else None


def _nearest_word(word: str, view: View, analyzer: Analyzer) -> str | None:
    """Return the nearest word of the index, or two words; None if none is near."""
    languages = view.setting("languages", {})
    edited_words = set(islice(_edited_words(word), _MOST_EDITS)) - {word}
    parts = set(chain.from_iterable(map(str.split, edited_words)))
    forms = {part: analyzer.forms(part, languages) for part in parts}
    counts = view.document_frequencies(set(chain.from_iterable(forms.values())))
    # A word is as frequent as its stems.
    part_frequencies = {part: sum(map(counts.__getitem__, forms[part])) for part in parts}

    def frequency(candidate: str) -> int:
        return min(map(part_frequencies.__getitem__, candidate.split()))

    candidates = sorted(
        filter(frequency, edited_words), key=lambda candidate: (-frequency(candidate), candidate)
    )
    terms = dict.fromkeys(
        term
        for candidate in candidates
        for part in candidate.split()
        for term in sorted(forms[part])
        if counts[term]
    )
    stored_words = _stored_words(list(terms)[:_MOST_TERMS], view, analyzer)
    nearest = [
        (1, -frequency(candidate), candidate)
        for candidate in candidates
        if stored_words.keys() >= set(candidate.split())
    ]
    if not nearest and len(word) >= _SHORTEST_TWO_EDITS:
        # Other forms of a word at one edit.
        nearest = [
            (distance, -sum(map(counts.__getitem__, word_terms)), stored_word)
            for stored_word, word_terms in stored_words.items()
            if (distance := _distance(word, stored_word)) <= 2
        ]
    return min(nearest)[-1] if nearest else None


def _stored_words(terms: Sequence[str], view: View, analyzer: Analyzer) -> dict[str, set[str]]:
    """Return the words of some passages with one of the terms, each with its terms."""
    from retriever.documents.outline import read_outline
    from retriever.documents.passages import label_text

    ranking = view.ranking(BM25Settings(), None, None)
    term_set = frozenset(terms)
    lists = ranking.candidates([Query([term]) for term in terms], "bm25", _READ_PASSAGES)
    passages = {
        passage for candidates in lists for passage in candidates.passages.tolist()[:_READ_PASSAGES]
    }
    languages = view.setting("languages", {})
    words: dict[str, set[str]] = {}
    for passage in view.passages(sorted(passages)).values():
        names = f"{passage.title or ''}\n{label_text(read_outline(passage.outline))}"
        text = f"{names}\n{passage.text[passage.start : passage.stop]}"
        for term, start, stop in analyzer.spans(text[:_READ_CHARACTERS], term_set, languages):
            if term in term_set:
                words.setdefault(text[start:stop].lower(), set()).add(term)
    return words


def _distance(word: str, target: str) -> int:
    """Return the optimal string alignment distance: no edit changes a letter twice."""
    before: list[int] = []
    row = list(range(len(target) + 1))
    for i, letter in enumerate(word):
        before_last = before
        before = row
        row = [i + 1]
        for j, target_letter in enumerate(target):
            least = min(before[j] + (letter != target_letter), before[j + 1] + 1, row[j] + 1)
            if i and j and letter == target[j - 1] and word[i - 1] == target_letter:
                least = min(least, before_last[j - 1] + 1)
            row.append(least)
    return row[-1]


def _edited_words(word: str) -> Iterator[str]:
    """Yield all words at one edit, and all divisions into two words."""
    letters = set(word)
    if any(map(str.isascii, word)):
        letters.update(_LATIN)
    for letter in list(letters):
        # The lower-case letters of its script: those in its block of 128 code points.
        first = ord(letter) & ~0x7F
        if first:
            block = map(chr, range(first, first + 0x80))
            letters.update(c for c in block if c.isalpha() and c.islower())
    for i in range(len(word) + 1):
        before = word[:i]
        after = word[i:]
        yield from (before + letter + after for letter in letters)
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in letters)
            yield before + after[1:2] + after[:1] + after[2:]
        if min(len(before), len(after)) >= _SHORTEST_PART:
            yield f"{before} {after}"
