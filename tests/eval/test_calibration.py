"""Probabilities of relevance: what is promised, what is measured, and what an index keeps."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval import CalibrationSettings, calibrate, make_questions
from eval.calibration import abstention_area, calibration_error, conformal_threshold
from retriever import BadInputError, ConfigError, Document, Index, SearchSettings

pytest.importorskip("sklearn")
MODES = ("bm25", "dense", "hybrid")


@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.5, 0.9]) | st.floats(0, 1), min_size=21, max_size=60),
    st.sampled_from([0.05, 0.1, 0.3, 0.5]),
)
def test_at_most_the_promised_share_of_exchangeable_scores_reaches_the_threshold(scores, share):
    """Each score in turn is the new one: of all their orders, which are equally probable."""
    scores = np.array(scores)
    is_reached = [
        score >= conformal_threshold(np.delete(scores, place), share)
        for place, score in enumerate(scores)
    ]
    assert np.mean(is_reached) <= share + 1e-12


def test_conformal_threshold_is_the_lowest_that_keeps_the_promise():
    scores = np.arange(1, 20) / 20
    assert conformal_threshold(scores, 0.05) == np.nextafter(0.95, 1)
    assert conformal_threshold(scores, 0.5) == np.nextafter(0.5, 1)
    with pytest.raises(ConfigError, match=r"at least 19 questions .* found 18"):
        conformal_threshold(scores[1:], 0.05)


def test_calibration_error_matches_hand_values_and_simulation():
    probability = np.array([0.05, 0.05, 0.35, 0.35, 1.0])
    is_relevant = np.array([False, False, True, False, True])
    # Bins of 2, 2 and 1 with gaps of 0.05, 0.15 and 0.
    assert calibration_error(is_relevant, probability) == pytest.approx((2 * 0.05 + 2 * 0.15) / 5)
    random = np.random.default_rng(0)
    right = random.random(200_000)
    assert calibration_error(random.random(200_000) < right, right) < 0.005
    assert calibration_error(random.random(200_000) < right, right**2) > 0.1


def test_abstention_area_is_the_mean_accuracy_of_the_most_confident():
    random = np.random.default_rng(1)
    is_relevant, confidence = random.random(40) < 0.4, random.random(40)
    drawn = random.integers(0, 40, 40)
    weights = np.stack([np.ones(40), np.bincount(drawn, minlength=40)])
    for rows, area in zip(
        (np.arange(40), drawn), abstention_area(is_relevant, confidence, weights), strict=True
    ):
        sorted_rows = sorted(rows, key=lambda row: -confidence[row])
        # Rows that were drawn several times enter together.
        last = [
            max(j for j, other in enumerate(sorted_rows) if other == row) + 1 for row in sorted_rows
        ]
        assert area == pytest.approx(np.mean([is_relevant[sorted_rows[:j]].mean() for j in last]))


@pytest.fixture
def judged(fake_encoder, tmp_path):
    """An index of 240 documents, and 120 questions: words of a document and other words."""
    random = np.random.default_rng(0)
    words = [f"w{number}" for number in range(400)]
    documents = [
        {"id": f'd "{n}"', "text": " ".join(random.choice(words, 12, replace=False))}
        for n in range(240)
    ]
    queries, qrels = {}, {}
    for n in range(120):
        own = random.choice(documents[n]["text"].split(), random.integers(2, 7), replace=False)
        queries[f"q{n}"] = " ".join([*own, *random.choice(words, 3)])
        qrels[f"q{n}"] = {documents[n]["id"]: 1, "elsewhere": 1}
    with Index.create(tmp_path / "index") as index:
        index.add(documents)
        yield index, queries, qrels


@pytest.mark.parametrize("mode", MODES)
def test_hit_probabilities_equal_scikit_learn_and_keep_the_order_of_hits(judged, mode):
    from sklearn.linear_model import LogisticRegression

    index, queries, qrels = judged
    texts = list(queries.values())
    before = list(index.search_many(texts, k=20, mode=mode))
    first_three = list(index.search_many(texts, k=3, mode=mode))
    result = calibrate(index, queries, qrels, search=SearchSettings(mode=mode))
    assert list(index.search_many(texts, k=20, mode=mode)) == before
    index.keep_calibration(result.calibration)
    with Index.open(index.store) as reopened:
        after = list(reopened.search_many(texts, k=20, mode=mode))
        cut = list(reopened.search_many(texts, k=3, mode=mode))
    assert [[hit.id for hit in hits] for hits in after] == [[h.id for h in hits] for hits in before]
    assert [[hit.id for hit in hits] for hits in cut] == [
        [hit.id for hit in hits] for hits in first_three
    ]
    hits_by_id = [{hit.id: hit for hit in hits} for hits in after]
    assert cut == [
        [replace(by_id[hit.id], rank=hit.rank) for hit in hits]
        for by_id, hits in zip(hits_by_id, cut, strict=True)
    ]
    features = [
        index.hit_features(text, hits, mode) for text, hits in zip(texts, before, strict=True)
    ]
    for coefficients, own, probabilities in (
        (result.calibration.hit, features, [[h.probability for h in hits[:10]] for hits in after]),
        (
            result.calibration.query,
            [rows[:, :-1].max(axis=0, keepdims=True) for rows in features],
            [[hits[0].answer_probability] for hits in after],
        ),
    ):
        constant, *weights = coefficients.values()
        model = LogisticRegression().fit(np.eye(len(weights)), np.arange(len(weights)) % 2)
        model.coef_, model.intercept_ = np.array([weights]), np.array([constant])
        expected = model.predict_proba(np.concatenate(own))[:, 1]
        np.testing.assert_allclose(np.concatenate(probabilities), expected)
    assert all(hit.probability is None for hits in after for hit in hits[10:])
    # Others are as before.
    other = next(candidate for candidate in MODES if candidate != mode)
    assert index.search(texts[0], mode=other)[0].probability is None
    assert index.answer(index.search(texts[0], mode=other), mode=other) is None


def test_outdated_calibration_gives_a_warning(judged):
    index, queries, qrels = judged
    index.keep_calibration(calibrate(index, queries, qrels).calibration)
    text = queries["q0"]

    def warning(**keywords):
        return index.answer(index.search(text, **keywords), **keywords).warning

    assert warning() is None
    assert warning(k=3) is None
    assert warning(alpha=0.6) is None
    assert "other settings of fusion or BM25" in warning(alpha=0.3)
    assert "other settings of fusion or BM25" in warning(k1=2.0)
    index.add([{"id": str(n), "text": f"w{n} w{n + 1}"} for n in range(40)])
    assert warning() is None
    index.add([{"id": str(n), "text": f"w{n} w{n + 1}"} for n in range(40, 60)])
    assert "of 240 passages, and the index has 300" in warning()


def test_calibration_with_few_questions_or_wrong_judgments_is_refused(judged):
    index, queries, qrels = judged
    with pytest.raises(BadInputError, match=r"at least 250 .* at most 1.0% .* found 120 among 120"):
        calibrate(index, queries, qrels, CalibrationSettings(false_answers=0.01))
    with pytest.raises(BadInputError, match=r"at least 100 .*, found 0 among 120; give more"):
        calibrate(index, queries, {query: {"elsewhere": 1, 'd "0"': 0} for query in queries})
    wrong = {query: {'d "239"': 1} for query in queries}
    with pytest.raises(BadInputError, match="among the first 10 hits of a question, found none"):
        calibrate(
            index, dict.fromkeys(queries, "nothing"), wrong, search=SearchSettings(mode="bm25")
        )


@pytest.mark.parametrize("mode", MODES)
def test_calibration_is_refused_if_every_hit_is_relevant(judged, mode):
    index, queries, _ = judged
    every = {document.id: 1 for document in index}
    with pytest.raises(
        BadInputError, match=r"irrelevant documents among the first 10 hits, found none"
    ):
        calibrate(index, queries, dict.fromkeys(queries, every), search=SearchSettings(mode=mode))


def test_calibration_with_made_questions_is_refused_if_judged_ones_find_nothing(judged):
    index, queries, _ = judged
    random = np.random.default_rng(1)
    index.add(
        Document(
            f"made {n}", ". ".join(f"A{n} {x} b{n} {x}" for x in random.permutation(9)), f"t {n}"
        )
        for n in range(120)
    )
    questions = make_questions(index)
    wrong = {query: {'d "239"': 1} for query in queries}
    nothing = dict.fromkeys(queries, "nothing")
    with pytest.raises(BadInputError, match="among the first 10 hits of a question, found none"):
        calibrate(index, nothing, wrong, made=questions, search=SearchSettings(mode="bm25"))


@pytest.mark.parametrize("mode", MODES)
def test_calibration_of_equal_scores_has_finite_figures(fake_encoder, tmp_path, mode):
    queries = {f"q{n}": "the same words" for n in range(110)}
    with Index.create(tmp_path / "index") as index:
        index.add({"id": str(n), "text": "the same words"} for n in range(110))
        qrels = {f"q{n}": {str(n): 1} for n in range(110)}
        result = calibrate(index, queries, qrels, search=SearchSettings(mode=mode))
    json.dumps(result.to_json(), allow_nan=False)
    assert result.figures["promises"]["0.05"]["false_answers"] <= 0.05


def test_calibration_report_begins_with_the_share_of_withheld_answers(judged):
    index, queries, qrels = judged
    result = calibrate(index, queries, qrels, CalibrationSettings(false_answers=0.07))
    promise = result.figures["promises"]["0.07"]
    answerable = round(result.figures["found"] * len(queries))
    first = result.text().splitlines()[1].strip()
    assert first.startswith(
        f"answers withheld: with at most 7.0% false answers, {100 * promise['answered']:.2f}% ("
    )
    assert f"of the {answerable} questions with a relevant hit are answered" in first


def test_calibration_keeps_the_promise_with_small_calibration_error(judged):
    index, queries, qrels = judged
    result = calibrate(index, queries, qrels)
    figures = json.loads(json.dumps(result.to_json()))
    for promise, outcome in figures["promises"].items():
        assert outcome["false_answers_interval"][0] <= float(promise)
    area = figures["area"].pop("probability")["area"]
    assert all(area >= confidence["area"] for confidence in figures["area"].values())
    for calibration in figures["calibration_error"].values():
        assert calibration["error"] < 0.1
    assert "Area under accuracy against abstention" in result.text()
