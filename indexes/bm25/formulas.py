"""The BM25 variants: their settings and formulas.

Let f be the frequency of a term in a passage, df the number of live passages that hold the term, N
the number of live passages, and L = 1 - b + b * length / mean length. The score of a passage is the
sum of idf * weight over the terms of the query that it holds, repeated terms included:

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

The first five are from Kamphuis, de Vries, Boytsov and Lin, "Which BM25 Do You Mean? A Large-Scale
Reproducibility Study of Scoring Variants" (ECIR 2020). The idf of robertson is at least zero, as in
bm25s. bm25+ is from Lv and Zhai, "Lower-Bounding Term Frequency Normalization" (CIKM 2011), and
bm25l from their "When Documents Are Very Long, BM25 Fails!" (SIGIR 2011). As in these papers, terms
that a passage does not hold add nothing. bm25s and rank-bm25 add the weight at f = 0, so that bm25+
ranks as if delta were zero. okapi is BM25Okapi of rank-bm25: epsilon times the mean idf of the
whole vocabulary replaces an idf below zero, and can itself be negative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from indexes.settings import Checked, setting

if TYPE_CHECKING:
    # Imported where it is used at run time, so that help pages load without it.
    import numpy as np
    from numpy.typing import NDArray

# The first character of a term that comes from a label of the document, such as the name of its
# file, and not from the text. The more frequent of label and text gives the idf. So a name that all
# files share counts nothing, and a rare name counts no more than the word in a text.
LABEL = "\x1f"
# The weight of a word in a label, relative to the same word in a text.
LABEL_WEIGHT = 0.6

BM25Variant = Literal["lucene", "robertson", "atire", "bm25+", "bm25l", "okapi"]
# Used if the settings name no delta; see Lv and Zhai.
_DEFAULT_DELTAS = {"bm25+": 1.0, "bm25l": 0.5}


@dataclass(frozen=True, slots=True)
class BM25Settings(Checked):
    """The settings of BM25, chosen for each query and not stored in the postings.

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

    variant: BM25Variant = setting("lucene", "Formula of BM25.")
    k1: float = setting(1.2, "BM25: saturation of term frequency.", low=0)
    b: float = setting(0.75, "BM25: strength of normalization by passage length.", low=0, high=1)
    delta: float | None = setting(None, "BM25: constant in favor of long passages.", low=0)
    epsilon: float = setting(
        0.25, "BM25: share of the mean idf that replaces a negative idf.", low=0
    )


def idf(variant: BM25Variant, df: int, passages: int) -> float:
    """Return the idf of a term that `df` of `passages` passages hold, 1 <= df <= passages.

    Only the idf of okapi can be negative. The caller replaces it, which needs the whole vocabulary.
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
    """Return the mean okapi idf of a vocabulary from its (terms,) document frequencies, 1 or more.

    Terms of equal frequency are added together, the least frequent first. So the sum does not
    depend on the order of the terms, nor on how the index is stored.
    """
    import numpy as np

    df, terms = np.unique(frequencies, return_counts=True)
    values = np.log((passages - df + 0.5) / (df + 0.5))
    return float((terms * values).sum() / len(frequencies))


class Formula(NamedTuple):
    """The numbers that weights are computed from, here and in `inner_loops.c`."""

    is_lifted: bool  # whether delta is added to the normalized frequency, as in bm25l
    slope: float
    constant: float
    k1: float
    scale: float
    delta: float


def make_formula(settings: BM25Settings, mean_length: float) -> Formula:
    """Return the formula of a variant; `mean_length` is 0 if no passage holds a term."""
    variant = settings.variant
    k1 = settings.k1
    b = settings.b
    delta = settings.delta
    default_delta = _DEFAULT_DELTAS.get(variant, 0.0)
    return Formula(
        variant == "bm25l",
        b / (mean_length or 1),
        1 - b,
        k1,
        1.0 if variant in ("lucene", "robertson") else k1 + 1,
        delta if variant in _DEFAULT_DELTAS and delta is not None else default_delta,
    )


def weights(
    formula: Formula, frequencies: NDArray[np.unsignedinteger], lengths: NDArray[np.uint32]
) -> NDArray[np.float64]:
    """Return (m,) weights of a term in m passages that hold it `frequencies` times."""
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
