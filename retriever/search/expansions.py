"""Expansions of a query for BM25: spellings, beginnings and synonyms of its words.

They are looked up at query time, so an index needs no change. Only terms that the index holds
become part of a query. docs/reference/query-language.md describes each kind.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import TYPE_CHECKING, NamedTuple

from indexes import Query
from indexes.bm25 import LABEL, LABEL_WEIGHT, BM25Settings, Expansion
from retriever.documents.division import CJK, divide, normalize, without_accents
from retriever.documents.outline import read_outline
from retriever.documents.passages import label_text
from retriever.search.synonyms import is_spaceless

if TYPE_CHECKING:
    from indexes import Passage, View
    from retriever.documents.analyzer import Analyzer
    from retriever.search.synonyms import Synonyms

# Weights of expansions, as shares of the weight of the word itself. A beginning is less specific
# than another spelling.
_SPELLING_WEIGHT = 0.5
_SYNONYM_WEIGHT = 0.5
_BEGINNING_WEIGHT = 0.25

# Alternative spellings of letters in German, Swedish, Finnish, Danish and Norwegian.
_SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "ae": ("ä", "æ"),
    "oe": ("ö", "ø", "œ"),
    "ue": ("ü",),
    "aa": ("å",),
    "ä": ("ae",),
    "æ": ("ae",),
    "ö": ("oe",),
    "ø": ("oe",),
    "œ": ("oe",),
    "ü": ("ue",),
    "å": ("aa",),
    "ss": ("ß",),
    "ß": ("ss",),
}
# Spellings that an analyzer reads as equal.
_SHARP = ("ss", "ß")
_SPELLED = re.compile("|".join(_SPELLINGS))
_WORD = re.compile(r"[^\W\d_]+")
# Maximum number of spellings that are looked up for a query.
_MOST_SPELLINGS = 256

# A word that ends with an asterisk, behind white space or an opening bracket or quote.
_BEGINNING = re.compile(
    r"""(?<![^\s(\[{"“”'‘«])([^\s*()\[\]{}"“”«»]{1,100})\*(?=[.,;:!?)\]}"”'’»]*(?:\s|$))"""
)
# Beginning and end of emphasis in Markdown.
_EMPHASIS_BEGINS = re.compile(r"(?<![\w*])\*(?=\w)")
_EMPHASIS_ENDS = re.compile(r"(?<=\w)\*(?!\w)")
_IDEOGRAPH = re.compile(f"[{CJK}]")
_QUOTED = re.compile(r'["“”][^"“”]*["“”]')
_SEPARATOR = re.compile(r"[\W_]")
# Least number of letters and digits of a beginning without ideographs or kana.
_LEAST_LETTERS = 3
# Maximum number of terms with one beginning, and of beginnings in a query.
_MOST_TERMS = 1000
_MOST_BEGINNINGS = 5
# Maximum number of asterisks that are examined in a query.
_MOST_ASTERISKS = 50
# Maximum number of final letters of a beginning that a stem can lack, and of spellings of a
# beginning.
_MOST_STEMMED = 6
_MOST_VARIANTS = 8
# Number of passages that are read for the spellings of a term, and of characters of each.
_READ_PASSAGES = 16
_READ_CHARACTERS = 10_000


class _Candidate(NamedTuple):
    """An expansion before its alternatives are looked up in the index."""

    word: str
    terms: frozenset[tuple[str, ...]]
    alternatives: Sequence[tuple[str, ...]]
    weight: float


def expand(
    text: str,
    terms: Iterable[str],
    view: View,
    analyzer: Analyzer,
    synonyms: Synonyms | None = None,
    *,
    has_beginnings: bool = True,
) -> list[Expansion]:
    """Return the expansions of a query: spellings, beginnings, then synonyms.

    Each expansion is followed by the same expansion of labels.

    Args:
        text: the query.
        terms: its terms.
        view: the index.
        analyzer: the analyzer of the index.
        synonyms: synonyms of the user.
        has_beginnings: whether a word with a final asterisk stands for all words that begin so.
    """
    query_terms = frozenset(terms)
    languages = view.setting("languages", {})
    text = normalize("NFC", text)
    candidates = list(_spellings(text, query_terms, analyzer, languages))
    if has_beginnings and "*" in text:
        candidates += _beginnings(text, query_terms, view, analyzer, languages)
    if synonyms is not None:
        candidates += _synonyms(text, analyzer, languages, synonyms)
    names = {
        name for candidate in candidates for name in chain.from_iterable(candidate.alternatives)
    }
    # One look-up for all candidates.
    counts = view.document_frequencies(sorted(names)) if names else {}
    expansions = []
    for word, word_terms, alternatives, weight in candidates:
        distinct = dict.fromkeys(alternatives)
        present = tuple(
            alternative
            for alternative in distinct
            if alternative not in word_terms and all(map(counts.__getitem__, alternative))
        )
        if present:
            sorted_terms = tuple(sorted(word_terms))
            expansions.append(Expansion(word, sorted_terms, present, weight))
            # Like the word itself, alternatives weigh less in a label, and with the same idf.
            labels = tuple(tuple(LABEL + name for name in names) for names in present)
            label_weight = LABEL_WEIGHT * weight
            expansions.append(Expansion(word, sorted_terms + present, labels, label_weight))
    return expansions


def _spellings(
    text: str, query_terms: frozenset[str], analyzer: Analyzer, languages: Iterable[str]
) -> Iterator[_Candidate]:
    """Yield the spellings of each word of a query, with ä for ae, ae for ä, and the like."""
    count = 0
    has_folding = analyzer.settings.division != "plain"
    readings: list[tuple[str, ...]] = [(language,) for language in languages] or [()]
    for word in dict.fromkeys(_WORD.findall(text)):
        lower = word.lower()
        variants = list(islice(find_spellings(lower), _MOST_SPELLINGS - count))
        count += len(variants)
        forms = analyzer.forms(word, languages) if variants else frozenset()
        # A word that the analyzer dropped has no spellings.
        if query_terms.isdisjoint(forms):
            continue
        tail = _tail_length(lower)
        alternatives = []
        word_forms = {language: analyzer.forms(word, language) for language in readings}
        for variant, language in product(variants, readings):
            # "cœur" also has the term "coeur", and "jørgensen" in German the term of "joergensen".
            bare = without_accents(variant)
            if has_folding and not word_forms[language].isdisjoint(analyzer.forms(bare, language)):
                continue
            doubled = variant.replace("ß", "ss")
            head = doubled[: len(doubled) - tail]
            alternatives += [
                (term,)
                for term in analyzer.forms(variant, language)
                if term not in query_terms and _has_spelling(term, head)
            ]
        yield _Candidate(word, _singles(forms), alternatives, _SPELLING_WEIGHT)


def _tail_length(word: str) -> int:
    """Return the number of letters after the last spelling of a word other than ß and ss."""
    doubled = word.replace("ß", "ss")
    ends = [match.end() for match in _SPELLED.finditer(doubled) if match.group() not in _SHARP]
    return len(doubled) - ends[-1]


def _has_spelling(term: str, head: str) -> bool:
    """Return whether a stem keeps the head with the spellings; "viru" of "virues" does not."""
    return term.replace("ß", "ss").startswith((head, without_accents(head)))


def find_spellings(word: str) -> Iterator[str]:
    """Yield the other spellings of a word in lower case.

    Each of ä, ö, ü, å, æ, ø and œ is also spelled with two letters, and the reverse. In a word with
    one of them, ß is also spelled ss, and the reverse.
    """
    matches = list(_SPELLED.finditer(word))
    if all(match.group() in _SHARP for match in matches):
        return
    pieces: list[tuple[str, ...]] = []
    end = 0
    for match in matches:
        pieces.append((word[end : match.start()],))
        pieces.append((match.group(), *_SPELLINGS[match.group()]))
        end = match.end()
    combined = map("".join, product(*pieces, (word[end:],)))
    # The first one is the word itself.
    yield from islice(combined, 1, None)


def _beginnings(
    text: str,
    query_terms: frozenset[str],
    view: View,
    analyzer: Analyzer,
    languages: Iterable[str],
) -> Iterator[_Candidate]:
    """Yield the terms that begin with each word with an asterisk."""
    has_german = "german" in {*languages, analyzer.settings.language}
    for word in islice(find_beginnings(text, analyzer), _MOST_BEGINNINGS):
        forms = analyzer.forms(word, languages)
        if _is_literal(f"{word}*", forms, view):
            continue
        lower = normalize("NFKC", word).lower()
        variants = list(islice(find_spellings(lower), _MOST_VARIANTS))
        # German stems have no umlauts.
        accented = [lower, *(variants if has_german else ())]
        beginnings = dict.fromkeys([lower, *variants, *map(without_accents, accented)])
        terms = list(
            chain.from_iterable(_terms_beginning(variant, view) for variant in beginnings)
        )[:_MOST_TERMS]
        terms += _shorter_stems(lower, view, analyzer, languages)
        alternatives = [(term,) for term in terms if term not in query_terms]
        yield _Candidate(f"{word}*", _singles(forms), alternatives, _BEGINNING_WEIGHT)


def _terms_beginning(beginning: str, view: View) -> Iterable[str]:
    """Return the most frequent terms of words with a beginning."""
    text_terms = view.terms_beginning(beginning, _MOST_TERMS)
    label_terms = view.terms_beginning(LABEL + beginning, _MOST_TERMS)
    # The parts of a name are terms too: a whole name would count twice beside its first part.
    names = (term.removeprefix(LABEL) for term in label_terms)
    parts = [name for name in names if not _is_whole_name(name, beginning)]
    return dict.fromkeys([*text_terms, *parts])


def _is_whole_name(name: str, beginning: str) -> bool:
    """Return whether a name has several parts, and the first one has the beginning."""
    first_part, *other_parts = _SEPARATOR.split(name)
    return bool(other_parts) and first_part.startswith(beginning)


def find_beginnings(text: str, analyzer: Analyzer) -> Iterator[str]:
    """Yield the words of a query with a final asterisk outside quotation marks, without it."""
    text = _QUOTED.sub(" ", text)
    for match in islice(_BEGINNING.finditer(text), _MOST_ASTERISKS):
        # The last word of `/etc/config*`.
        words = analyzer.words(match[1])
        word = words[-1] if words else ""
        length = sum(unicodedata.category(character)[0] in "LMN" for character in word)
        is_long = length >= _LEAST_LETTERS or _IDEOGRAPH.search(word)
        if is_long and match[1].endswith(word) and not _is_emphasized(text[: match.start()]):
            yield word


def _is_emphasized(before: str) -> bool:
    """Return whether emphasis is open after `before`, the beginning of a line."""
    begins = sum(1 for _ in _EMPHASIS_BEGINS.finditer(before))
    ends = sum(1 for _ in _EMPHASIS_ENDS.finditer(before))
    return begins > ends


def _is_literal(text: str, terms: Iterable[str], view: View) -> bool:
    """Return whether one of the best passages with a word has it with its asterisk."""
    pattern = re.compile(rf"(?<![\w*]){re.escape(text)}(?![\w*])", re.IGNORECASE)
    for passage in _read_passages(terms, view, 2 * _READ_PASSAGES):
        text_part = passage.text[passage.start : passage.stop][:_READ_CHARACTERS]
        for match in pattern.finditer(text_part):
            line_start = text_part.rfind("\n", 0, match.start()) + 1
            if not _is_emphasized(text_part[line_start : match.start()]):
                return True
    return False


def _shorter_stems(
    beginning: str, view: View, analyzer: Analyzer, languages: Iterable[str]
) -> Iterator[str]:
    """Yield the stems of words with a beginning that are shorter than the beginning.

    The stem of "configuration" does not begin with "configura". A stem counts if a word with the
    beginning is in one of a few passages with the stem.
    """
    if not analyzer.settings.stemming:
        return
    least = max(_LEAST_LETTERS, len(beginning) - _MOST_STEMMED)
    # A stem can end with another letter: "studi" of "studying".
    stems = {
        beginning[:length] + end
        for length in range(least, len(beginning))
        for end in ("", "e", "i")
    }
    counts = view.document_frequencies(sorted(stems))
    for term in (stem for stem, df in counts.items() if df and not stem.startswith(beginning)):
        for passage in _read_passages([term], view, _READ_PASSAGES):
            text_part = passage.text[passage.start : passage.stop][:_READ_CHARACTERS]
            labels = label_text(read_outline(passage.outline))
            text = f"{passage.title or ''}\n{labels}\n{text_part}"
            if any(
                name == term and text[start:stop].lower().startswith(beginning)
                for name, start, stop in analyzer.spans(text, {term}, languages)
            ):
                yield term
                break


def _read_passages(terms: Iterable[str], view: View, number: int) -> Iterable[Passage]:
    """Return up to `number` passages with one of the terms."""
    ranking = view.ranking(BM25Settings(), None, None)
    (candidates,) = ranking.candidates([Query(sorted(terms))], "bm25", number)
    return view.passages(candidates.passages.tolist()[:number]).values()


def _synonyms(
    text: str, analyzer: Analyzer, languages: Mapping[str, int], synonyms: Synonyms
) -> Iterator[_Candidate]:
    """Yield the phrases of a query that have synonyms."""
    readings: list[tuple[str, ...]] = [(language,) for language in languages]
    for phrase, synonym_phrases in synonyms.find(text, analyzer, languages):
        forms = {
            form
            for language in readings or [()]
            if (form := _phrase_terms(phrase, analyzer, language))
        }
        alternatives = [
            alternative
            for synonym in synonym_phrases
            for language in readings or [()]
            if (alternative := _phrase_terms(synonym, analyzer, language))
        ]
        word = " ".join(phrase)
        yield _Candidate(word, frozenset(forms), alternatives, _SYNONYM_WEIGHT)


def _phrase_terms(
    words: Iterable[str], analyzer: Analyzer, language: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the terms of a phrase in one language, without stop words."""
    terms: list[str] = []
    for word in analyzer.words(" ".join(words)):
        if is_spaceless(word):
            grams = [piece.text for piece in divide(word, "grams")]
            # The division of such a script into words depends on the surrounding text.
            terms += [gram for gram in grams if len(gram) == max(map(len, grams))]
        else:
            default = analyzer.forms(word, ())
            terms += sorted(analyzer.forms(word, language) - default or default)[:1]
    return tuple(dict.fromkeys(terms))


def _singles(terms: Iterable[str]) -> frozenset[tuple[str, ...]]:
    return frozenset((term,) for term in terms)
