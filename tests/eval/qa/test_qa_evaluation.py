from dataclasses import replace

import numpy as np
import pytest
from eval.qa.heads import HeadPlan
from eval.qa.pairs import embed_pairs

from eval.metrics.ranking import evaluate
from eval.metrics.trec import write_run
from eval.qa.evaluation import rank
from eval.qa.resources import EvaluationSettings, Resources
from eval.qa.systems import parse_system
from retriever.errors import BadInputError, EncoderMismatchError
from retriever.rerankers.head.folder import HeadReranker
from retriever.rerankers.head.training import HeadTrainingSettings
from tests.eval.qa.samples import made_set

QUICK = HeadPlan(training=HeadTrainingSettings(epochs=3))


@pytest.fixture
def resources(fake_encoder, tmp_path):
    def make(**changes):
        settings = EvaluationSettings(**{"head": QUICK, "seeds": 2, "cache": None, **changes})
        said = []
        made = Resources(lambda split: made_set(split, answered=0.8), settings, warn=said.append)
        made.said = said
        return made

    return make


def quality(resources, run, measure="AP"):
    qrels = {one.id: one.grades for one in resources.questions.answered().questions}
    return evaluate(run, qrels, [measure]).means[measure]


def test_cosine_ranks_by_the_vectors_of_the_encoder(resources, fake_encoder):
    made = resources()
    (run,) = rank(parse_system("cosine"), made).runs
    for question in made.questions.questions:
        vector = fake_encoder.encode([question.text])[0].astype(float)
        for one in question.candidates:
            other = fake_encoder.encode([made.questions.passages[one]])[0].astype(float)
            assert run[question.id][one] == pytest.approx(vector @ other, abs=1e-6)


def test_equal_texts_tie_whatever_batch_they_were_in(fake_encoder):
    questions = made_set(count=1)
    same = dict.fromkeys(questions.passages, "the same text")
    pairs = embed_pairs(fake_encoder, replace(questions, passages=same), None)
    assert len(set(pairs.cosines())) == 1


def test_a_hybrid_of_weight_one_ranks_as_cosine_and_of_zero_as_bm25(resources):
    made = resources()
    for weight, alone in (("1", "cosine"), ("0", "bm25")):
        (fused,) = rank(parse_system(f"hybrid:{weight}"), made).runs
        (plain,) = rank(parse_system(alone), made).runs
        for question in made.questions.questions:
            ours, theirs = fused[question.id], plain[question.id]
            assert sorted(ours, key=lambda one: (ours[one], one)) == sorted(
                theirs, key=lambda one: (round(theirs[one], 12), one)
            )


def test_a_tuned_hybrid_says_its_weight_and_where_it_was_chosen(resources):
    found = rank(parse_system("hybrid:tuned"), resources())
    assert found.note.startswith("alpha ")
    assert found.note.endswith("chosen on dev")


@pytest.mark.parametrize("text", ["bilinear", "bilinear:mlp", "uv", "uv:mlp", "concat:mlp"])
def test_heads_are_trained_once_for_each_seed(resources, text):
    found = rank(parse_system(text), resources())
    assert len(found.runs) == len(found.curves) == 2
    assert all(2 <= len(curve) <= 4 for curve in found.curves)
    assert "dev MAP" in found.note


def test_a_head_is_at_least_as_good_as_the_cosine_on_what_it_is_chosen_on(resources):
    made = resources(split="dev", seeds=1)
    (cosine,) = rank(parse_system("cosine"), made).runs
    head = rank(parse_system("bilinear"), made)
    assert quality(made, head.runs[0]) >= quality(made, cosine) - 1e-9
    assert quality(made, head.runs[0]) == pytest.approx(max(head.curves[0]), abs=1e-9)


def test_splits_are_read_only_when_a_system_needs_them(fake_encoder):
    asked = []

    def read(split):
        asked.append(split)
        return made_set(split)

    made = Resources(read, EvaluationSettings(head=QUICK, seeds=1))
    rank(parse_system("bm25"), made)
    rank(parse_system("cosine"), made)
    assert asked == ["test"]
    rank(parse_system("hybrid:tuned"), made)
    assert asked == ["test", "dev"]
    rank(parse_system("uv"), made)
    assert asked == ["test", "dev", "train"]


def test_dev_can_be_held_out_of_training(fake_encoder):
    def read(split):
        assert split in ("test", "train")
        return made_set(split)

    settings = EvaluationSettings(head=QUICK, seeds=1, dev_share=0.25)
    found = rank(parse_system("uv"), Resources(read, settings))
    assert len(found.runs) == 1


def test_texts_longer_than_the_window_are_said_once(resources, fake_encoder):
    fake_encoder.spec = replace(
        fake_encoder.spec, settings=replace(fake_encoder.spec.settings, max_length=8)
    )
    made = resources()
    for _ in range(2):
        rank(parse_system("cosine"), made)
    assert len(made.said) == 1
    assert "window of 8 word pieces" in made.said[0]


def test_a_run_of_another_program_is_taken_as_it_is(resources, tmp_path):
    made = resources()
    (run,) = rank(parse_system("bm25"), made).runs
    path = tmp_path / "theirs.run"
    ranked = {
        query: sorted(scores.items(), key=lambda one: (-one[1], one[0]))
        for query, scores in run.items()
    }
    write_run(path, ranked, "theirs")
    (read,) = rank(parse_system(str(path)), made).runs
    assert quality(made, read) == pytest.approx(quality(made, run), abs=1e-9)


def test_a_saved_head_ranks_as_it_did_and_refuses_another_encoder(
    resources, tmp_path, fake_encoder, monkeypatch
):
    made = resources(seeds=1)
    saved = []
    original = HeadReranker.of

    def fit(*arguments):
        from eval.qa.heads import fit_head

        saved.append(fit_head(*arguments))
        return saved[-1]

    monkeypatch.setattr("eval.qa.evaluation.fit_head", fit)
    (run,) = rank(parse_system("uv"), made).runs
    original(fake_encoder.spec, saved[0]).save(tmp_path / "uv")
    (again,) = rank(parse_system(str(tmp_path / "uv")), made).runs
    for question in run:
        np.testing.assert_allclose(
            list(run[question].values()), list(again[question].values()), atol=1e-6
        )
    fake_encoder.spec = replace(fake_encoder.spec, weights="1" * 64)
    with pytest.raises(EncoderMismatchError):
        rank(parse_system(str(tmp_path / "uv")), resources())


def test_a_set_without_answers_to_train_on_is_refused(fake_encoder):
    made = Resources(
        lambda split: made_set(split, answered=0 if split == "train" else 1), EvaluationSettings()
    )
    with pytest.raises(BadInputError, match="--train-split"):
        rank(parse_system("uv"), made)
