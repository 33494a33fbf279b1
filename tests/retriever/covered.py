"""A calibration without learning: a hit is relevant if it holds the query's terms."""

from retriever import SearchSettings
from retriever.search.calibration import Calibration, feature_names, ranking_of


def by_coverage(mode, passages, **changes):
    """Probabilities are logistic(6 * coverage - 3), the threshold is 0.5."""
    names = ("constant", *feature_names(mode))
    weights = {**dict.fromkeys(names, 0.0), "constant": -3.0, "coverage": 6.0}
    values = {
        "mode": mode,
        "hit": weights,
        "query": {name: weights[name] for name in names[:-1]},
        "threshold": 0.5,
        "false_answers": 0.05,
        "questions": 100,
        "made": False,
        "passages": passages,
        "ranking": ranking_of(SearchSettings(), 0.6),
    }
    return Calibration(**values | changes)
