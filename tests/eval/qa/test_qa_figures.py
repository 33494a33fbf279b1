"""Figures of an evaluation on a question set: what they show, and that odd scores can be drawn."""

from dataclasses import replace

import numpy as np
import pytest

from eval import save_figure
from eval.datasets.question_set import Question
from eval.figures import learning_figure
from eval.qa.result import SystemResult, recall_curve, recall_figure, scores_figure
from tests.eval.conftest import texts_of
from tests.eval.qa.samples import ODD, made_set, noise, qrels_of, result, runs_of, system

pytest.importorskip("matplotlib")


def test_figures_are_png_and_svg_and_name_every_system(tmp_path):
    questions = made_set(count=20, pool=6)
    names = [ODD, "_hidden", "cross-encoder", *(f"s{number}" for number in range(8))]
    systems = [
        system(one, questions, noise(questions, place, place), curves=((0.1, 0.2 + place / 20),))
        for place, one in enumerate(names)
    ]
    result(systems, questions=questions, baseline="s7").write(tmp_path / "report")
    for name in ("differences", "recall", "scores", "learning"):
        content = (tmp_path / f"report/figures/{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert content.endswith(b"IEND\xaeB`\x82")
        shown = texts_of(tmp_path / f"report/figures/{name}.svg")
        expected = set(names) - ({"s7"} if name == "differences" else set())
        assert expected - set(shown) == set()


def test_a_recall_curve_is_the_metrics_recall_at_each_rank():
    found = result()
    head = found.systems[1]
    curve = recall_curve(head, set(qrels_of(found)), 8)
    relevant = {one.id: max(one.grades, key=one.grades.get) for one in found.questions.questions}
    expected = np.zeros(8)
    for run in runs_of(head):
        for question in qrels_of(found):
            order = sorted(run[question], key=lambda one: (run[question][one], one), reverse=True)
            expected[order.index(relevant[question]) :] += 1
    np.testing.assert_allclose(curve, expected / 3 / len(qrels_of(found)), atol=1e-12)
    assert curve[-1] == pytest.approx(1)
    # Others are not drawn.
    pools = head.pools[:18] + tuple(replace(one, grades={}) for one in head.pools[18:])
    changed = recall_curve(replace(head, pools=pools), set(qrels_of(found)), 8)
    np.testing.assert_array_equal(changed, curve)


@pytest.mark.parametrize(
    "scores",
    [{}, {"a": 0.0, "b": 0.0}, {"a": 1.0}, {"a": 1e6, "b": 1e6 + 1e-4}, {"a": -1e-300, "b": 0.0}],
    ids=["none", "zero", "one", "huge", "tiny"],
)
def test_scores_without_a_spread_are_drawn_too(tmp_path, scores):
    pool = Question("q", "text", tuple(scores), {"a": 1})
    one = SystemResult("one", (pool,), (np.array([*scores.values()], np.float64),))
    for name, draw in (("scores", scores_figure), ("recall", recall_figure)):
        save_figure(draw([one], {"q"}), tmp_path / f"{name}.svg")
        assert "one" in texts_of(tmp_path / f"{name}.svg")


def test_learning_curves_have_a_line_a_seed_and_a_mean_that_ends_with_the_first(tmp_path):
    save_figure(learning_figure({"uv": ((0.2,), (0.3, 0.4, 0.5))}), tmp_path / "early.svg")
    assert {"0", "2", "dev AP × 100"} <= set(texts_of(tmp_path / "early.svg"))
    seeds = ((0.1, 0.5), (0.3, 0.7, 0.9, 0.95))
    (axes,) = learning_figure({"uv": seeds}).axes
    lines = [dict(zip(*line.get_data(), strict=True)) for line in axes.lines]
    assert lines == [
        pytest.approx({0: 20, 1: 60}),
        *(pytest.approx({epoch: 100 * one for epoch, one in enumerate(seed)}) for seed in seeds),
    ]
    (alone,) = learning_figure({"cross-encoder": seeds[:1]}).axes
    assert len(alone.lines) == 1


def test_scores_are_counted_in_percent_of_their_kind_for_the_first_seed():
    pool = Question("q", "text", tuple("abcd"), {"a": 1})
    one = SystemResult("one", (pool,), (np.array([3.0, 0.0, 0.0, 1.0]),))
    figure = scores_figure([one, replace(one, scores=one.scores * 3)], {"q"})
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "first of 3 seeds"]
    for axes in figure.axes:
        heights = {patch.get_label(): patch.get_data().values for patch in axes.patches}
        assert heights["relevant"].tolist() == [0] * 39 + [100]
        assert heights["others"][0] == pytest.approx(200 / 3)
        assert heights["others"].sum() == pytest.approx(100)
        assert len(axes.get_yticks()) > 2
