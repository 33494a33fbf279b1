import numpy as np
from eval.qa.lexical import PoolBM25
from rank_bm25 import BM25Okapi

from indexes.bm25.scoring import BM25Settings
from retriever.analyzer import Analyzer, AnalyzerSettings
from tests.eval.qa.samples import made_set

PLAIN = Analyzer(AnalyzerSettings(language="none"))


def test_pools_are_scored_with_the_statistics_of_all_passages():
    questions = made_set()
    reference = BM25Okapi([text.split() for text in questions.passages.values()], k1=1.2, b=0.75)
    row = {id_: number for number, id_ in enumerate(questions.passages)}
    wanted = [
        reference.get_scores(question.text.split())[row[one]]
        for question in questions.questions
        for one in question.candidates
    ]
    found, matches = PoolBM25(questions.passages, PLAIN, BM25Settings(variant="okapi")).scores(
        questions
    )
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    shared = [
        bool(set(left.split()) & set(right.split()))
        for left, right in zip(*questions.pairs(), strict=True)
    ]
    assert matches.tolist() == shared


def test_hard_negatives_are_the_best_passages_that_do_not_answer():
    passages = {"a": "x y z", "b": "x y", "c": "x", "d": "q"}
    bm25 = PoolBM25(passages, PLAIN)
    assert bm25.hardest("x y z", 2, {"a"}) == ["b", "c"]
    assert bm25.hardest("x y z", 5, set()) == ["a", "b", "c"]
    assert bm25.hardest("nothing", 5, set()) == []
