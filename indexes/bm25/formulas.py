"""The BM25 variants: their settings and formulas.

With f the frequency of a term in a passage, df the number of live passages that hold it, N the
number of live passages, L = 1 - b + b * length / mean length, a passage scores the sum over the
query's terms that it holds, each as often as the query repeats it, of idf * weight:

=========  ============================  =========================================================
variant    idf                           weight
=========  ============================  =========================================================
lucene     ln(1 + (N-df+0.5)/(df+0.5))   f / (f + k1*L)
robertson  ln((N-df+0.5)/(df+0.5)), >=0  f / (f + k1*L)
atire      ln(N/df)                      (k1+1)*f / (f + k1*L)
bm25+      ln((N+1)/df)                  (k1+1)*f / (f + k1*L) + delta
bm25l      ln((N+1)/(df+0.5))            (k1+1)*(f/L + delta) / (k1 + f/L + delta)
okapi      ln((N-df+0.5)/(df+0.5))       (k1+1)*f / (f + k1*L)
=========  ============================  =========================================================

The first five are those of Kamphuis, de Vries, Boytsov and Lin, "Which BM25 Do You Mean? A
Large-Scale Reproducibility Study of Scoring Variants" (ECIR 2020), with robertson's idf floored
at zero as in bm25s. bm25+ is from Lv and Zhai, "Lower-Bounding Term Frequency Normalization"
(CIKM 2011), bm25l from their "When Documents Are Very Long, BM25 Fails!" (SIGIR 2011); as there,
terms that a passage does not hold add nothing (bm25s and rank-bm25 add the weight at f = 0, which
makes bm25+ rank as if delta were zero). okapi is rank-bm25's BM25Okapi: an idf below zero is
replaced by epsilon times the mean idf of the whole vocabulary, which can itself be negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from indexes.settings import Checked, setting

if TYPE_CHECKING:
    # At run time it is imported where it is used, so that help pages load without it.
    import numpy as np
    from numpy.typing import NDArray

# A term of a passage that begins so is not of its text but of a label of its document, such as the
# name of the file. Its idf is that of the more frequent of the two, so that a name that all files
# share counts nothing, and a rare name no more than the word in a text.
LABEL = "\x1f"
# A word of a label counts so much beside the same word of a text.
LABEL_WEIGHT = 0.6

BM25Variant = Literal["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]
_DELTA = {"bm25+": 1.0, "bm25l": 0.5}


@dataclass(frozen=True, slots=True)
class BM25Settings(Checked):
    """How BM25 scores; chosen for each query, not stored in the postings.

    Attributes:
        variant: ``lucene``, ``robertson``, ``atire``, ``bm25+``, ``bm25l`` (Kamphuis et al.,
            ECIR 2020) or ``okapi`` (rank-bm25's `BM25Okapi`).
        k1: saturation of term frequencies, 0 or more; the higher, the more repetitions count
            (the default of rank-bm25 is 1.5).
        b: length normalization, from 0 (none) to 1 (full).
        delta: constant in favor of long passages, 0 or more: added to the weight in ``bm25+``
            (None: 1.0), to the normalized frequency in ``bm25l`` (None: 0.5).
        epsilon: for ``okapi``, 0 or more: replaces a negative idf by epsilon times the mean idf.

    Raises:
        ConfigError: a value is out of range.
    """

    variant: BM25Variant = setting("lucene", "BM25: formula.")
    k1: float = setting(1.2, "BM25: saturation of term frequency.", low=0)
    b: float = setting(0.75, "BM25: normalization by passage length.", low=0, high=1)
    delta: float | None = setting(None, "BM25: constant in favor of long passages.", low=0)
    epsilon: float = setting(
        0.25, "BM25: share of the mean idf that replaces a negative idf.", low=0
    )


def idf(variant: BM25Variant, df: int, passages: int) -> float:
    """The variant's idf of a term in `df` of `passages` passages, 1 <= df <= passages.

    Only okapi's can be negative: the caller replaces it, which needs the whole vocabulary.
    """
    odds = (passages - df + 0.5) / (df + 0.5)
    match variant:
        case "lucene":
            return math.log(1 + odds)
        case "robertson":
            return max(math.log(odds), 0.0)
        case "atire":
            return math.log(passages / df)
        case "bm25+":
            return math.log((passages + 1) / df)
        case "bm25l":
            return math.log((passages + 1) / (df + 0.5))
        case "okapi":
            return math.log(odds)


def mean_okapi_idf(frequencies: NDArray[np.int64], passages: int) -> float:
    """The mean of okapi's idf over a vocabulary, of (terms,) document frequencies of 1 or more.

    Terms of one frequency are added as one, the least frequent first: the sum does not depend on
    the order of the terms, and so not on how the index is divided or stored.
    """
    import numpy as np

    df, terms = np.unique(frequencies, return_counts=True)
    values = np.log((passages - df + 0.5) / (df + 0.5))
    return float((terms * values).sum() / len(frequencies))


class Formula(NamedTuple):
    """What weights are computed from, here and in `inner_loops.c`."""

    is_lifted: bool  # whether delta is added to the normalized frequency, as in BM25L
    slope: float
    constant: float
    k1: float
    scale: float
    delta: float


def formula_of(settings: BM25Settings, mean_length: float) -> Formula:
    """The formula of a variant; `mean_length` is 0 where no passage holds a term."""
    variant = settings.variant
    k1 = settings.k1
    b = settings.b
    delta = settings.delta
    usual = _DELTA.get(variant, 0.0)
    return Formula(
        variant == "bm25l",
        b / (mean_length or 1),
        1 - b,
        k1,
        1.0 if variant in ("lucene", "robertson") else k1 + 1,
        delta if variant in _DELTA and delta is not None else usual,
    )


def weights(
    formula: Formula, frequencies: NDArray[np.unsignedinteger], lengths: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """(m,) float64: the weight of a term in m passages that hold it `frequencies` times."""
    import numpy as np

    is_lifted, slope, constant, k1, scale, delta = formula
    norm = lengths * slope
    norm += constant
    if is_lifted:
        lifted = frequencies / norm + delta
        return np.asarray(scale * lifted / (k1 + lifted))
    norm *= k1
    norm += frequencies
    saturated: NDArray[np.float64] = np.divide(frequencies, norm, out=norm)
    saturated *= scale
    saturated += delta
    return saturated
