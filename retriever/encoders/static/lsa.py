"""LSA: word vectors from a corpus alone, by a truncated SVD of its TF-IDF matrix.

With V the right singular vectors, the vector of a text is ``sum_w tf(w) idf(w) V_w``: the average
of static word vectors ``idf(w) V_w``, up to its length.

Source: Deerwester et al. 1990 (Indexing by Latent Semantic Analysis); scikit-learn's
TfidfVectorizer and TruncatedSVD compute it.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retriever.encoders.static.files import WordVectors
from retriever.encoders.static.fitting import Done
from retriever.encoders.static.folder import StaticParts
from retriever.encoders.static.model import WINDOW, StaticModel
from retriever.encoders.static.words import file_lexicon
from retriever.errors import ConfigError, SourceError, require_extra

Doubles = NDArray[np.float64]

# As `FileTokenizer` finds the parts of a compound.
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class LSASettings:
    """How LSA is fitted.

    Attributes:
        dimensions: of the word vectors; fewer where the corpus has fewer words or texts.
        min_df: least number of texts that have a word, at least 1.
        max_df: greatest share of the texts that have a word, above 0 to 1.
        max_words: number of words; those in the most texts are kept.
        sample: number of texts, drawn at random, that the SVD is computed of; words are counted in
            all texts.
        seed: of the sample and of the randomized SVD.

    Raises:
        ConfigError: a value that is impossible.
    """

    dimensions: int = 300
    min_df: int = 2
    max_df: float = 0.5
    max_words: int = 100_000
    sample: int = 100_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("dimensions", "min_df", "max_words", "sample"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if not 0 < self.max_df <= 1:
            raise ConfigError(f"max_df: expected above 0 to 1, found {self.max_df}")


DEFAULT_LSA = LSASettings()


def fit_lsa(
    texts: Iterable[str],
    settings: LSASettings = DEFAULT_LSA,
    *,
    done: Done = lambda texts, words: None,
) -> StaticModel:
    """Make a static encoder of a corpus.

    Words are runs of letters, digits and underscores in lower case; the first 512 of a text count.
    idf is ``ln((1 + n) / (1 + df)) + 1`` over all n texts, and rows have length 1 before the SVD,
    as in scikit-learn.

    Args:
        texts: the corpus, read once as a stream.
        settings: how.
        done: called with the texts and words that were read since the last call.

    Raises:
        SourceError: fewer than two words or texts are left.
        MissingExtraError: scikit-learn is not installed.
    """
    require_extra("sentences", "LSA", "sklearn")
    counts, sample, seen, total = _read(texts, settings, done)
    most = settings.max_df * seen
    kept = [word for word, count in counts.items() if settings.min_df <= count <= most]
    # The most frequent first; of equally frequent words, in alphabetical order.
    kept = sorted(kept, key=lambda word: (-counts[word], word))[: settings.max_words]
    if len(kept) < 2 or len(sample) < 2:
        raise SourceError(
            f"lsa: expected at least 2 texts, and 2 words in {settings.min_df} or more and in at "
            f"most {settings.max_df:.0%} of them, found {seen} texts and {len(kept)} such words; "
            "read more texts, or change --min-df or --max-df"
        )
    frequencies = np.array([counts[word] for word in kept], np.float64)
    idf = np.log((1 + seen) / (1 + frequencies)) + 1
    components, variance = _components(kept, idf, sample, settings)
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
    lexicon = file_lexicon("lsa", WordVectors(kept, vectors, "glove"))
    return StaticModel(StaticParts(lexicon, "average", None, provenance))


def lsa_words(text: str) -> list[str]:
    """The words of a text, in order."""
    return [word.lower() for word in _WORD.findall(text)][:WINDOW]


def _read(
    texts: Iterable[str], settings: LSASettings, done: Done
) -> tuple[Counter[str], list[str], int, int]:
    """In how many texts each word is, a sample of texts, and the numbers of texts and of words."""
    counts, sample = Counter[str](), list[str]()
    chance, seen, total = random.Random(settings.seed), 0, 0
    for text in texts:
        words = lsa_words(text)
        counts.update(set(words))
        # Vitter's algorithm R: the n-th text takes a random place with probability sample / n.
        if len(sample) < settings.sample:
            sample.append(text)
        elif (place := chance.randrange(seen + 1)) < settings.sample:
            sample[place] = text
        seen += 1
        total += len(words)
        done(1, len(words))
    return counts, sample, seen, total


def _components(
    words: list[str], idf: Doubles, sample: list[str], settings: LSASettings
) -> tuple[Doubles, float]:
    """(dimensions, words) right singular vectors, and the share of variance that they hold."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(analyzer=lsa_words, vocabulary=words)
    vectorizer.idf_ = idf
    dimensions = min(settings.dimensions, len(words), len(sample))
    svd = TruncatedSVD(dimensions, random_state=settings.seed)
    svd.fit(vectorizer.transform(sample))
    return svd.components_, float(svd.explained_variance_ratio_.sum())
