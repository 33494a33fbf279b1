"""Near-copies among hits and among texts, found by shingles (sets of three words)."""

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

# Number of words in a shingle.
_SHINGLE_WORDS = 3
# Least Jaccard similarity of near-copies.
_LEAST_SIMILARITY = 0.9
# A passage with fewer letters and digits, such as "No abstract available", is compared with its
# title.
_FEWEST_LETTERS = 40
# Multipliers of four hash functions. Two near-copies differ in all four least hashes with a
# probability of 0.1 ** 4.
_MULTIPLIERS = np.array([[2654435761], [2246822519], [3266489917], [668265263]], np.uint32)


def collapse(hits: Sequence[Hit]) -> list[Hit]:
    """Fold hits into better hits that they nearly repeat, and rank the remaining hits from 1.

    Passages are near-copies if the Jaccard similarity of their sets of three successive words is at
    least 0.9 (Broder 1997, On the resemblance and containment of documents). Case and punctuation
    make no difference. Passages of fewer words are near-copies if all their words are
    equal. A passage with little or no text is compared with its title. A hit is compared only with
    the hits that remain; their `copies` name the documents folded into them.
    """
    remaining: list[tuple[frozenset[tuple[str, ...]], Hit, list[str]]] = []
    for hit in hits:
        shingles = _shingles(identifying_text(hit.title, hit.passage))
        for better_shingles, _, copies in remaining:
            if _is_similar(shingles, better_shingles):
                copies.append(hit.id)
                break
        else:
            remaining.append((shingles, hit, []))
    return [
        replace(hit, rank=rank, copies=tuple(copies))
        for rank, (_, hit, copies) in enumerate(remaining, start=1)
    ]


def identifying_text(title: str | None, text: str) -> str:
    """Return the text of a document or passage, with its title before it if the text is short."""
    if title and sum(map(str.isalnum, text)) < _FEWEST_LETTERS:
        return f"{title}\n{text}"
    return text


def earliest_copies(texts: Sequence[str]) -> list[int]:
    """Return for each text the position of its first near-copy, or its own position.

    Near-copies are defined as in `collapse`. Two texts are compared only if the least hashes of
    their shingles are equal under at least one of four hash functions (Broder 1997, Sec. 4). This
    misses one in 10,000 pairs of near-copies.
    """
    originals: list[int] = []
    buckets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, text in enumerate(texts):
        shingles = _shingles(text)
        checksums = [zlib.crc32(" ".join(words).encode()) for words in shingles]
        hashes = np.array(checksums, np.uint32) * _MULTIPLIERS
        keys = list(enumerate(hashes.min(axis=1).tolist()))
        original = position
        for candidate in sorted({number for key in keys for number in buckets.get(key, ())}):
            if _is_similar(shingles, _shingles(texts[candidate])):
                original = candidate
                break
        originals.append(original)
        if original == position:
            for key in keys:
                buckets[key].append(position)
    return originals


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    words = "".join(c if _is_in_word(c) else " " for c in text.lower()).split()
    if len(words) < _SHINGLE_WORDS:
        # A text of punctuation alone is compared as it is.
        return frozenset([tuple(words or text.split())])
    return frozenset(zip(*(words[i:] for i in range(_SHINGLE_WORDS)), strict=False))


def _is_in_word(character: str) -> bool:
    # In Hindi, Thai and other scripts, vowels are combining marks.
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _is_similar(left: frozenset[tuple[str, ...]], right: frozenset[tuple[str, ...]]) -> bool:
    """Return whether two sets have a Jaccard similarity of at least 0.9."""
    small, large = sorted((len(left), len(right)))
    if small < _LEAST_SIMILARITY * large:
        return False
    common = len(left & right)
    return common >= _LEAST_SIMILARITY * (small + large - common)
