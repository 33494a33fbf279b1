"""Tuning: values are those of an index, no choice sees what it is tested on, and runs continue."""

import time
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from eval import Pipeline, QuestionSet, TuneSettings, evaluate, tune
from eval.datasets.question_set import Question
from eval.progress import silent
from eval.settings import Loading, QuestionSettings, Resampling
from eval.tuning import budget, reranking, vectors
from eval.tuning.collection import JudgedCollection
from eval.tuning.costs import Costs
from eval.tuning.evaluation import Evaluator
from eval.tuning.knobs import KNOBS, RANKING
from eval.tuning.result import needed_questions
from eval.tuning.search import PipelineSearch, divide_into_folds, is_no_worse
from retriever import Index, load_reranker
from retriever.documents import Document
from retriever.encoders import parse_encoder
from retriever.errors import BadInputError, ConfigError, SourceError
from retriever.search import FusionSettings

QUICK = Resampling(200, 0)


def text(chance, words):
    return " ".join(f"w{word}" for word in np.minimum(chance.zipf(1.3, words), 199))


def make_collection(documents=60, questions=40, seed=0):
    """Return a corpus, and questions that repeat words of one document each."""
    chance = np.random.default_rng(seed)
    corpus = [
        Document(f"d{number}", text(chance, 40), f"w{number} title") for number in range(documents)
    ]
    judged_questions = []
    for number in range(questions):
        document = corpus[chance.integers(documents)]
        words = [*chance.choice(document.text.split(), 3), text(chance, 2)]
        judged_questions.append(Question(f"q{number}", " ".join(words), (), {document.id: 1}))
    return corpus, judged_questions


@pytest.fixture
def model(tiny_models):
    return f"{tiny_models['bert']}::max-length=24"


@pytest.fixture(scope="module")
def cross(tiny_models, tmp_path_factory):
    """The folder of a cross-encoder with random weights."""
    from retriever.rerankers import write_cross_encoder
    from tests.retriever.training.training_samples import cross_encoder

    folder = tmp_path_factory.mktemp("tuning") / "cross"
    write_cross_encoder(folder, cross_encoder(tiny_models["bert"], training=True), {})
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"search.fusion": FusionSettings(alpha=0.25, normalization="z-score")},
        # Not rrf, whose equal scores an index cuts in the order of ids, and trec_eval in the other.
        {"search.mode": "bm25", "search.bm25.k1": 0.6, "search.bm25.b": 0.2},
        {"search.mode": "dense", "encoder.layers": "0,2"},
        {"encoder.layers": "0,1", "encoder.fusion": "concat", "passages.context": "none"},
        {"encoder.pooling": "cls", "passages.overlap": 0, "analyzer.stemming": False},
        {"encoder.query_prompt": "w7 ", "encoder.max_length": 16, "search.bm25.variant": "bm25l"},
        {"rerank": "cross", "search.depth": 15, "passages.context": "none"},
        {"rerank": "cross", "search.depth": 11, "search.mode": "bm25"},
    ],
    ids=str,
)
def test_evaluator_values_equal_an_index_with_the_same_settings(changes, model, tmp_path, cross):
    corpus, judged_questions = make_collection()
    start = Pipeline(parse_encoder(model)).put(**{"search.fusion.alpha": 0.6})
    pipeline = start.put(**changes | ({"rerank": str(cross)} if "rerank" in changes else {}))
    collection = JudgedCollection.of("made", corpus, judged_questions, pooled=False)
    values = Evaluator(collection, "nDCG@10", Loading(), silent).values(
        pipeline, np.ones(len(judged_questions), bool)
    )
    with Index.create(
        tmp_path / "index",
        pipeline.encoder,
        dtype="float32",
        analyzer=pipeline.analyzer,
        passages=pipeline.passages,
    ) as index:
        index.add(corpus)
        reranker = load_reranker(cross) if pipeline.rerank else None
        hits = index.search_many(
            [question.text for question in judged_questions], pipeline.search, reranker=reranker
        )
        run = {
            question.id: {hit.id: hit.score for hit in question_hits}
            for question, question_hits in zip(judged_questions, hits, strict=True)
        }
    expected = evaluate(
        run, {question.id: question.grades for question in judged_questions}, ["nDCG@10"]
    )
    assert values == pytest.approx(list(expected.per_query["nDCG@10"].values()), abs=1e-6)


def test_evaluator_values_of_pools_equal_eval_qa(model, tmp_path):
    from eval import QASettings, rank_systems

    corpus, judged_questions = make_collection()
    chance = np.random.default_rng(1)
    pooled = []
    for question in judged_questions:
        candidate_ids = chance.choice(
            [document.id for document in corpus], 7, replace=False
        ).tolist()
        ids = tuple(sorted({*candidate_ids, *question.grades}, reverse=True))
        pooled.append(replace(question, candidates=ids))
    questions = QuestionSet(
        "made", "test", tuple(pooled), {document.id: document.text for document in corpus}
    )
    result = rank_systems(questions, ["hybrid:0.3"], QASettings(model, measures=("AP",)))
    collection = JudgedCollection.of("made", corpus, pooled, pooled=True)
    pipeline = Pipeline(parse_encoder(model)).put(**{"search.fusion.alpha": 0.3})
    values = Evaluator(collection, "AP", Loading(), silent).values(
        pipeline, np.ones(len(judged_questions), bool)
    )
    assert values == pytest.approx(result.comparison.values["AP"][0], abs=1e-6)


