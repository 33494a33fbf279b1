"""Near-copies among hits: a passage that repeats a better one is folded into it."""

from __future__ import annotations

import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from retriever.search.engine import Hit

# Words of a shingle, and the share of shingles that near-copies have in common.
_WORDS = 3
_LEAST = 0.9
# A passage of fewer letters and digits, such as "No abstract available", is not known by itself.
_FEWEST_LETTERS = 40
# Multipliers of hash functions. Near-copies differ in the least hash of all with 0.1 ** 4.
_MULTIPLIERS = np.array([[2654435761], [2246822519], [3266489917], [668265263]], np.uint32)


def collapsed(hits: Sequence[Hit]) -> list[Hit]:
    """Hits without near-copies of better ones, whose `copies` name them; ranked anew from 1.

    Passages are near-copies if the Jaccard similarity of their sets of three successive words, in
    lower case and without punctuation, is at least 0.9 (Broder 1997, On the resemblance and
    containment of documents); passages of fewer words if all of them are equal. A passage without
    text, or with little, counts with its title. A hit is compared with those that stay.
    """
    kept: list[tuple[frozenset[tuple[str, ...]], Hit, list[str]]] = []
    for hit in hits:
        shingles = _shingles(identifying_text(hit.title, hit.passage))
        for other, _, copies in kept:
            if _alike(shingles, other):
                copies.append(hit.id)
                break
        else:
            kept.append((shingles, hit, []))
    return [
        replace(hit, rank=rank, copies=tuple(copies))
        for rank, (_, hit, copies) in enumerate(kept, start=1)
    ]


def identifying_text(title: str | None, text: str) -> str:
    """Return what tells a document or passage from others: a short text has its title before it."""
    if title and sum(map(str.isalnum, text)) < _FEWEST_LETTERS:
        return f"{title}\n{text}"
    return text


def earliest_copies(texts: Sequence[str]) -> list[int]:
    """For each text the place of the first near-copy of it, its own if it has none before it.

    Near-copies are those of `collapsed`; a pair is compared if the least hashes of both sets by one
    of four functions are equal (Broder 1997, Sec. 4), as those of 9,999 in 10,000 near-copies are.
    """
    first: list[int] = []
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        shingles = _shingles(text)
        codes = np.array([zlib.crc32(" ".join(one).encode()) for one in shingles], np.uint32)
        keys = list(enumerate((codes * _MULTIPLIERS).min(axis=1).tolist()))
        near = sorted({one for key in keys for one in buckets.get(key, ())})
        copied = next((one for one in near if _alike(shingles, _shingles(texts[one]))), place)
        first.append(copied)
        if copied == place:
            for key in keys:
                buckets[key].append(place)
    return first


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = "".join(c if _is_in_word(c) else " " for c in text.lower()).split()
    if len(words) < _WORDS:
        # Signs alone are compared as they are.
        return frozenset([tuple(words or text.split())])
    return frozenset(zip(*(words[i:] for i in range(_WORDS)), strict=False))


def _is_in_word(character: str) -> bool:
    # Vowels of Hindi, Thai and others are combining marks.
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _alike(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> bool:
    """Whether two sets have a Jaccard similarity of at least 0.9."""
    small, large = sorted((len(one), len(other)))
    if small < _LEAST * large:
        return False
    common = len(one & other)
    return common >= _LEAST * (small + large - common)
