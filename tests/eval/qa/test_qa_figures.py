"""Figures of an evaluation on a question set: what they show."""

import pytest

from eval import save_figure
from eval.figures import learning_figure
from tests.eval.conftest import texts_of
from tests.eval.qa.samples import ODD, made_set, noise, result, system

pytest.importorskip("matplotlib")


def test_figures_are_png_and_svg_and_name_every_system(tmp_path):
    questions = made_set(count=20, pool=6)
    names = [ODD, "_hidden", "cross-encoder", *(f"s{number}" for number in range(8))]
    systems = [
        system(one, questions, noise(questions, place, place), curves=((0.1, 0.2 + place / 20),))
        for place, one in enumerate(names)
    ]
    result(systems, questions=questions, baseline="s7").write(tmp_path / "report")
    for name in ("differences", "learning"):
        content = (tmp_path / f"report/figures/{name}.png").read_bytes()
        assert content.startswith(b"\x89PNG\r\n\x1a\n")
        assert content.endswith(b"IEND\xaeB`\x82")
        shown = texts_of(tmp_path / f"report/figures/{name}.svg")
        expected = set(names) - ({"s7"} if name == "differences" else set())
        assert expected - set(shown) == set()


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
