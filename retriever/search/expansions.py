"""Other terms that BM25 searches for beside a query's words: spellings, beginnings, synonyms.

All of them are found when a query is asked, so an index needs no change, and only terms that the
index holds become part of a query. docs/ranking.md says what each kind finds.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import TYPE_CHECKING, NamedTuple

from indexes import LABEL, LABEL_WEIGHT, BM25Settings, Expansion, Query
from retriever.documents.division import CJK, divide, normalized, without_accents
from retriever.documents.outline import read_outline
from retriever.documents.passages import label_text
from retriever.search.synonyms import is_spaceless

if TYPE_CHECKING:
    from indexes import Passage, View
    from retriever.documents.analyzer import Analyzer
    from retriever.search.synonyms import Synonyms

# Weights of expansions, as shares of the score of the word itself. A beginning says less of the
# question than another spelling.
_SPELLING_WEIGHT = 0.5
_SYNONYM_WEIGHT = 0.5
_BEGINNING_WEIGHT = 0.25

# How letters are spelled where they cannot be typed: German, Swedish, Finnish, Danish, Norwegian.
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
# An analyzer reads them as equal.
_SHARP = ("ss", "ß")
_SPELLED = re.compile("|".join(_SPELLINGS))
_WORD = re.compile(r"[^\W\d_]+")
# Spellings of all words of a query that are looked up.
_MOST_SPELLINGS = 256

# A word that ends with an asterisk, behind white space or an opening bracket or quote.
_BEGINNING = re.compile(
    r"""(?<![^\s(\[{"“”'‘«])([^\s*()\[\]{}"“”«»]{1,100})\*(?=[.,;:!?)\]}"”'’»]*(?:\s|$))"""
)
# Where emphasis of Markdown begins and ends.
_EMPHASIS_BEGINS = re.compile(r"(?<![\w*])\*(?=\w)")
_EMPHASIS_ENDS = re.compile(r"(?<=\w)\*(?!\w)")
_IDEOGRAPH = re.compile(f"[{CJK}]")
_QUOTED = re.compile(r'["“”][^"“”]*["“”]')
_SEPARATOR = re.compile(r"[\W_]")
# Letters and digits that a beginning has, unless it has ideographs or kana.
_LEAST_LETTERS = 3
# Terms with one beginning, and beginnings of one query.
_MOST_TERMS = 1000
_MOST_BEGINNINGS = 5
# Asterisks of a query that are looked at.
_MOST_ASTERISKS = 50
# Final letters of a beginning that the stem of a word can lack, and spellings of a beginning.
_STEMMED = 6
_MOST_VARIANTS = 8
# Passages with a term that are read for how it is written, and characters of each.
_READ = 16
_READ_CHARACTERS = 10_000


class _Candidate(NamedTuple):
    """An expansion of which the index may hold only some alternatives."""

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
    """Return the expansions of a query with these terms: spellings, beginnings, then synonyms.

    Behind each of them is the same one of labels.

    With `has_beginnings`, a word that ends with an asterisk stands for all that begin so.
    """
    own = frozenset(terms)
    languages = view.setting("languages", {})
    text = normalized("NFC", text)
    candidates = list(_spellings(text, own, analyzer, languages))
    if has_beginnings and "*" in text:
        candidates += _beginnings(text, own, view, analyzer, languages)
    if synonyms is not None:
        candidates += _synonyms(text, analyzer, languages, synonyms)
    names = {name for other in candidates for name in chain.from_iterable(other.alternatives)}
    # One look-up for all of them.
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
            of_word = tuple(sorted(word_terms))
            expansions.append(Expansion(word, of_word, present, weight))
            # In a label they count less than in a text, as the word itself does, and are no rarer.
            labels = tuple(tuple(LABEL + name for name in names) for names in present)
            expansions.append(Expansion(word, of_word + present, labels, LABEL_WEIGHT * weight))
    return expansions


def _spellings(
    text: str, own: frozenset[str], analyzer: Analyzer, languages: Iterable[str]
) -> Iterator[_Candidate]:
    """Yield, for each word of a query, its spellings with ä for ae, ae for ä, and the like."""
    number = 0
    folds = analyzer.settings.division != "plain"
    readings: list[tuple[str, ...]] = [(language,) for language in languages] or [()]
    for word in dict.fromkeys(_WORD.findall(text)):
        folded = word.lower()
        variants = list(islice(spelled(folded), _MOST_SPELLINGS - number))
        number += len(variants)
        forms = analyzer.forms(word, languages) if variants else frozenset()
        # A word that was dropped has no other spellings.
        if own.isdisjoint(forms):
            continue
        tail = _tail(folded)
        alternatives = []
        own_forms = {language: analyzer.forms(word, language) for language in readings}
        for variant, language in product(variants, readings):
            # "cœur" has the term "coeur" besides, and in German "jørgensen" that of "joergensen".
            bare = without_accents(variant)
            if folds and not own_forms[language].isdisjoint(analyzer.forms(bare, language)):
                continue
            doubled = variant.replace("ß", "ss")
            head = doubled[: len(doubled) - tail]
            alternatives += [
                (term,)
                for term in analyzer.forms(variant, language)
                if term not in own and _has_spelling(term, head)
            ]
        yield _Candidate(word, _singles(forms), alternatives, _SPELLING_WEIGHT)


def _tail(word: str) -> int:
    """The number of letters after the last spelling of a word; ß and ss are no spellings."""
    doubled = word.replace("ß", "ss")
    ends = [match.end() for match in _SPELLED.finditer(doubled) if match.group() not in _SHARP]
    return len(doubled) - ends[-1]


def _has_spelling(term: str, head: str) -> bool:
    """Whether a stem has the head of a word with its spellings; "viru" of "virues" has not."""
    return term.replace("ß", "ss").startswith((head, without_accents(head)))


def spelled(word: str) -> Iterator[str]:
    """Yield the other spellings of a word in lower case.

    Each of ä, ö, ü, å, æ, ø and œ is two letters, and such two letters are one of these. In a word
    with one of them, ß is ss too, and ss is ß.
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
    text: str, own: frozenset[str], view: View, analyzer: Analyzer, languages: Iterable[str]
) -> Iterator[_Candidate]:
    """Yield, for each word with an asterisk, the terms that begin so."""
    has_german = "german" in {*languages, analyzer.settings.language}
    for word in islice(find_beginnings(text, analyzer), _MOST_BEGINNINGS):
        forms = analyzer.forms(word, languages)
        if _is_written(f"{word}*", forms, view):
            continue
        folded = normalized("NFKC", word).lower()
        variants = list(islice(spelled(folded), _MOST_VARIANTS))
        # German stems have no umlauts.
        bare = [folded, *(variants if has_german else ())]
        beginnings = dict.fromkeys([folded, *variants, *map(without_accents, bare)])
        terms = list(
            chain.from_iterable(
                _terms_beginning(variant, view, analyzer, languages) for variant in beginnings
            )
        )[:_MOST_TERMS]
        terms += _cut_stems(folded, view, analyzer, languages)
        alternatives = [(term,) for term in terms if term not in own]
        yield _Candidate(f"{word}*", _singles(forms), alternatives, _BEGINNING_WEIGHT)


def _terms_beginning(
    beginning: str, view: View, analyzer: Analyzer, languages: Iterable[str]
) -> Iterable[str]:
    """The most frequent terms that begin so."""

    def terms_of(text: str) -> Iterator[str]:
        for word in dict.fromkeys(analyzer.words(text.lower())):
            if word.startswith(beginning):
                yield from analyzer.forms(word, languages)

    of_texts = view.terms_beginning(beginning, _MOST_TERMS, terms_of)
    of_labels = view.terms_beginning(LABEL + beginning, _MOST_TERMS, terms_of)
    # The parts of a name are terms too: beside its first part, a whole name would count twice.
    names = (term.removeprefix(LABEL) for term in of_labels)
    return dict.fromkeys([*of_texts, *(name for name in names if not _is_whole(name, beginning))])


def _is_whole(name: str, beginning: str) -> bool:
    """Whether a name has several parts, the first of which begins so."""
    first_part, *other_parts = _SEPARATOR.split(name)
    return bool(other_parts) and first_part.startswith(beginning)


def find_beginnings(text: str, analyzer: Analyzer) -> Iterator[str]:
    """The words of a query, outside of quotation marks, that end with an asterisk, without it."""
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
    """Whether emphasis that began in a text, the beginning of a line, has not ended."""
    begun = sum(1 for _ in _EMPHASIS_BEGINS.finditer(before))
    return begun > sum(1 for _ in _EMPHASIS_ENDS.finditer(before))


def _is_written(text: str, terms: Iterable[str], view: View) -> bool:
    """Whether a passage among the best with a word holds a text with an asterisk as written."""
    pattern = re.compile(rf"(?<![\w*]){re.escape(text)}(?![\w*])", re.IGNORECASE)
    for passage in _best_passages(terms, view, 2 * _READ):
        text_part = passage.text[passage.start : passage.stop][:_READ_CHARACTERS]
        for match in pattern.finditer(text_part):
            line_start = text_part.rfind("\n", 0, match.start()) + 1
            if not _is_emphasized(text_part[line_start : match.start()]):
                return True
    return False


def _cut_stems(
    beginning: str, view: View, analyzer: Analyzer, languages: Iterable[str]
) -> Iterator[str]:
    """The terms that do not begin as words with this beginning do, since stems are shorter.

    The stem of "configuration" does not begin with "configura". The words of a few passages with
    each such term decide.
    """
    if not analyzer.settings.stemming:
        return
    least = max(_LEAST_LETTERS, len(beginning) - _STEMMED)
    # A stem can end with another letter: "studi" of "studying".
    stems = {
        beginning[:length] + end
        for length in range(least, len(beginning))
        for end in ("", "e", "i")
    }
    counts = view.document_frequencies(sorted(stems))
    for term in (stem for stem, df in counts.items() if df and not stem.startswith(beginning)):
        for passage in _best_passages([term], view, _READ):
            text_part = passage.text[passage.start : passage.stop][:_READ_CHARACTERS]
            labels = label_text(read_outline(passage.outline))
            text = f"{passage.title or ''}\n{labels}\n{text_part}"
            if any(
                name == term and text[start:stop].lower().startswith(beginning)
                for name, start, stop in analyzer.spans(text, {term}, languages)
            ):
                yield term
                break


def _best_passages(terms: Iterable[str], view: View, number: int) -> Iterable[Passage]:
    """A number of passages with one of some terms."""
    ranking = view.ranking(BM25Settings(), None, None)
    (candidates,) = ranking.candidates([Query(sorted(terms))], "bm25", number)
    return view.passages(candidates.passages.tolist()[:number]).values()


def _synonyms(
    text: str, analyzer: Analyzer, languages: Mapping[str, int], synonyms: Synonyms
) -> Iterator[_Candidate]:
    """Phrases that have synonyms."""
    readings: list[tuple[str, ...]] = [(language,) for language in languages]
    for phrase, synonymous in synonyms.find(text, analyzer, languages):
        forms = {
            form
            for language in readings or [()]
            if (form := _phrase_terms(phrase, analyzer, language))
        }
        alternatives = [
            alternative
            for other in synonymous
            for language in readings or [()]
            if (alternative := _phrase_terms(other, analyzer, language))
        ]
        word = " ".join(phrase)
        yield _Candidate(word, frozenset(forms), alternatives, _SYNONYM_WEIGHT)


def _phrase_terms(
    words: Iterable[str], analyzer: Analyzer, language: tuple[str, ...]
) -> tuple[str, ...]:
    """The terms of the words of a phrase in one language; none of its stop words."""
    terms: list[str] = []
    for word in analyzer.words(" ".join(words)):
        if is_spaceless(word):
            grams = [piece.text for piece in divide(word, "grams")]
            # How such a script is divided into words depends on what stands around them.
            terms += [gram for gram in grams if len(gram) == max(map(len, grams))]
        else:
            default = analyzer.forms(word, ())
            terms += sorted(analyzer.forms(word, language) - default or default)[:1]
    return tuple(dict.fromkeys(terms))


def _singles(terms: Iterable[str]) -> frozenset[tuple[str, ...]]:
    return frozenset((term,) for term in terms)
