"""What SIF and uSIF learn from a corpus: how probable words are, and what all texts share."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import Static
from retriever.encoders.static.files import read_word_counts
from retriever.encoders.static.folder import FITTED
from retriever.encoders.static.methods import (
    Fitted,
    before_removal,
    component_shares,
    principal_components,
    sif_weights,
    usif_a,
    usif_weights,
)
from retriever.encoders.static.words import FileTokenizer, Lexicon
from retriever.errors import ConfigError, SourceError

Done = Callable[[int, int], None]

DEFAULT_A = 1e-3
DEFAULT_COMPONENTS: Mapping[str, int] = {"sif": 1, "usif": 5}
# Texts that are read together, and words whose vectors are in memory together.
_TEXTS = 1024
_WORDS = 16384


@dataclass(frozen=True, slots=True)
class FitSettings:
    """How `sif` and `usif` are fitted; None if it is the method's own default.

    Attributes:
        a: SIF's smoothing, above 0; default 1e-3. uSIF derives its own.
        components: how many are removed, 0 or more; default 1 for SIF, 5 for uSIF.
        sample: maximum number of texts that components are fitted on, drawn at random; at least 1.
        seed: of the drawing.
        word_counts: a file of word counts, in place of those of the corpus.

    Raises:
        ConfigError: a value that is impossible.
    """

    a: float | None = None
    components: int | None = None
    sample: int = 100_000
    seed: int = 0
    word_counts: Path | None = None

    def __post_init__(self) -> None:
        if self.a is not None and not 0 < self.a < math.inf:
            raise ConfigError(f"a: expected a number above 0, found {self.a}")
        for name, least in (("components", 0), ("sample", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{name}: expected at least {least}, found {value}")

    def check(self, method: Static) -> None:
        """Refuse what a method has no use for.

        Raises:
            ConfigError: naming it.
        """
        useless = {"a": self.a, "components": self.components, "word-counts": self.word_counts}
        if method == "usif":
            useless = {"a": self.a}
        elif method == "sif":
            useless = {}
        for name, value in useless.items():
            if value is not None:
                why = "derives it" if method == "usif" else "has nothing to fit"
                raise ConfigError(f"{name}: {method} {why}; leave it out")


DEFAULT_SETTINGS = FitSettings()


@dataclass(slots=True)
class _Corpus:
    """What one pass over the texts keeps."""

    counts: NDArray[np.int64]
    texts: int = 0
    with_words: int = 0
    words: int = 0
    sample: list[NDArray[np.int32]] = field(default_factory=list)


def fit(
    lexicon: Lexicon,
    method: Static,
    texts: Iterable[str],
    settings: FitSettings,
    window: int,
    done: Done,
) -> tuple[Fitted, dict[str, Any]]:
    """Fit `sif` or `usif`; the texts are read once, as a stream.

    Args:
        lexicon: words and vectors.
        method: one of `FITTED`.
        texts: the corpus.
        settings: how.
        window: words of a text that its sentence vector is made of at most.
        done: called with the texts and words that were read since the last call.

    Returns:
        What was fitted, and what it was fitted on, as JSON values.

    Raises:
        ConfigError: a setting that does not fit the method or the vectors.
        SourceError: no text holds a word that has a vector; the word counts cannot be used.
    """
    assert method in FITTED
    settings.check(method)
    width = lexicon.vectors.shape[1]
    wanted = settings.components
    if wanted is None:
        wanted = min(DEFAULT_COMPONENTS[method], width)
    elif wanted > width:
        raise ConfigError(f"components: expected 0 to the {width} dimensions, found {wanted}")
    given = _given_counts(lexicon, settings.word_counts)
    corpus = _read(lexicon, texts, settings, window, done)
    counts = corpus.counts.astype(np.float64) if given is None else given[0]
    vocabulary = counts[counts > 0] if given is None else given[1]
    length = corpus.words / corpus.with_words
    weights, a = _weights(method, counts, vocabulary, length, settings.a)
    gram = _gram(lexicon, method, corpus.sample, weights)
    components, squares = principal_components(gram, wanted)
    total = float(np.trace(gram))
    parameters = {
        "a": a if math.isfinite(a) else None,
        "components": len(components),
        "mean_words": length,
        "vocabulary": len(vocabulary),
    }
    provenance = {
        "texts": corpus.texts,
        "words": corpus.words,
        "known": int(corpus.counts.sum()) / corpus.words,
        "sampled": len(corpus.sample),
        "seed": settings.seed,
        "word_counts": settings.word_counts.name if settings.word_counts else None,
        "components_hold": float(squares.sum()) / total if total else 0.0,
    }
    fitted = Fitted(weights, components, component_shares(method, squares), parameters)
    return fitted, provenance


def _given_counts(
    lexicon: Lexicon, file: Path | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The counts of the lexicon's words in a file, and all the file's counts."""
    if file is None:
        return None
    tokenizer = lexicon.tokenizer
    if not isinstance(tokenizer, FileTokenizer):
        raise ConfigError(
            f"word-counts: they are counts of words, but {lexicon.name} has vectors of word "
            "pieces; leave word-counts out: pieces are counted in the corpus"
        )
    counts = read_word_counts(file)
    of_words = np.array([_count(counts, word) for word in tokenizer.words], np.float64)
    if not of_words.any():
        raise SourceError(
            f"{file}: counts no word that has a vector in {lexicon.name}; name counts of the same "
            "language"
        )
    return of_words, np.array(list(counts.values()), np.float64)


