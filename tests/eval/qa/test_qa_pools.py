"""Scores of pools, the data to train on and to choose on, and what of them overlaps."""

from dataclasses import replace

import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from eval.datasets.question_set import Question
from eval.metrics.correlation import cosines
from eval.metrics.measures import evaluate
from eval.qa.pools import (
    WEIGHTS,
    DevScore,
    PoolBM25,
    RankBM25,
    best_fusion,
    embed_pairs,
    hold_out,
    pair_rows,
    training_set,
    without_overlap,
)
from eval.qa.result import SystemResult
from retriever.documents import Analyzer, AnalyzerSettings
from retriever.errors import BadInputError, ConfigError
from retriever.search import BM25Settings, FusionSettings
from tests.eval.qa.samples import made_set, runs_of, without_pools

PLAIN = Analyzer(AnalyzerSettings(language="none", terms="parts"))


def okapi(questions, **parameters):
    """Return the scores (pairs,) of rank-bm25."""
    reference = BM25Okapi([text.split() for text in questions.passages.values()], **parameters)
    row = {id_: number for number, id_ in enumerate(questions.passages)}
    return [
        reference.get_scores(question.text.split())[row[id_]]
        for question in questions.questions
        for id_ in question.candidates
    ]


def test_pool_bm25_uses_the_statistics_of_all_passages():
    questions = made_set()
    bm25 = PoolBM25(questions.passages, PLAIN, BM25Settings(variant="okapi"))
    scores, matches = bm25.scores(questions.questions)
    np.testing.assert_allclose(scores, okapi(questions, k1=1.2, b=0.75), atol=1e-12)
    shared = [
        bool(set(left.split()) & set(right.split()))
        for left, right in zip(*questions.pairs(), strict=True)
    ]
    assert matches.tolist() == shared


def test_hardest_returns_the_best_irrelevant_passages():
    passages = {"a": "x y z", "b": "x y", "c": "x", "d": "q"}
    bm25 = PoolBM25(passages, PLAIN)
    assert bm25.hardest("x y z", 2, {"a"}) == ["b", "c"]
    assert bm25.hardest("x y z", 5, set()) == ["a", "b", "c"]
    assert bm25.hardest("nothing", 5, set()) == []


class TestRankBM25:
    def test_rank_bm25_scores_equal_the_package_with_its_defaults(self):
        questions = made_set()
        bm25 = RankBM25(questions.passages, PLAIN)
        np.testing.assert_allclose(bm25.scores(questions.questions), okapi(questions), atol=1e-12)
        assert bm25.note == "BM25Okapi of rank-bm25 with k1 1.5, b 0.75, epsilon 0.25"

    def test_rank_bm25_orders_texts_by_score_then_id(self):
        bm25 = RankBM25({"b": "x y", "a": "x y", "c": "y y y", "d": "q", "e": "r"}, PLAIN)
        best = bm25.best("x", 4)
        assert [id_ for id_, _ in best] == ["a", "b", "c", "d"]
        assert best[0][1] == best[1][1] > best[2][1] == 0

    def test_rank_bm25_scores_texts_without_a_term_as_zero(self):
        bm25 = RankBM25({"a": "?", "b": "", "c": "x"}, PLAIN)
        questions = [Question("q", text, ("b", "a"), {}) for text in ("x", "?")]
        assert bm25.scores(questions).tolist() == [0] * 4
        assert bm25.scores([replace(questions[0], candidates=())]).tolist() == []
        assert bm25.best("y", 1) == [("a", 0)]


def test_pair_cosines_follow_the_order_of_the_pairs(fake_encoder):
    questions = made_set()
    scores = embed_pairs([fake_encoder], questions, None)[0].cosines()
    left, right = (fake_encoder.encode(texts) for texts in questions.pairs())
    np.testing.assert_allclose(scores, cosines(left, right), atol=5.1e-7)
    np.testing.assert_array_equal(scores, np.round(scores, 6))
    same = dict.fromkeys(questions.passages, "the same text")
    single = replace(questions, questions=questions.questions[:1], passages=same)
    assert len(set(embed_pairs([fake_encoder], single, None)[0].cosines())) == 1


class TestFusion:
    def test_best_fusion_tries_every_weight_and_prefers_the_greatest_on_ties(self):
        weights = []

        def quality(fusion):
            weights.append(fusion.alpha)
            return -abs(fusion.alpha - 0.325)

        assert best_fusion(quality) == FusionSettings(alpha=0.35)
        assert tuple(weights) == WEIGHTS
        assert best_fusion(lambda fusion: 1.0).alpha == 1.0


def rows(train, question, label):
    starts = getattr(train.pools, f"{label}_starts")
    passage_rows = getattr(train.pools, f"{label}s")[starts[question] : starts[question + 1]]
    return {train.passages[row] for row in passage_rows}


