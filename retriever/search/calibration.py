"""How probable it is that a hit is relevant, and that a query has any relevant hit.

`eval.calibration` learns the coefficients from questions; an index keeps them as JSON, for each
mode of ranking, and a search applies them to its first `HITS` hits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from indexes import Expansion, Mode, Term, idf, plain_terms, written_value
from retriever.search.settings import CALIBRATION, DEFAULT_WEIGHT, FIT, SearchSettings

if TYPE_CHECKING:
    from indexes import View
    from retriever.documents.analyzer import Analyzer
    from retriever.search.engine import Hit

Floats = NDArray[np.float64]
HITS = 10
# What was learned is out of date if the number of passages has changed by more than this share.
_CHANGED = 0.2
_COMPONENTS: Mapping[Mode, tuple[Mode, ...]] = {
    "dense": ("dense",),
    "bm25": ("bm25",),
    "hybrid": ("dense", "bm25"),
}


class Answer(NamedTuple):
    """Whether the hits of a query hold an answer."""

    # Whether `probability` reaches the threshold.
    has_answer: bool
    # Of a relevant document among the first ten hits.
    probability: float
    # Why the probabilities may be wrong by now.
    warning: str | None


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was learned for a mode of ranking."""

    mode: Mode
    # Coefficients of logistic regressions by feature, and for "constant": that a hit is relevant,
    # and that one of the first ten hits of a query is.
    hit: Mapping[str, float]
    query: Mapping[str, float]
    # The least probability with which a query counts as answered.
    threshold: float
    # The share of queries without a relevant document that reach it, at most, if they are
    # exchangeable with the questions.
    false_answers: float
    questions: int
    # Whether the questions were made from the documents.
    made: bool
    # Of the index then.
    passages: int
    # The settings of fusion and BM25.
    ranking: Mapping[str, Any]

    @classmethod
    def read(cls, view: View, mode: Mode) -> Self | None:
        """What an index has for a mode; None if nothing, or what another release learned."""
        stored = view.setting(CALIBRATION, {}).get(mode)
        names = ("constant", *feature_names(mode))
        if stored is None or stored.keys() != {one.name for one in fields(cls)}:
            return None
        if stored["hit"].keys() != {*names} or stored["query"].keys() != {*names[:-1]}:
            return None
        hit = {name: stored["hit"][name] for name in names}
        query = {name: stored["query"][name] for name in names[:-1]}
        return cls(**{**stored, "hit": hit, "query": query})

    def judged(
        self,
        hits: Sequence[Hit],
        first: Sequence[Hit],
        terms: Sequence[Term],
        view: View,
        analyzer: Analyzer,
    ) -> list[Hit]:
        """The same hits with their probabilities, by the first ten hits of the query."""
        if not hits:
            return []
        features = hit_features(first, terms, view, analyzer, self.mode)
        ids = [hit.id for hit in first]
        of_hits = dict(zip(ids, probabilities(self.hit, features).tolist(), strict=True))
        (of_query,) = probabilities(self.query, query_features(features)[None]).tolist()
        return [
            replace(hit, probability=of_hits.get(hit.id), answer_probability=of_query)
            for hit in hits
        ]

    def answer(
        self, hits: Sequence[Hit], view: View, settings: SearchSettings, least: float | None
    ) -> Answer:
        """Whether hits that were judged, all or the first of them, hold an answer."""
        probability = (hits[0].answer_probability if hits else None) or 0.0
        change = None
        passages = view.passage_count
        weight = view.setting(FIT, {}).get("weight", DEFAULT_WEIGHT)
        if abs(passages - self.passages) > _CHANGED * self.passages:
            change = f"of {self.passages:,} passages, and the index has {passages:,}"
        elif ranking_of(settings, weight) != self.ranking:
            change = "with other settings of fusion or BM25"
        again = f"probabilities were learned {change}; learn them again with `retriever calibrate`"
        enough = probability >= (self.threshold if least is None else least)
        return Answer(bool(hits) and enough, probability, again if change else None)


def ranking_of(settings: SearchSettings, weight: float) -> dict[str, Any]:
    """The settings that scores depend on, as JSON values; `weight` is the index's default."""
    fusion = settings.fusion.completed(weight)
    return {"fusion": asdict(fusion), "bm25": asdict(settings.bm25)}


def feature_names(mode: Mode) -> tuple[str, ...]:
    """The columns of `hit_features`; all but the last are those of `query_features`."""
    scores = [name for one in _COMPONENTS[mode] for name in (one, f"{one}_margin")]
    return (*scores, "coverage", *(["agreement"] if mode == "hybrid" else []), "log_rank")


def hit_features(
    hits: Sequence[Hit], terms: Sequence[Term], view: View, analyzer: Analyzer, mode: Mode
) -> Floats:
    """What tells whether the first ten hits of a query are relevant.

    Returns:
        (hits, features) float64, the columns by `feature_names`: the cosine, and its difference
        from the mean of the other hits; BM25 as a share of the query's sum of idf, and its
        difference from the others, of which those that are missing count as 0; the share of the
        query's idf of the terms that the hit holds; the mean of the reciprocal ranks by both
        components; the logarithm of the rank.
    """
    first = hits[:HITS]
    held = view.document_frequencies(terms)
    weights = {
        term: idf("lucene", df, view.passage_count)
        * (term.weight if isinstance(term, Expansion) else 1)
        for term, df in held.items()
    }
    total = sum(weights.values()) or 1.0
    columns = []
    for one in _COMPONENTS[mode]:
        scores = np.array([getattr(hit, one) for hit in first], np.float64)
        others = len(scores) - 1
        if one == "bm25":
            scores = scores / total
            others = HITS - 1
        columns += [scores, scores - (scores.sum() - scores) / max(others, 1)]
    languages = view.setting("languages", {})
    texts = [f"{hit.title or ''} {hit.passage}" for hit in first]
    names = plain_terms(weights).keys()
    terms_of_hits = [
        names & {term for term, _, _ in analyzer.spans(text, names, languages)} for text in texts
    ]
    columns.append(
        np.array(
            [
                sum(weight for term, weight in weights.items() if _holds(names, term)) / total
                for names in terms_of_hits
            ]
        )
    )
    if mode == "hybrid":
        ranks = [(hit.dense_rank, hit.bm25_rank) for hit in first]
        columns.append(np.array([sum(1 / rank for rank in pair if rank) / 2 for pair in ranks]))
    columns.append(np.log([hit.rank for hit in first]))
    return np.stack(columns, axis=1)


def _holds(names: frozenset[str] | set[str], term: Term) -> bool:
    """Whether a text with some terms holds a term, or an alternative of an expansion."""
    if isinstance(term, Expansion):
        return any(names.issuperset(alternative) for alternative in term.alternatives)
    return term in names


def query_features(features: Floats) -> Floats:
    """The greatest value of each column of `hit_features` but the last, in any of the hits."""
    best: Floats = features[:, :-1].max(axis=0)
    return best


def leaving_out(ids: Sequence[str]) -> str:
    """The filter for all documents but these."""
    return f"not (id in ({', '.join(map(written_value, ids))}))"


def probabilities(coefficients: Mapping[str, float], features: Floats) -> Floats:
    """(n,) of a logistic regression, with ``constant`` first and the columns in order."""
    constant, *weights = coefficients.values()
    # The logistic function, without overflow.
    found: Floats = (1 + np.tanh((features @ np.array(weights) + constant) / 2)) / 2
    return found
