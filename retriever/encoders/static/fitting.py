"""Static encoders fitted on a corpus: LSA, SIF and uSIF.

With the right singular vectors V, LSA has the text vector ``sum_w tf(w) idf(w) V_w``. Up to its
length, this is the average of static word vectors ``idf(w) V_w``.

Source: Deerwester et al. 1990 (Indexing by Latent Semantic Analysis), computed by scikit-learn's
TfidfVectorizer and TruncatedSVD.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.settings import Static
from retriever.encoders.static.model import WINDOW, StaticModel
from retriever.encoders.static.settings import FITTED, FitSettings, LSASettings
from retriever.encoders.static.words import (
    FittedWeights,
    Lexicon,
    average_words,
    component_shares,
    find_lexicon,
    principal_components,
    sif_weights,
    usif_a,
    usif_weights,
    word_lexicon,
)
from retriever.errors import ConfigError, SourceError, require_extra
from retriever.training.sampling import Reservoir

Doubles = NDArray[np.float64]
# The same words as the parts of a compound in `FileTokenizer`.
_WORD = re.compile(r"\w+")
Done = Callable[[int, int], None]
DEFAULT_A = 1e-3
DEFAULT_COMPONENTS: Mapping[str, int] = {"sif": 1, "usif": 5}
# Number of texts that are tokenized together, and whose word vectors are in memory together.
_TEXTS = 1024
_SENTENCES = 64
DEFAULT_LSA = LSASettings()
DEFAULT_SETTINGS = FitSettings()


def fit_lsa(
    texts: Iterable[str],
    settings: LSASettings = DEFAULT_LSA,
    *,
    done: Done = lambda texts, words: None,
) -> StaticModel:
    """Fit a static encoder on a corpus by LSA.

    Words are runs of letters, digits and underscores in lower case. Only the first 512 words of a
    text count. idf is ``ln((1 + n) / (1 + df)) + 1`` over all n texts, and rows have length 1
    before the SVD, as in scikit-learn. Texts are read once, as a stream. `done` is called with the
    numbers of texts and words since its last call.
    """
    require_extra("sentences", "LSA", "sklearn")
    # Number of texts with each word.
    counts = Counter[str]()
    total = 0
    reservoir = Reservoir[str](settings.sample, settings.seed)
    for text in texts:
        words = lsa_words(text)
        counts.update(set(words))
        reservoir.add(text)
        total += len(words)
        done(1, len(words))
    sample = reservoir.items
    seen = reservoir.seen
    vocabulary = _select_words(counts, seen, settings)
    if len(vocabulary) < 2 or len(sample) < 2:
        raise SourceError(
            f"lsa: expected 2 texts or more, and 2 words in {settings.min_df} texts to "
            f"{settings.max_df:.0%} of them, found {seen} texts and {len(vocabulary)} such words; "
            "read more texts, or change --set min-df or max-df"
        )
    frequencies = np.array([counts[word] for word in vocabulary], np.float64)
    idf = np.log((1 + seen) / (1 + frequencies)) + 1
    components, variance = _components(vocabulary, idf, sample, settings)
    vectors = np.ascontiguousarray(components.T * idf[:, None], np.float32)
    provenance = {
        "vectors": "lsa",
        "texts": seen,
        "words": total,
        "sampled": len(sample),
        "min_df": settings.min_df,
        "max_df": settings.max_df,
        "seed": settings.seed,
        "explained_variance": variance,
    }
    lexicon = word_lexicon("lsa", vocabulary, vectors)
    return StaticModel(lexicon, "average", None, provenance)


def _select_words(counts: Counter[str], texts: int, settings: LSASettings) -> list[str]:
    """Return the words with a document frequency in the range of the settings.

    The most frequent words come first, equally frequent ones in alphabetical order.
    """
    highest = settings.max_df * texts
    words = [word for word, count in counts.items() if settings.min_df <= count <= highest]
    return sorted(words, key=lambda word: (-counts[word], word))[: settings.max_words]


def lsa_words(text: str) -> list[str]:
    """Return the words of a text, in order."""
    return [word.lower() for word in _WORD.findall(text)][:WINDOW]


def _components(
    words: list[str], idf: Doubles, sample: list[str], settings: LSASettings
) -> tuple[Doubles, float]:
    """Return (dimensions, words) right singular vectors, and their share of the variance."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=lsa_words, vocabulary=words)
    vectorizer.idf_ = idf
    dimensions = min(settings.dimensions, len(words), len(sample))
    svd = TruncatedSVD(dimensions, random_state=settings.seed)
    svd.fit(vectorizer.transform(sample))
    return svd.components_, float(svd.explained_variance_ratio_.sum())


