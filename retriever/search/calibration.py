"""Probabilities that a hit is relevant, and that a query has any relevant hit.

`eval.calibration` learns the coefficients from questions. An index stores them as JSON for each
mode of ranking. A search applies them to its first `HITS` hits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from indexes import Mode
from indexes.bm25 import Expansion, Term, idf, plain_terms
from indexes.filters import written_value
from retriever.search.settings import CALIBRATION, DEFAULT_WEIGHT, FIT, SearchSettings

if TYPE_CHECKING:
    from indexes import View
    from retriever.documents.analyzer import Analyzer
    from retriever.search.engine import Hit

Floats = NDArray[np.float64]
# Number of first hits that get probabilities.
HITS = 10
# A calibration is out of date if the number of passages has changed by more than this share.
_LARGEST_CHANGE = 0.2
# The component scores of each mode.
_COMPONENTS: Mapping[Mode, tuple[Mode, ...]] = {
    "dense": ("dense",),
    "bm25": ("bm25",),
    "hybrid": ("dense", "bm25"),
}


class Answer(NamedTuple):
    """Whether the hits of a query hold an answer."""

    # Whether `probability` reaches the threshold.
    has_answer: bool
    # In [0, 1], of a relevant document among the first ten hits.
    probability: float
    # Reason why the probabilities may be out of date; None if there is no such reason.
    warning: str | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """Coefficients that were learned for a mode of ranking."""

    mode: Mode
    # Coefficients of two logistic regressions, by feature and "constant": whether a hit is
    # relevant, and whether one of the first ten hits of a query is.
    hit: Mapping[str, float]
    query: Mapping[str, float]
    # Least probability at which a query counts as answered.
    threshold: float
    # Maximum share of false answers: queries without a relevant document that reach the threshold.
    # It holds for queries that are exchangeable with the questions.
    false_answers: float
    # Number of questions.
    questions: int
    # Whether the questions were made from the documents.
    made: bool
    # Number of passages when this was learned.
    passages: int
    # Settings of fusion and BM25 when this was learned.
    ranking: Mapping[str, Any]

    @classmethod
    def read(cls, view: View, mode: Mode) -> Self | None:
        """Return the calibration of an index; None without one, or from another release."""
        stored = view.setting(CALIBRATION, {}).get(mode)
        names = ("constant", *feature_names(mode))
        if stored is None or stored.keys() != {field.name for field in fields(cls)}:
            return None
        if stored["hit"].keys() != {*names} or stored["query"].keys() != {*names[:-1]}:
            return None
        hit = {name: stored["hit"][name] for name in names}
        query = {name: stored["query"][name] for name in names[:-1]}
        return cls(**{**stored, "hit": hit, "query": query})

    def judge(
        self,
        hits: Sequence[Hit],
        ranking: Sequence[Hit],
        terms: Sequence[Term],
        view: View,
        analyzer: Analyzer,
    ) -> list[Hit]:
        """Return the hits with probabilities.

        Args:
            hits: the hits, which may be fewer or more than ten.
            ranking: the first ten hits of the query, before hits were collapsed.
            terms: the terms of the query.
            view: the index.
            analyzer: the analyzer of the index.
        """
        if not hits:
            return []
        features = hit_features(ranking, terms, view, analyzer, self.mode)
        ids = [hit.id for hit in ranking]
        by_id = dict(zip(ids, probabilities(self.hit, features).tolist(), strict=True))
        (answer,) = probabilities(self.query, query_features(features)[None]).tolist()
        return [
            replace(hit, probability=by_id.get(hit.id), answer_probability=answer) for hit in hits
        ]

    def answer(
        self, hits: Sequence[Hit], view: View, settings: SearchSettings, least: float | None
    ) -> Answer:
        """Decide whether hits with probabilities hold an answer; `least` replaces the threshold."""
        probability = (hits[0].answer_probability if hits else None) or 0.0
        threshold = self.threshold if least is None else least
        has_answer = bool(hits) and probability >= threshold
        return Answer(has_answer, probability, self._describe_change(view, settings))

    def _describe_change(self, view: View, settings: SearchSettings) -> str | None:
        """Describe why the calibration is out of date; None if it is not."""
        passages = view.passage_count
        weight = view.setting(FIT, {}).get("weight", DEFAULT_WEIGHT)
        if abs(passages - self.passages) > _LARGEST_CHANGE * self.passages:
            change = f"of {self.passages:,} passages, and the index has {passages:,}"
        elif ranking_of(settings, weight) != self.ranking:
            change = "with other settings of fusion or BM25"
        else:
            return None
        return f"probabilities were learned {change}; learn them again with `retriever calibrate`"


def ranking_of(settings: SearchSettings, weight: float) -> dict[str, Any]:
    """Return the settings that scores depend on, as JSON values.

    `weight` is the default weight of the dense component in the index.
    """
    fusion = settings.fusion.completed(weight)
    return {"fusion": asdict(fusion), "bm25": asdict(settings.bm25)}


def feature_names(mode: Mode) -> tuple[str, ...]:
    """Return the columns of `hit_features`; `query_features` has all but the last."""
    components = _COMPONENTS[mode]
    scores = [name for component in components for name in (component, f"{component}_margin")]
    return (*scores, "coverage", *(["agreement"] if mode == "hybrid" else []), "log_rank")


def hit_features(
    hits: Sequence[Hit], terms: Sequence[Term], view: View, analyzer: Analyzer, mode: Mode
) -> Floats:
    """Compute the features of the first ten hits of a query.

    Returns:
        (hits, features) float64, with the columns of `feature_names`:

        - the cosine, and its difference from the mean of the other hits;
        - BM25 as a share of the query's sum of idf, and its difference from the mean of nine other
          hits, where missing hits count as 0;
        - the share of the query's idf of the terms that the hit holds;
        - the mean of the reciprocal ranks by both components;
        - the natural logarithm of the rank.
    """
    top_hits = hits[:HITS]
    frequencies = view.document_frequencies(terms)
    weights = {
        term: idf("lucene", df, view.passage_count)
        * (term.weight if isinstance(term, Expansion) else 1)
        for term, df in frequencies.items()
    }
    total_weight = sum(weights.values()) or 1.0
    columns = []
    for component in _COMPONENTS[mode]:
        scores = np.array([getattr(hit, component) for hit in top_hits], np.float64)
        other_hits = len(scores) - 1
        if component == "bm25":
            scores = scores / total_weight
            other_hits = HITS - 1
        columns += [scores, scores - (scores.sum() - scores) / max(other_hits, 1)]
    languages = view.setting("languages", {})
    texts = [f"{hit.title or ''} {hit.passage}" for hit in top_hits]
    names = plain_terms(weights).keys()
    terms_of_hits = [
        names & {term for term, _, _ in analyzer.spans(text, names, languages)} for text in texts
    ]
    covered_weights = [
        sum(weight for term, weight in weights.items() if _has_term(terms_of_hit, term))
        for terms_of_hit in terms_of_hits
    ]
    columns.append(np.array(covered_weights) / total_weight)
    if mode == "hybrid":
        ranks = [(hit.dense_rank, hit.bm25_rank) for hit in top_hits]
        columns.append(np.array([sum(1 / rank for rank in pair if rank) / 2 for pair in ranks]))
    columns.append(np.log([hit.rank for hit in top_hits]))
    return np.stack(columns, axis=1)


def _has_term(names: frozenset[str] | set[str], term: Term) -> bool:
    """Return whether a text with the terms `names` has a term, or an alternative of it."""
    if isinstance(term, Expansion):
        return any(names.issuperset(alternative) for alternative in term.alternatives)
    return term in names


def query_features(features: Floats) -> Floats:
    """Return (features - 1,): the greatest value of each column of `hit_features` but the last."""
    maxima: Floats = features[:, :-1].max(axis=0)
    return maxima


def exclude_ids(ids: Sequence[str]) -> str:
    """Return the filter for all documents but these."""
    return f"not (id in ({', '.join(map(written_value, ids))}))"


def probabilities(coefficients: Mapping[str, float], features: Floats) -> Floats:
    """Return (n,) probabilities of a logistic regression.

    Args:
        coefficients: ``constant`` first, then one for each column in order.
        features: (n, columns).
    """
    constant, *weights = coefficients.values()
    # The logistic function, without overflow.
    values: Floats = (1 + np.tanh((features @ np.array(weights) + constant) / 2)) / 2
    return values