@pytest.mark.parametrize("negatives", ["pool", "hard", "random"])
def test_training_set_has_answers_as_positives_and_the_chosen_kind_of_negatives(negatives):
    questions = made_set(answered=0.5)
    texts = questions.passages
    # An answer outside the pool is a positive too.
    extra = next(id_ for id_ in texts if id_ not in questions.questions[0].candidates)
    first = replace(questions.questions[0], grades={extra: 1})
    questions = replace(questions, questions=(first, *questions.questions[1:]))
    bm25 = PoolBM25(texts, Analyzer())
    train = training_set(questions, negatives, lambda: bm25)
    used = questions.questions[:6]
    assert train.questions == [question.text for question in used]
    for number, question in enumerate(used):
        right = {id_ for id_, grade in question.grades.items() if grade}
        negative_ids = {
            "pool": set(question.candidates) - right,
            "hard": bm25.hardest(question.text, 50, right),
            "random": (),
        }[negatives]
        assert rows(train, number, "positive") == {texts[id_] for id_ in right}
        assert rows(train, number, "negative") == {texts[id_] for id_ in negative_ids}
    assert len(train.passages) == train.pools.passages
    if negatives == "random":
        assert train.passages == list(texts.values())


def test_hold_out_divides_questions_disjointly_and_repeatably():
    questions = made_set(count=20, answered=0.5)
    train, dev = hold_out(questions, 0.3)
    assert len(dev) == len(dev.answered()) == 3
    ids = [question.id for question in (*train.questions, *dev.questions)]
    assert sorted(ids) == sorted(question.id for question in questions.questions)
    assert len(train) == 17
    assert hold_out(questions, 0.3) == (train, dev)
    assert dev.split != train.split


def test_without_overlap_removes_questions_and_relevant_passages_of_other_sets():
    questions, other = made_set("train", count=8), made_set("test", count=3)
    texts = {id_: f"only here {id_}" for id_ in questions.passages}
    first = other.questions[0].text
    changed = list(questions.questions)
    changed[1] = replace(changed[1], text=f"  {first.upper()}?")
    (relevant,) = (id_ for id_, grade in changed[4].grades.items() if grade)
    (irrelevant,) = (id_ for id_, grade in changed[6].grades.items() if not grade)
    texts[relevant] = other.passages["d3"].replace(" ", ",\n") + "."
    texts[irrelevant] = other.passages["d4"]
    uses = [question.id for question in changed if question.grades.get(relevant)]
    training = replace(questions, questions=tuple(changed), passages=texts)
    remaining = without_overlap(training, [made_set("dev", count=2, seed=5), other])
    removed_ids = {changed[1].id, *uses}
    assert [question.id for question in remaining.questions] == [
        question.id for question in changed if question.id not in removed_ids
    ]
    assert changed[6].id not in removed_ids
    assert remaining.passages == training.passages


def test_the_dev_score_is_mean_average_precision_of_answered_questions():
    questions = made_set(answered=0.7)
    dev = DevScore(questions)
    scores = np.random.default_rng(0).integers(0, 4, len(dev.left)).astype(float)
    qrels = {question.id: question.grades for question in dev.questions.questions}
    (run,) = runs_of(SystemResult("made", dev.questions.questions, (scores,)))
    assert dev(scores) == pytest.approx(evaluate(run, qrels, ["AP"]).means["AP"], abs=1e-12)


def test_empty_training_or_dev_set_is_refused():
    for share in (0.0, 1.0, 0.01, 0.99):
        with pytest.raises(ConfigError, match="dev-share"):
            hold_out(made_set(count=10), share)
    with pytest.raises(BadInputError, match="--train-split"):
        training_set(made_set(answered=0), "pool", lambda: None)
    questions = made_set("dev")
    # No candidates, relevant ones alone, and others alone.
    for part in (slice(0), slice(1), slice(1, 2)):
        pools = (
            replace(question, candidates=tuple(question.grades)[part])
            for question in questions.questions
        )
        with pytest.raises(BadInputError, match=r"made dev: expected a .*--set dev-split"):
            DevScore(replace(questions, questions=tuple(pools)))


def test_overlap_counts_relevant_documents_but_not_unranked_passages(tmp_path):
    ours = made_set("test")
    corpus = without_pools(ours, tmp_path / "corpus.jsonl")
    renamed = tuple(replace(question, text=f"x {question.id}") for question in ours.questions)
    assert len(without_overlap(replace(ours, questions=renamed), [corpus])) == 0
    train, test = made_set("train"), made_set("test", count=1)
    unranked = {f"x{id_}": text for id_, text in train.passages.items()}
    merged = replace(test, passages={**unranked, **test.passages})
    assert len(without_overlap(train, [merged])) == len(train)


def test_pairs_of_a_question_use_its_own_part_of_a_passage():
    questions = made_set(count=2)
    first, second = questions.questions
    shared = first.candidates[0]
    second = replace(second, candidates=(shared,), grades={shared: 1})
    passage_parts = {(second.id, shared): "its own part"}
    pools = replace(questions, questions=(first, second), shown=passage_parts)
    left, right = pools.pairs()
    assert right[0] == questions.passages[shared]
    assert (left[-1], right[-1]) == (second.text, "its own part")
    texts, _, places = pair_rows(pools)
    assert [texts[place] for place in places] == right
    train = training_set(pools, "pool", lambda: pytest.fail("BM25 is not needed"))
    assert rows(train, 1, "positive") == {"its own part"}
