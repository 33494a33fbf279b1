"""Words that are divided by hyphens at line ends: joined, or compounds that keep the hyphen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

# The hyphen at a line end in pdfium's text, often without the line end itself.
_HYPHEN = re.compile("[\ufffe\x02](?:\r?\n)?")
# Possessive and anchored at the beginning of a word, so that a long word is scanned once.
_PARTED_WORD = re.compile(rf"(?<![^\W_])[^\W_]++(?:{_HYPHEN.pattern}[^\W_]++)++")
_WORD = re.compile(r"[^\W\d_]{2,}+")
_COMPOUND = re.compile("(?<![^\\W_])[^\\W_]++(?:[-\u2010][^\\W_]++)++")
# Letters of the shortest part of a compound.
_SHORTEST_PART = 3
# Maximum number of parts of a word. A table or a drawing can seem to have more.
_MOST_PARTS = 8
# A document hyphenates if it joins elsewhere at least so many of the words that it divides at line
# ends, and so many times the number of compounds.
_LEAST_JOINED = 10
_LEAST_RATIO = 2
# File of English words: the vocabulary of the encoder that is installed with this package.
_DICTIONARY = ("layer_retriever_minilm", "model/vocab.txt")


def join_parted_words(texts: Sequence[str]) -> list[str]:
    """Return the texts of a document's pages without the hyphens that divide words at line ends.

    A word is joined if the document or a dictionary has the joined form. A compound keeps its
    hyphen if the document has it elsewhere, or if both parts are words. Other words are joined if
    the document hyphenates. Otherwise they keep the hyphen, and search finds the parts.
    """
    joiner = _Joiner(texts)
    return [
        _HYPHEN.sub("-", _PARTED_WORD.sub(joiner.join, text)) if _HYPHEN.search(text) else text
        for text in texts
    ]


class _Joiner:
    """Decides by the words of a document which hyphens at line ends divide syllables."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._words: Counter[str] = Counter()
        self._compounds: Counter[str] = Counter()
        self._dictionary: frozenset[str] = frozenset()
        self._hyphenates = False
        parted = [
            word for text in texts if _HYPHEN.search(text) for word in _PARTED_WORD.findall(text)
        ]
        if not parted:
            return
        self._dictionary = _read_dictionary()
        for text in texts:
            whole = _PARTED_WORD.sub(" ", text) if _HYPHEN.search(text) else text
            self._words.update(map(str.casefold, _WORD.findall(whole)))
            compounds = map(str.casefold, _COMPOUND.findall(whole))
            self._compounds.update(compound.replace("\u2010", "-") for compound in compounds)
        decisions = [
            self._is_one_word(first, second)
            for word in parted
            for first, second in pairwise(_HYPHEN.split(word))
        ]
        joined = decisions.count(True)
        compound = decisions.count(False)
        self._hyphenates = joined >= max(_LEAST_JOINED, _LEAST_RATIO * compound)

    def join(self, match: re.Match[str]) -> str:
        """Return the word for a match of `_PARTED_WORD`."""
        word, *parts = _HYPHEN.split(match[0])
        if len(parts) >= _MOST_PARTS:
            return "-".join([word, *parts])
        whole = "".join([word, *parts])
        if len(parts) > 1 and self._is_word(whole.casefold()):
            return whole
        for part in parts:
            decision = self._is_one_word(word.rpartition("-")[2], part)
            is_joined = self._hyphenates if decision is None else decision
            word = f"{word}{'' if is_joined else '-'}{part}"
        return word

    def _is_one_word(self, first: str, second: str) -> bool | None:
        """Return whether two parts are syllables of one word, not a compound; None if unknown."""
        before = first.casefold()
        after = second.casefold()
        joined = before + after
        as_word = self._words[joined]
        as_compound = self._compounds[f"{before}-{after}"]
        if as_word or as_compound:
            return as_word > as_compound
        if first[-1].isdigit() or second[0].isdigit():
            return False
        if joined in self._dictionary:
            return True
        is_name = second[0].isupper() and not first.isupper()
        if is_name or (self._is_part(before) and self._is_part(after)):
            return False
        return None

    def _is_part(self, word: str) -> bool:
        return len(word) >= _SHORTEST_PART and self._is_word(word)

    def _is_word(self, word: str) -> bool:
        return word in self._words or word in self._dictionary


def _read_dictionary() -> frozenset[str]:
    """Return English words; none where the package with them is not installed."""
    package, file = _DICTIONARY
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(folders[0], file) if folders else None
    if path is None or not path.is_file():
        return frozenset()
    pieces = path.read_text(encoding="utf-8").split()
    return frozenset(piece for piece in pieces if piece.isalpha())
