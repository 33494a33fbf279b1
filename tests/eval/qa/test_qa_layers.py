"""Ranking by every hidden state, against systems that each rank by one of them."""

from dataclasses import replace

import numpy as np
import pytest

from eval import QASettings, QuestionSettings, rank_layers, rank_systems
from retriever.errors import BadInputError, ConfigError
from tests.eval.qa.samples import made_set

SPLITS = {"test": made_set("test", count=8, answered=0.75)}
WHOLE = replace(SPLITS["test"], corpus=("corpus.jsonl",))


@pytest.fixture(scope="module")
def model(tiny_models):
    return f"{tiny_models['bert']}::max-length=16"


@pytest.mark.parametrize("without_positive", ["exclude", "count"])
@pytest.mark.parametrize("prompt", ["", "::query-prompt=w1 w2 ::passage-prompt=w3 "])
def test_each_cell_is_what_a_system_of_that_layer_and_pooling_has(model, prompt, without_positive):
    form = f"{model}{prompt}"
    settings = QASettings(
        encoder=form, measures=("AP", "P@1"), without_positive=without_positive, top=0
    )
    found = rank_layers(SPLITS, ("mean", "sep"), settings)
    assert [grid.measure for grid in found.grids] == ["AP", "P@1"]
    depth = found.grids[0].values.shape[0] - 1
    cells = [(layer, pooling) for layer in range(depth + 1) for pooling in ("mean", "sep")]
    forms = [f"{form}::layers={layer}::pooling={pooling}" for layer, pooling in cells]
    systems = rank_systems(SPLITS, [f"cosine@{one}" for one in forms], settings)
    for grid in found.grids:
        expected = [one.value for one in systems.comparison.scores[grid.measure].values()]
        np.testing.assert_allclose(grid.values.ravel(), expected, atol=1e-12)
        assert grid.poolings == ("mean", "sep")
    kept = "are left out" if without_positive == "exclude" else "0 questions without"
    assert kept in found.text()
    # The layers differ, or this would show nothing.
    assert len(np.unique(found.grids[0].values)) > depth


def test_words_of_answers_are_measured_as_the_paper_does(model):
    questions = replace(SPLITS["test"], answers_in_text=True)
    found = rank_layers(questions, ("mean",), QASettings(encoder=model))
    assert found.measures[:3] == ("Success@1", "Success@5", "Success@10")
    found = rank_layers(SPLITS, ("mean",), QASettings(encoder=model))
    assert (found.kind, found.measures) == ("qa", ("AP", "RR"))


@pytest.mark.parametrize(
    ("questions", "poolings", "options", "message"),
    [
        (WHOLE, ("mean",), {}, "no pools of candidates"),
        (SPLITS, (), {}, "poolings: expected some of .*, found none"),
        (SPLITS, ("median",), {}, "poolings: expected some of"),
        (SPLITS, ("mean",), {"encoder": "::last"}, "leave layers out"),
        (SPLITS, ("mean",), {"measures": ("accuracy",)}, "accuracy"),
        (SPLITS, ("mean",), {"data": QuestionSettings(index="i")}, "leave out --index"),
    ],
)
def test_what_cannot_be_ranked_by_layers_is_refused(model, questions, poolings, options, message):
    encoder = options.pop("encoder", "")
    with pytest.raises(ConfigError, match=message) as caught:
        rank_layers(questions, poolings, QASettings(encoder=model + encoder, **options))
    assert "\n" not in str(caught.value)


def test_questions_without_any_relevant_passage_are_refused(model):
    with pytest.raises(BadInputError, match="at least one question to rank for, found none"):
        rank_layers({"test": made_set(answered=0.0)}, ("mean",), QASettings(encoder=model))