@dataclass(slots=True)
class _Corpus:
    """Statistics and a sample of texts from one pass over a corpus."""

    counts: NDArray[np.int64]
    sample: list[NDArray[np.int32]]
    texts: int = 0
    with_words: int = 0
    words: int = 0


def _fit(
    lexicon: Lexicon, method: Static, texts: Iterable[str], settings: FitSettings, done: Done
) -> tuple[FittedWeights, dict[str, Any]]:
    """Fit `sif` or `usif` on a stream of texts; return weights and provenance."""
    width = lexicon.vectors.shape[1]
    component_count = settings.components
    if component_count is None:
        component_count = min(DEFAULT_COMPONENTS[method], width)
    elif component_count > width:
        raise ConfigError(
            f"components: expected 0 to the {width} dimensions, found {component_count}"
        )
    corpus = _read(lexicon, texts, settings, done)
    probabilities = corpus.counts / corpus.counts.sum()
    vocabulary = probabilities[probabilities > 0]
    length = corpus.words / corpus.with_words
    if method == "sif":
        a = DEFAULT_A if settings.a is None else settings.a
        weights = sif_weights(probabilities, a)
    else:
        a = usif_a(vocabulary, length)
        weights = usif_weights(np.where(probabilities > 0, probabilities, vocabulary.min()), a)
    gram = _gram(lexicon, method, corpus.sample, weights)
    components, squares = principal_components(gram, component_count)
    squared = float(np.trace(gram))
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
        "components_hold": float(squares.sum()) / squared if squared else 0.0,
    }
    fitted = FittedWeights(weights, components, component_shares(method, squares), parameters)
    return fitted, provenance


def _read(lexicon: Lexicon, texts: Iterable[str], settings: FitSettings, done: Done) -> _Corpus:
    """Count the words of all texts, and draw a uniform sample of texts."""
    size = len(lexicon.vectors)
    sample = Reservoir[NDArray[np.int32]](settings.sample, settings.seed)
    corpus = _Corpus(np.zeros(size, np.int64), sample.items)
    stream = iter(texts)
    while chunk := list(islice(stream, _TEXTS)):
        rows = [np.array(row, np.int32) for row in lexicon.tokenizer.ids(chunk)]
        for row in rows:
            ids = row[:WINDOW]
            ids = ids[ids < size]
            if len(ids):
                sample.add(ids)
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


def _gram(
    lexicon: Lexicon,
    method: Static,
    sample: list[NDArray[np.int32]],
    weights: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Return the inner products of the dimensions over the vectors of the sampled texts."""
    width = lexicon.vectors.shape[1]
    gram = np.zeros((width, width))
    for first in range(0, len(sample), _SENTENCES):
        block = sample[first : first + _SENTENCES]
        counts = np.array([len(ids) for ids in block], np.int64)
        ids = np.concatenate(block).astype(np.int64)
        plain = average_words(method, lexicon.vectors, ids, counts, weights)
        gram += plain.T.astype(np.float64) @ plain.astype(np.float64)
    return gram


def fit_static(
    source: str | Path,
    method: Static,
    texts: Iterable[str],
    *,
    settings: FitSettings = DEFAULT_SETTINGS,
    download: bool = False,
    done: Done = lambda texts, words: None,
) -> StaticModel:
    """Make a static encoder from a file of word vectors or from a model (see `find_model`).

    `sif` and `usif` are fitted on texts, which are read once, as a stream. `done` is called with
    the numbers of texts and words since its last call.
    """
    settings.check(method)
    provenance: dict[str, Any] = {"vectors": str(source)}
    lexicon = find_lexicon(str(source), download)
    fitted = None
    if method in FITTED:
        fitted, details = _fit(lexicon, method, texts, settings, done)
        provenance |= details
    return StaticModel(lexicon, method, fitted, provenance)
