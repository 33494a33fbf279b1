"""Probabilities of relevance that an index was given: features by hand, answers, damage."""

import math

import numpy as np
import pytest

from retriever import ConfigError, Index
from retriever.search.calibration import Calibration, feature_names
from tests.retriever.covered import by_coverage

TEXTS = {"a": "red apples", "b": "red pears and plums", "c": "green pears", "d": "blue skies"}


@pytest.fixture
def index(tmp_path, fake_encoder):
    with Index.create(tmp_path / "index", language="none") as index:
        index.add({"id": id_, "text": text} for id_, text in TEXTS.items())
        yield index


def test_features_are_those_that_their_docstring_names(index):
    hits = index.search("red pears unheard", mode="bm25")
    assert [hit.id for hit in hits] == ["b", "a", "c"]
    idf = {
        term: math.log(1 + (4 - df + 0.5) / (df + 0.5))
        for term, df in (("red", 2), ("pears", 2), ("unheard", 0))
    }
    total = sum(idf.values())
    share = np.array([hit.bm25 for hit in hits]) / total
    wanted = {
        "bm25": share,
        # Ten hits are wanted: nine others, of which seven have nothing.
        "bm25_margin": share - (share.sum() - share) / 9,
        "coverage": np.array([idf["red"] + idf["pears"], idf["red"], idf["pears"]]) / total,
        "log_rank": np.log([1, 2, 3]),
    }
    found = index.hit_features("red pears unheard", hits, "bm25")
    assert feature_names("bm25") == tuple(wanted)
    np.testing.assert_allclose(found, np.stack(list(wanted.values()), axis=1))
    hits = index.search("red pears")
    columns = index.hit_features("red pears", hits, "hybrid").T
    found = dict(zip(feature_names("hybrid"), columns, strict=True))
    dense = np.array([hit.dense for hit in hits])
    np.testing.assert_allclose(found["dense"], dense)
    np.testing.assert_allclose(found["dense_margin"], dense - (dense.sum() - dense) / 3)
    ranks = [(1 / hit.dense_rank + (1 / hit.bm25_rank if hit.bm25_rank else 0)) / 2 for hit in hits]
    np.testing.assert_allclose(found["agreement"], ranks)


def test_answer_needs_probability_of_threshold(index):
    assert index.answer(index.search("red pears")) is None
    index.keep_calibration(by_coverage("hybrid", passages=4))
    best, *rest = index.search("red pears")
    sure, unsure = 1 / (1 + math.exp(-3)), 1 / (1 + math.exp(3))
    assert best.probability == best.answer_probability == pytest.approx(sure)
    assert {hit.answer_probability for hit in rest} == {best.answer_probability}
    assert index.answer([best, *rest]) == (True, best.answer_probability, None)
    assert index.answer([best], least=0.96) == (False, best.answer_probability, None)
    lost = index.search("unheard")
    assert index.answer(lost)[:2] == (False, pytest.approx(unsure))
    assert index.answer(lost, least=0.0).has_answer
    assert index.answer([]) == (False, 0.0, None)
    assert not index.answer([], least=0.0).has_answer
    # Hits that were not judged.
    assert index.answer(index.more_like("a")) is None
    with pytest.raises(ConfigError, match="for the mode dense; learn them with `retriever calib"):
        index.answer(index.search("red", mode="dense"), mode="dense", least=0.5)


def test_calibration_of_another_release_is_ignored(index):
    learned = by_coverage("hybrid", passages=4)
    index.keep_calibration(learned)
    index.keep_calibration(by_coverage("bm25", passages=4))
    assert index.search("red", mode="bm25")[0].probability is not None
    with index._opened.view() as view:
        assert Calibration.read(view, "hybrid") == learned
    other = {**learned.query, "another": 1.0}
    index.keep_calibration(by_coverage("hybrid", passages=4, query=other))
    assert index.search("red")[0].probability is None
    assert index.answer(index.search("red")) is None