def _count(counts: Mapping[str, float], word: str) -> float:
    """The count of a word as it is written, else in lower case, else 0."""
    found = counts.get(word)
    return counts.get(word.lower(), 0.0) if found is None else found


def _read(
    lexicon: Lexicon, texts: Iterable[str], settings: FitSettings, window: int, done: Done
) -> _Corpus:
    """Count the words of all texts and draw a sample of texts, each with the same chance."""
    size = len(lexicon.vectors)
    corpus = _Corpus(np.zeros(size, np.int64))
    chance, drawable = random.Random(settings.seed), 0
    for chunk in _chunks(iter(texts)):
        rows = [np.array(row, np.int32) for row in lexicon.tokenizer.ids(chunk)]
        for row in rows:
            ids = row[:window]
            ids = ids[ids < size]
            if not len(ids):
                continue
            # Vitter's algorithm R: the n-th text takes a random place with probability sample / n.
            drawable += 1
            if len(corpus.sample) < settings.sample:
                corpus.sample.append(ids)
            elif (place := chance.randrange(drawable)) < settings.sample:
                corpus.sample[place] = ids
        counts = np.bincount(np.concatenate(rows), minlength=size + 1)
        corpus.counts += counts[:size]
        corpus.texts += len(chunk)
        corpus.with_words += sum(len(row) > 0 for row in rows)
        corpus.words += int(counts.sum())
        done(len(chunk), int(counts.sum()))
    if not corpus.sample:
        raise SourceError(
            f"none of {corpus.texts:,} texts holds a word that has a vector in {lexicon.name}; "
            "name texts and vectors of the same language"
        )
    return corpus


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    while chunk := list(islice(texts, _TEXTS)):
        yield chunk


def _weights(
    method: Static,
    counts: NDArray[np.float64],
    vocabulary: NDArray[np.float64],
    length: float,
    a: float | None,
) -> tuple[NDArray[np.float32], float]:
    """The weight of each word and the parameter they come from.

    Of a word that was not counted each method assumes what its authors' code does.
    """
    total = vocabulary.sum()
    if method == "sif":
        a = DEFAULT_A if a is None else a
        return sif_weights(counts / total, a), a
    a = usif_a(vocabulary / total, length)
    return usif_weights(np.where(counts > 0, counts, vocabulary.min()) / total, a), a


def _gram(
    lexicon: Lexicon,
    method: Static,
    sample: list[NDArray[np.int32]],
    weights: NDArray[np.float32],
) -> NDArray[np.float64]:
    """The inner products of the dimensions over the sample's sentence vectors."""
    width = lexicon.vectors.shape[1]
    gram = np.zeros((width, width))
    sizes = np.array([len(ids) for ids in sample], np.int64)
    # A step ends with the text that fills it.
    steps = (np.cumsum(sizes) - sizes) // _WORDS
    first = 0
    for last in [*(np.flatnonzero(np.diff(steps)) + 1), len(sample)]:
        ids = np.concatenate(sample[first:last]).astype(np.int64)
        plain = before_removal(method, lexicon.vectors, ids, sizes[first:last], weights)
        gram += plain.T.astype(np.float64) @ plain.astype(np.float64)
        first = last
    return gram