def run_search(judged_questions, corpus, model, tests):
    collection = JudgedCollection.of("made", corpus, judged_questions, pooled=False)
    settings = TuneSettings(encoders=(model,), resampling=QUICK)
    defaults = Pipeline(parse_encoder(model)).put(**{"search.fusion.alpha": 0.6})
    full = Evaluator(collection, "nDCG@10", Loading(), silent)
    search = PipelineSearch(full, None, tests, defaults, settings)
    search.run()
    return search


@pytest.mark.soak
def test_choice_of_a_fold_does_not_depend_on_its_tested_judgments(model):
    corpus, judged_questions = make_collection(30, 24)
    divisions = divide_into_folds(len(judged_questions), 2, 0)
    plain = run_search(judged_questions, corpus, model, divisions).best
    hidden = divisions[0].test
    changed = [
        replace(question, grades={corpus[0].id: 1}) if hide else question
        for question, hide in zip(judged_questions, hidden, strict=True)
    ]
    changed_best = run_search(changed, corpus, model, divisions).best
    assert changed_best[0] == plain[0]
    assert plain[0] != run_search(changed, corpus, model, divisions).defaults


def test_folds_test_each_question_once_and_the_last_trains_on_all():
    divisions = divide_into_folds(23, 5, 3)
    assert sum(division.test.astype(int) for division in divisions[:-1]).tolist() == [1] * 23
    assert not any((division.training & division.test).any() for division in divisions)
    assert divisions[-1].training.all()


@pytest.mark.soak
def test_tuning_resumes_from_its_cache_and_keeps_its_time_budget(model, tmp_path, monkeypatch):
    corpus, judged_questions = make_collection(30, 24)
    files = write_files(tmp_path, corpus, judged_questions)
    settings = TuneSettings(
        encoders=(model,), folds=2, loading=Loading(cache=tmp_path / "cache"), resampling=QUICK
    )
    settings = replace(settings, queries=files[1], qrels=files[2])
    # Ends in the middle of the search.
    monkeypatch.setattr(budget.time, "monotonic", count(time.monotonic(), 4.0).__next__)
    first = tune(files[0], replace(settings, minutes=10.0))
    monkeypatch.undo()
    assert "budget of 10 minutes ended" in " ".join(first.remarks)
    # After a first test of what it has found, the search goes on in what is left.
    assert 0.85 * 600 < first.seconds < 1.05 * 600
    encoded = []
    monkeypatch.setattr(
        vectors, "embed", lambda *rest, **more: encoded.append(rest) or EMBED(*rest, **more)
    )
    second = tune(files[0], settings)
    third = tune(files[0], settings)
    assert third.evaluated == 0 < second.evaluated
    assert third.best == second.best
    assert all(np.array_equal(third.values[name], second.values[name]) for name in second.values)


EMBED = vectors.embed


def test_an_encoder_without_layers_is_tuned_until_the_budget_ends(
    tiny_models, tmp_path, monkeypatch
):
    files = write_files(tmp_path, *make_collection(30, 24))
    form = f"{tiny_models['bert']}::static=average"
    settings = TuneSettings((form,), None, *files[1:], folds=2, minutes=5.0, resampling=QUICK)
    monkeypatch.setattr(budget.time, "monotonic", count(time.monotonic(), 4.0).__next__)
    result = tune(files[0], settings)
    assert result.evaluated > 1
    assert "budget of 5 minutes ended" in " ".join(result.remarks)
    with pytest.raises(BadInputError, match=r"max-size 1e-06 \(least: 0\.0"):
        tune(files[0], replace(settings, max_size=1e-6))


