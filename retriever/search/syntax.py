"""What people type: exact phrases, words to leave out, and words that no document has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from indexes import BM25Settings, Query

if TYPE_CHECKING:
    from indexes import Mode, Term, View, Where
    from retriever.documents.analyzer import Analyzer

# A phrase, at the beginning of the text or after white space. Straight quotation marks may have
# curly ones between them, in pairs.
_PHRASE = (
    r'(?<!\S)(?P<not>-)?(?:"(?P<straight>(?:[^"“”„]|[“„][^"“”„]*[“”])*+)"'
    r'|["“”](?P<curly>[^"“”]*)["“”])'
)
_QUOTED = re.compile(_PHRASE)
_TOKEN = re.compile(rf"{_PHRASE}|\S+")
# How a phrase or a word to leave out begins.
_OPERATOR = re.compile(r'(?<!\S)(?:-?["“”]|-[^\W\d_])')
_WORD = re.compile(r"\w")
# A word to leave out: no option with a value, such as -std=c17.
_EXCLUDED = re.compile(r"-([^\W\d_][^\s\"“”=/\\:<>|$@]*)")
_LETTER = re.compile(r"[^\W\d_]")
# Letters of the shortest word to leave out, in scripts that set spaces: -v and -rf are flags.
_LEAST_LETTERS = 3
# Words to leave out; each is looked up.
_MOST_EXCLUDED = 50
# Scripts that set no space between words: Thai to Burmese, Khmer, kana and ideographs.
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
_WORD_END = ".,;:!?)]}"
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
        return _QUOTED.sub(r"\g<straight>\g<curly>", self.text) if self.phrases else self.text


def parse_query(text: str, has_flag: Callable[[str], bool] = lambda word: False) -> ParsedQuery:
    """Read ``"an exact phrase"``, ``-"a phrase"`` and, at the end of a query, ``-word``.

    An operator begins the text or follows white space. A word is left out if only other exclusions
    follow it, the query has another word, and it has three letters or more. So ``python -m venv``,
    ``rm -rf`` and ``state-of-the-art`` are text. A word is also text if `has_flag` says that a
    document has it with its hyphen.
    """
    if not _OPERATOR.search(text):
        return ParsedQuery(text.strip())
    tokens = list(_TOKEN.finditer(text))
    # Whether a word at this place, from the end on, can be one to leave out.
    is_end = len(list(filter(_WORD.search, text.split()))) > 1
    phrases: list[str] = []
    excluded: list[str] = []
    pieces: list[str] = []
    stop = len(text)
    for token in reversed(tokens):
        phrase = token["curly"] if token["straight"] is None else token["straight"]
        if phrase is not None and not _WORD.search(phrase):
            phrase = None
        left_out = phrase if token["not"] else None
        if phrase is not None and left_out is None:
            phrases.append(phrase)
        if left_out is None and is_end and len(excluded) < _MOST_EXCLUDED:
            left_out = _excluded_word(token[0], has_flag)
            is_end = left_out is not None
        if left_out is not None:
            excluded.append(left_out)
            pieces.append(text[token.end() : stop])
            stop = token.start()
    pieces.append(text[:stop])
    remaining = " ".join(reversed(pieces)).strip()
    return ParsedQuery(remaining, tuple(reversed(phrases)), tuple(reversed(excluded)))


def _excluded_word(token: str, has_flag: Callable[[str], bool]) -> str | None:
    """Return the word that a token leaves out; None of a token that is text."""
    match = _EXCLUDED.fullmatch(token)
    if match is None:
        return None
    word = match[1].rstrip(_WORD_END)
    is_short = len(_LETTER.findall(word)) < _LEAST_LETTERS and not UNSPACED.search(word)
    return None if is_short or has_flag(word) else word


def holds_flag(view: View, word: str) -> bool:
    """Whether a document has a word with a hyphen before it, as in ``java -jar``.

    Indexes of earlier releases have no such terms.
    """
    written = word.lower()
    beginnings = filter(None, (re.match(run, written) for run in (r"[^\W_]+", r"[\w.'-]+")))
    return any(view.document_frequencies({f"-{match[0]}" for match in beginnings}).values())


def operators_note(query: ParsedQuery, raw: str) -> str:
    """Say which documents a query leaves out; `raw` is the option that takes it as text."""
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
    """Say what emptied the hits of a query, and what to change.

    `terms` are those of the query with its expansions. `has_hits` says whether a text and a filter
    have hits, in the same mode. `exclude` is left out beside what the query leaves out.
    """
    if not view.count_documents():
        return "the index is empty: add documents"
    counts = view.facets([], where, terms, 1)
    if not counts.documents:
        return "no document passes the filter: change it or leave it out"
    among = "" if where is None else " that passes the filter"
    filter_text = None if where is None else where.text
    # Stop words alone have no matches, but hits.
    is_scanned = not terms and (query.phrases or query.excluded or exclude)
    if (
        mode == "bm25"
        and not counts.matches
        and not (is_scanned and has_hits(query.plain, filter_text))
    ):
        if not terms:
            from retriever.search.stop_words import describe_texts

            return (
                "the query has only stop words and punctuation, which as a phrase are in no title "
                f"and in none of the texts of {describe_texts(counts.documents)}: add another "
                "word, or use the mode hybrid"
            )
        is_elsewhere = where is not None and view.facets([], None, terms, 1).matches
        remedy = "change the filter" if is_elsewhere else "check the spelling"
        # Hybrid search has the same rule for phrases.
        also = "remove quotation marks and use" if query.phrases else "use"
        return f"no document{among} has a word of the query: {remedy}, or {also} the mode hybrid"
    phrases = " and ".join(f'"{phrase}"' for phrase in query.phrases)
    if (query.excluded or exclude) and (not phrases or has_hits(query.text, filter_text)):
        conditions = ["a word of the query"] if mode == "bm25" else []
        conditions += [phrases] if phrases else []
        with_these = f" with {' and '.join(conditions)}" if conditions else ""
        reason = f"every document{among}{with_these} has what the query leaves out"
        if query.excluded:
            operators = _written_operators(query.excluded)
            return f"{reason} ({operators}): remove a minus sign and what follows it"
        texts = ", ".join(f'"{text}"' for text in exclude)
        return f"{reason} ({texts}): take one out of exclude"
    if not phrases:
        return f"no document{among} was ranked: search again"
    remedy = "remove quotation marks"
    if where is not None and has_hits(query.text, None):
        remedy = f"change the filter, or {remedy}"
    return f"no document{among} has {phrases} as written: {remedy}"


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
        if start < end or not _SHORTEST <= len(word) <= _LONGEST or UNSPACED.search(word):
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
    from retriever.documents.outline import read_outline
    from retriever.documents.passages import label_text

    ranking = view.ranking(BM25Settings(), None, None)
    term_set = frozenset(terms)
    candidates = ranking.candidates([Query([term]) for term in terms], "bm25", _READ)
    passages = {passage for ranked in candidates for passage in ranked.passages.tolist()[:_READ]}
    languages = view.setting("languages", {})
    words: dict[str, set[str]] = {}
    for passage in view.passages(sorted(passages)).values():
        names = f"{passage.title or ''}\n{label_text(read_outline(passage.outline))}"
        text = f"{names}\n{passage.text[passage.start : passage.stop]}"
        for term, start, stop in analyzer.spans(text[:_READ_CHARACTERS], term_set, languages):
            if term in term_set:
                words.setdefault(text[start:stop].lower(), set()).add(term)
    return words


def _distance(word: str, other: str) -> int:
    """The number of edits between two words, none of which changes a letter twice."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word):
        last = before
        before = row
        row = [i + 1]
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
        before = word[:i]
        after = word[i:]
        yield from (before + letter + after for letter in letters)
        if after:
            yield before + after[1:]
            yield from (before + letter + after[1:] for letter in letters)
            yield before + after[1:2] + after[:1] + after[2:]
        if min(len(before), len(after)) >= _SHORTEST_PART:
            yield f"{before} {after}"
