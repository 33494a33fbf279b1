"""Systems with encoders of their own."""

import re
from dataclasses import replace

import numpy as np
import pytest

from eval import HeadPlan, Loading, QASettings, QuestionSettings, rank_systems
from retriever import CorpusReader, Index
from retriever.errors import ModelError
from retriever.training import HeadTrainingSettings
from tests.eval.qa.samples import made_set, without_pools

SPLITS = {split: made_set(split, count=6) for split in ("dev", "test")}
FORMS = ("::layers=0", "::pooling=sep", "::layers=1,2::fusion=max")


@pytest.fixture(params=[False, True], ids=["no-cache", "cache"])
def settings(request, tiny_models, tmp_path):
    loading = Loading("cpu", cache=tmp_path / "cache" if request.param else None)
    return QASettings(
        encoder=f"{tiny_models['bert']}::backend=torch", loading=loading, measures=("AP",), top=0
    )


def scores(result):
    return [system.scores[0] for system in result.systems]


@pytest.mark.parametrize("backend", ["", "::backend=torch"])
def test_encoders_of_one_model_share_its_forward_passes(settings, tiny_models, passes, backend):
    model = f"{tiny_models['bert']}{backend}"
    other = f"{tiny_models['roberta']}{backend}"
    settings = replace(settings, encoder=model)
    systems = ["cosine", *(f"cosine@{model}{form}" for form in FORMS), f"cosine@{other}"]
    together = rank_systems(SPLITS, systems, settings)
    test = SPLITS["test"]
    assert set(passes.values()) == {1}
    assert len(passes) >= 2 * len(set(test.passages.values()))
    uncached = replace(settings, loading=replace(settings.loading, cache=None))
    alone = [scores(rank_systems(SPLITS, [name], uncached))[0] for name in systems]
    for cosines, expected in zip(scores(together), alone, strict=True):
        np.testing.assert_allclose(cosines, expected, atol=2e-6)
    assert len({tuple(cosines) for cosines in scores(together)}) == len(systems)


def test_encoder_settings_without_model_use_the_model_of_the_evaluation(settings, tiny_models):
    settings = replace(settings, encoder=str(tiny_models["roberta"]))
    named = [f"cosine@{tiny_models['roberta']}{form}" for form in FORMS]
    short = rank_systems(SPLITS, [f"cosine@{form}" for form in FORMS], settings)
    np.testing.assert_array_equal(scores(short), scores(rank_systems(SPLITS, named, settings)))
    assert [system.name for system in short.systems] == [f"cosine@{form}" for form in FORMS]


def test_tuned_weight_of_an_encoder_does_not_depend_on_other_encoders(settings, tiny_models):
    systems = [f"hybrid:tuned@{tiny_models['bert']}{form}" for form in FORMS]
    together = rank_systems(SPLITS, systems, settings)
    for system, system_result in zip(systems, together.systems, strict=True):
        (alone,) = rank_systems(SPLITS, [system], settings).systems
        assert system_result.note == alone.note
        np.testing.assert_allclose(system_result.scores[0], alone.scores[0], atol=1e-5)


@pytest.fixture
def indexed(tiny_models, tmp_path):
    """Question sets over an index of one layer of a model, and the index."""
    form = f"{tiny_models['bert']}::layers=1::backend=torch"
    corpus = tmp_path / "corpus.jsonl"
    bare = without_pools(SPLITS["test"], corpus)
    splits = {split: replace(bare, split=split) for split in ("train", "dev", "test")}
    with Index.create(tmp_path / "index", form, device="cpu") as index:
        index.add(CorpusReader(corpus))
    return splits, tmp_path / "index"


def test_further_encoders_do_not_change_the_systems_of_an_index(indexed, minilm, tiny_models):
    splits, folder = indexed
    settings = QASettings(
        loading=Loading("cpu"),
        measures=("AP",),
        data=QuestionSettings(index=folder, depth=9),
        head=HeadPlan(training=HeadTrainingSettings(epochs=1)),
        seeds=1,
    )
    alone = scores(rank_systems(splits, ["bilinear"], settings))[0]
    with Index.open(folder) as index:
        own = [f"bilinear@{index.encoder_spec}"]
    np.testing.assert_allclose(scores(rank_systems(splits, own, settings))[0], alone, atol=1e-5)
    # Without a model, the run is of that of the index, and not of the bundled one.
    beside = ["bilinear@all-MiniLM-L6-v2", "bilinear@::pooling=cls", "bilinear"]
    together = rank_systems(splits, beside, settings)
    np.testing.assert_allclose(scores(together)[2], alone, atol=1e-5)
    named = [f"bilinear@{tiny_models['bert']}::pooling=cls"]
    expected = scores(rank_systems(splits, named, settings))[0]
    np.testing.assert_allclose(scores(together)[1], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["nowhere", "nowhere::last"])
def test_cross_encoder_starts_from_a_local_model(settings, name):
    with pytest.raises(ModelError, match=f"no model '{name}'"):
        rank_systems({}, ["cosine", f"cross-encoder@{name}"], settings)


@pytest.mark.parametrize("system", ["cosine", "hybrid:tuned", "bilinear"])
def test_missing_encoder_fails_before_another_system_is_ranked(settings, system):
    stages = []

    def progress(stage, total):
        stages.append(stage)
        return lambda done: None

    with pytest.raises(ModelError, match=re.escape("no model './nowhere'")):
        rank_systems(SPLITS, ["cosine", f"{system}@./nowhere::lc:0,1"], settings, progress=progress)
    assert stages == []
