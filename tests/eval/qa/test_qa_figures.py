"""Figures of a question-answering report: what they show, and that odd scores can be drawn."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest
from eval.reports.qa_figures import draw_learning, draw_recall, draw_scores, recall_curve
from eval.reports.qa_report import write_report

from eval.qa.result import SystemResult
from tests.eval.qa.results import ODD, noise, qrels_of, result
from tests.eval.qa.samples import made_set


def texts_of(path):
    root = ElementTree.fromstring(path.read_text())
    assert root.tag.endswith("}svg")
    return [
        "".join(element.itertext()).strip()
        for element in root.iter()
        if element.tag.endswith("}text")
    ]


def test_figures_are_png_and_svg_and_name_every_system(tmp_path):
    pytest.importorskip("matplotlib")
    questions = made_set(count=20, pool=6)
    names = [ODD, "_hidden", "cross-encoder", *(f"s{number}" for number in range(9))]
    systems = [
        SystemResult(one, (noise(questions, place, place),), curves=((0.1, 0.2 + place / 20),))
        for place, one in enumerate(names)
    ]
    write_report(tmp_path / "report", result(systems, questions=questions, baseline="s8"))
    for name in ("differences", "recall", "scores", "learning"):
        content = (tmp_path / f"report/figures/{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert content.endswith(b"IEND\xaeB`\x82")
        shown = texts_of(tmp_path / f"report/figures/{name}.svg")
        expected = set(names) - ({"s8"} if name == "differences" else set())
        assert expected - set(shown) == set()


def test_a_recall_curve_is_the_metrics_recall_at_each_rank():
    found = result()
    curve = recall_curve(found.systems[1].runs, qrels_of(found), 8)
    relevant = {one.id: max(one.grades, key=one.grades.get) for one in found.questions.questions}
    expected = np.zeros(8)
    for run in found.systems[1].runs:
        for question in qrels_of(found):
            order = sorted(run[question], key=lambda one: (run[question][one], one), reverse=True)
            expected[order.index(relevant[question]) :] += 1
    np.testing.assert_allclose(curve, expected / 3 / len(qrels_of(found)), atol=1e-12)
    assert curve[-1] == pytest.approx(1)


@pytest.mark.parametrize(
    "scores",
    [{}, {"a": 0.0, "b": 0.0}, {"a": 1.0}, {"a": 1e30, "b": 1e30 + 1e20}, {"a": -1e-300, "b": 0.0}],
    ids=["none", "zero", "one", "huge", "tiny"],
)
def test_scores_without_a_spread_are_drawn_too(tmp_path, scores):
    pytest.importorskip("matplotlib")
    run = {"q": scores}
    for path, draw in (
        (tmp_path / "scores.svg", lambda path: draw_scores({"one": run}, {"q": {"a": 1}}, path)),
        (tmp_path / "recall.svg", lambda path: draw_recall({"one": [run]}, {"q": {"a": 1}}, path)),
    ):
        draw(path)
        assert "one" in texts_of(path)


def test_learning_curves_start_where_they_are_said_to(tmp_path):
    pytest.importorskip("matplotlib")
    draw_learning({"cross-encoder": ((0.2, 0.3, 0.4),)}, tmp_path / "late.svg", first=1)
    found = texts_of(tmp_path / "late.svg")
    assert "1" in found
    assert "3" in found
    assert "0" not in found
    draw_learning({"uv": ((0.2,), (0.3, 0.4, 0.5))}, tmp_path / "early.svg")
    assert {"0", "2", "dev MAP × 100"} <= set(texts_of(tmp_path / "early.svg"))
