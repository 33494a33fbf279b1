"""Cross-encoders as systems: averaged scores, and scores fused with cosine and BM25."""

from dataclasses import replace

import numpy as np
import pytest

from eval import CrossPlan, QASettings, rank_systems
from eval.qa.pools import DevScore, training_set
from eval.qa.rerankers import fine_tune
from eval.settings import Loading
from retriever.errors import ConfigError
from retriever.rerankers.cross import read_training
from retriever.training import CrossTrainingSettings, SamplingSettings
from tests.eval.qa.samples import made_set

SPLITS = {split: made_set(split, answered=0.75) for split in ("train", "dev", "test")}
TRAINING = CrossTrainingSettings(
    epochs=1, precision="float32", sampling=SamplingSettings(count=3, batch=4)
)
WEIGHTS = [number / 20 for number in range(21)]


@pytest.fixture
def plan(tiny_models):
    return CrossPlan(str(tiny_models["bert"]), 32, TRAINING)


@pytest.fixture
def settings(fake_encoder, plan):
    return QASettings(cross=plan, cross_seeds=2, measures=("AP",))


def pool_by_pool(questions, scores):
    """Normalize scores (pairs,) by min-max within each pool."""
    normalized, start = [], 0
    for question in questions.questions:
        pool_scores = scores[start : (start := start + len(question.candidates))]
        normalized.append(
            (pool_scores - pool_scores.min()) / (pool_scores.max() - pool_scores.min())
        )
    return np.concatenate(normalized)


def best_sum(dev, first, second):
    """Return the weight of the first scores with the best AP on dev."""
    tried = [(dev(weight * first + (1 - weight) * second), weight) for weight in WEIGHTS]
    return max(tried)[1]


def test_ensemble_scores_are_the_mean_over_seeds(settings):
    stages = []

    def progress(name, _):
        stages.append(name)
        return lambda done: None

    result = rank_systems(
        SPLITS, "cross-encoder,cross-encoder:ensemble", settings, progress=progress
    )
    seeds, ensemble = result.systems
    assert len(seeds.scores) == 2
    assert not np.array_equal(*seeds.scores)
    (mean,) = ensemble.scores
    np.testing.assert_array_equal(mean, (seeds.scores[0] + seeds.scores[1]) / 2)
    assert ensemble.curves == seeds.curves
    assert "mean of the scores of 2 seeds" in ensemble.note
    # The second system finds what the first one trained and scored.
    assert sum(name.startswith("fine-tuning") for name in stages) == 2
    assert sum(name.startswith("scoring") for name in stages) == 2


def test_cross_encoder_hybrid_uses_the_weights_that_are_best_on_dev(settings, tmp_path):
    systems = "cosine,bm25,hybrid:tuned,cross-encoder,cross-encoder:hybrid"
    systems += ",cross-encoder:ensemble:hybrid"
    results = {
        split: rank_systems(SPLITS, systems, replace(settings, split=split, models=tmp_path))
        for split in ("dev", "test")
    }
    answered = DevScore(SPLITS["dev"])

    def dev(scores):
        # Questions with a relevant passage come first.
        return answered(scores[: len(answered.left)])

    parts = {}
    for split, result in results.items():
        systems_by_name = {system.name: system for system in result.systems}
        crosses = list(systems_by_name["cross-encoder"].scores)
        crosses.append(np.mean(crosses, axis=0))
        parts[split] = [
            pool_by_pool(SPLITS[split], scores)
            for scores in (
                systems_by_name["cosine"].scores[0],
                systems_by_name["bm25"].scores[0],
                *crosses,
            )
        ]
    cosine, bm25, *crosses = parts["dev"]
    alpha = best_sum(dev, cosine, bm25)
    hybrids = {
        split: pool_by_pool(SPLITS[split], alpha * columns[0] + (1 - alpha) * columns[1])
        for split, columns in parts.items()
    }
    betas = [best_sum(dev, cross, hybrids["dev"]) for cross in crosses]
    expected = [
        beta * cross + (1 - beta) * hybrids["test"]
        for beta, cross in zip(betas, parts["test"][2:], strict=True)
    ]
    systems_by_name = {system.name: system for system in results["test"].systems}
    hybrid = systems_by_name["cross-encoder:hybrid"]
    assert hybrid.note.endswith(
        f"; weight of the cross-encoder {betas[0]:g}, {betas[1]:g}, alpha of the hybrid {alpha:g}, "
        "chosen on dev"
    )
    assert f"alpha {alpha:g}, chosen" in systems_by_name["hybrid:tuned"].note
    np.testing.assert_allclose(hybrid.scores, expected[:2], atol=1e-12)
    (averaged,) = systems_by_name["cross-encoder:ensemble:hybrid"].scores
    np.testing.assert_allclose(averaged, expected[2], atol=1e-12)
    assert any(beta < 1 for beta in betas)


def test_fine_tuning_with_another_margin_does_not_replace_a_result(plan, tmp_path, monkeypatch):
    train = training_set(SPLITS["train"], "pool", lambda: None)
    dev, folder = DevScore(SPLITS["dev"]), tmp_path / "cross"

    def fit(*, restart=False, **changed):
        """Fine-tune with changed settings into the same folder; return whether it trained."""
        messages, changed = [], replace(plan, training=replace(TRAINING, **changed))
        loading = Loading("cpu")
        fine_tune(train, dev, changed, folder, loading, restart=restart, notify=messages.append)
        return bool(messages)

    def fail(*_):
        raise KeyboardInterrupt

    other = "settings.margin 0.5, found 1.0"
    with monkeypatch.context() as patch:
        patch.setattr("eval.qa.rerankers.write_cross_encoder", fail)
        with pytest.raises(KeyboardInterrupt):
            fit()
    with pytest.raises(ConfigError, match=f"{other}.*--restart"):
        fit(margin=0.5)
    assert fit()
    before = (folder / "model.safetensors").read_bytes()
    with pytest.raises(ConfigError, match=f"expected the result of a run with {other}"):
        fit(margin=0.5)
    assert (folder / "model.safetensors").read_bytes() == before
    assert not fit()
    # Of the releases that had other losses and rates.
    settings = read_training(folder)["identity"]["settings"]
    assert settings.items() >= {"loss": "hinge", "layer_decay": 1.0}.items()
    assert fit(restart=True, margin=0.5)
    assert not fit(margin=0.5)