def test_defaults_above_a_limit_are_replaced_by_settings_within_it(model, tmp_path, monkeypatch):
    modes = {"bm25": 1.0, "dense": 8.0, "hybrid": 9.0}
    monkeypatch.setattr(Costs, "milliseconds", lambda self, pipeline: modes[pipeline.search.mode])
    monkeypatch.setattr("eval.tuning.search.KNOBS", [RANKING])
    monkeypatch.setattr(budget.time, "monotonic", count(time.monotonic(), 1.0).__next__)
    files = write_files(tmp_path, *make_collection(30, 24))
    settings = TuneSettings((model,), None, *files[1:], folds=2, minutes=3.0, resampling=QUICK)
    result = tune(files[0], replace(settings, max_latency=2.0))
    assert result.defaults.search.mode == "hybrid"
    assert result.best.search.mode == result.simple.search.mode == "bm25"
    assert "the defaults are above the limits" in " ".join(result.remarks)
    with pytest.raises(BadInputError, match=r"max-latency 0.5 \(least: 1\)"):
        tune(files[0], replace(settings, max_latency=0.5))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_tuning_enables_a_reranker_only_if_it_gains(sign, model, tmp_path, monkeypatch, cross):
    corpus, judged_questions = make_collection(30, 24)
    relevant = {question.text: next(iter(question.grades)) for question in judged_questions}
    titles = {document.id: document.title for document in corpus}

    class Oracle:
        reads_vectors = False

        def score(self, query, vector, passages, vectors):
            title = titles[relevant[query]]
            return np.array(
                [sign * passage.startswith(f"{title} ") for passage in passages], np.float32
            )

    monkeypatch.setattr(reranking, "load_reranker", lambda *rest, **more: Oracle())
    files = write_files(tmp_path, corpus, judged_questions)
    settings = TuneSettings((f"{model}::layers=0",), None, *files[1:], str(cross), resampling=QUICK)
    knobs = [knob for knob in KNOBS if knob.cost == "reranker"]
    monkeypatch.setattr("eval.tuning.search.KNOBS", knobs)
    result = tune(files[0], replace(settings, folds=2))
    assert (result.best.rerank is not None) == (sign > 0)
    assert ("reranker" in result.without) == (sign > 0)
    if sign > 0:
        assert result.values["tuned"].mean() == 1.0 > result.without["reranker"].mean()
        Oracle.reads_vectors = True
        with pytest.raises(ConfigError, match="cross: expected a cross-encoder, found a head"):
            tune(files[0], settings)


def test_layer_choices_of_a_model_without_named_pooling_keep_its_fusion(model):
    corpus, judged_questions = make_collection(30, 24)
    collection = JudgedCollection.of("made", corpus, judged_questions, pooled=False)
    evaluator = Evaluator(collection, "nDCG@10", Loading(), silent)
    choices = evaluator.layers.choices(Pipeline(parse_encoder(model)), np.ones(24, bool), 3)
    assert [fusion for _, fusion in choices][:3] == [None] * 3


def write_files(folder, corpus, judged_questions):
    import json

    paths = [folder / name for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv")]
    rows = [
        {"id": document.id, "title": document.title, "text": document.text} for document in corpus
    ]
    paths[0].write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"id": question.id, "text": question.text} for question in judged_questions]
    paths[1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [
        f"{question.id} 0 {id_} 1\n" for question in judged_questions for id_ in question.grades
    ]
    paths[2].write_text("".join(lines))
    return paths


@pytest.mark.parametrize(
    ("count", "relevant", "expected"),
    [
        (19, None, "at least 20 questions with a relevant document in the corpus, found 19"),
        (30, "other", "in the corpus, found 0; .* check their document ids"),
    ],
)
def test_too_few_questions_are_refused(count, relevant, expected, tmp_path, model):
    corpus, judged_questions = make_collection(30, count)
    if relevant:
        judged_questions = [
            replace(question, grades={relevant: 1}) for question in judged_questions
        ]
    files = write_files(tmp_path, corpus, judged_questions)
    settings = TuneSettings(encoders=(model,), queries=files[1], qrels=files[2])
    with pytest.raises(BadInputError, match=expected):
        tune(files[0], settings)
    with pytest.raises(ConfigError, match="both or neither"):
        tune(files[0], replace(settings, qrels=None))
    with pytest.raises(ConfigError, match="unknown measure"):
        tune(files[0], replace(settings, measure="nDGC"))


def test_an_incomplete_question_set_and_an_unknown_split_are_refused(tmp_path):
    corpus, judged_questions = make_collection(30, 24)
    files = write_files(tmp_path, corpus, judged_questions)
    (tmp_path / "notes.md").write_text("words")
    files[1].rename(tmp_path / "queries.test.jsonl")
    with pytest.raises(SourceError, match=r"found only some: .*no qrels\.\*\.tsv"):
        tune(tmp_path)
    files[2].rename(tmp_path / "qrels.test.tsv")
    with pytest.raises(SourceError, match=r"one of the splits test .* found 'other'"):
        tune(tmp_path, TuneSettings(data=QuestionSettings(train_split="other")))
    # One name of a form is no question set.
    for file in ("queries.test.jsonl", "qrels.test.tsv"):
        (tmp_path / file).unlink()
    with pytest.raises(BadInputError, match="at least 20"):
        tune(tmp_path)


def test_noninferiority_and_needed_questions_follow_the_t_test():
    from scipy import stats

    chance = np.random.default_rng(0)
    differences = chance.normal(0.0, 0.2, 400)
    for margin in (0.005, 0.01, 0.02, 0.03, 0.05):
        expected = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
        if abs(expected - 0.05) > 0.01:
            assert is_no_worse(differences, margin, Resampling()) == (expected < 0.05)
    exact = (1.959964 + 0.841621) ** 2 * differences.var(ddof=1) / differences.mean() ** 2
    assert needed_questions(differences) == np.ceil(exact)
    assert needed_questions(np.zeros(5)) is None
