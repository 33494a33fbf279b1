"""The report on sentences: the same numbers in every form, and no text that breaks it."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from eval.metrics.comparison import Difference, Score
from eval.sentences.result import EncoderScore, LayerGrid, SentenceResult, SetScores
from tests.eval.sentences.sentence_samples import ODD

VALUES = np.array([[0.1, 0.2], [0.3, 0.4], [0.6, 0.5]])


def made_set(name, adjusted=0.02, curve=None):
    """Return a scored set of two encoders; the second has truncated texts."""

    def score(place, encoder):
        against = Difference(-0.1, -0.2, 0.05, 0.01, adjusted) if place else None
        value = Score(0.5 + place / 4, 0.01, 0.4, 0.9, against)
        extra = {"F1": 0.5, "error reduction": 0.25}
        note = "a note" if place else ""
        examples = np.array([0.25, 1, place])
        return EncoderScore(encoder, place, {"accuracy": value}, extra, note, {}, examples)

    examples = {"label": ["0", "1", "0"], "text": ['a "b"', "c,d", "é\nf"]}
    return SetScores(name, {"classes": "2"}, 3, examples, (score(0, "plain"), score(1, ODD)), curve)


def result(*sets, grids=(), kind="transfer"):
    return SentenceResult(
        kind=kind,
        title="Transfer",
        settings={"protocol": "senteval"},
        remarks=("a remark",),
        measures=("accuracy",),
        sets=sets,
        grids=grids,
        baseline="plain",
    )


GRID = LayerGrid(ODD, "model", "accuracy", ("mean", "cls"), VALUES, VALUES / 10, 1, 3)


def test_report_overview_shows_means_significance_spreads_and_layers():
    sets = made_set("one"), made_set(ODD, adjusted=0.05)
    brief, *sections = result(*sets, grids=(GRID, replace(GRID, spread=None))).report().sections
    encoders, layers, plain = brief.tables
    assert encoders.columns == ("encoder", "one", ODD, "mean")
    assert encoders.rows == (
        ("plain", "50.00 ± 1.00", "50.00 ± 1.00", "50.00"),
        (ODD, "75.00 ± 1.00*", "75.00 ± 1.00", "75.00"),
    )
    assert layers.columns == ("hidden state", "mean", "cls")
    assert layers.rows[2] == ("2", "60.00 ± 6.00", "50.00 ± 5.00")
    assert plain.rows[1] == ("1", "30.00", "40.00")
    assert layers.title == f"{ODD}: accuracy × 100 by hidden state (0: embeddings) and pooling"
    assert brief.facts == {"protocol": "senteval", "one": "classes 2", ODD: "classes 2"}
    assert brief.remarks == (
        "a remark",
        "±: standard deviation over seeds or divisions",
        "*: differs from plain with p < 0.05, by a paired randomization test over examples with "
        "Holm's correction over the encoders",
        f"{ODD}: longer than its window, and cut: 1 of 3 texts of one, 1 of 3 texts of {ODD}",
        f"model: longer than its window, and cut: 1 of 3 texts of {ODD}",
        f"one, {ODD}: a note",
        f"{ODD}, {ODD}: a note",
        *[
            f"{ODD}, model: accuracy is highest for hidden state 2 with mean pooling; optimistic: "
            "chosen on the data it is measured on"
        ]
        * 2,
    )
    assert [(section.heading, section.facts) for section in sections] == [
        (name, {"classes": "2"}) for name in ("one", ODD)
    ]
    compared, further = sections[0].tables
    assert compared.rows[1][:4] == (ODD, "75.00 ± 1.00", "40.00 to 90.00", "-10.00")
    assert further.columns == ("encoder", "F1", "error reduction")
    assert further.rows == (("plain", "50.00", "25.00"), (ODD, "50.00", "25.00"))
    (alone,) = result(sets[0]).report().sections[0].tables
    assert alone.columns == ("encoder", "one")
    uncut = replace(sets[0], scores=sets[0].scores[:1])
    remarks = result(uncut, kind="sts").report().sections[0].remarks
    assert remarks[2:] == ("no text is longer than an encoder's window",)
    several = result(grids=(GRID, replace(GRID, encoder="other"))).report().sections[0].tables
    assert [table.title.partition(": ")[0] for table in several] == [
        f"{ODD}, model",
        f"{ODD}, other",
    ]


def test_written_json_and_csv_equal_the_result(tmp_path):
    sentence_result = result(made_set("a/b"), made_set("a b"), grids=(GRID,))
    files = sentence_result.write(tmp_path / "report")
    assert all(file.stat().st_size for file in files)
    read = json.loads((tmp_path / "report/report.json").read_text(), parse_constant=pytest.fail)
    assert read == json.loads(json.dumps(sentence_result.to_json()))
    first_set, _ = read["sets"]
    assert (first_set["set"], first_set["facts"], first_set["texts"]) == (
        "a/b",
        {"classes": "2"},
        3,
    )
    assert first_set["scores"][1]["values"]["accuracy"]["difference"]["adjusted"] == 0.02
    assert "examples" not in first_set["scores"][0]
    (grid,) = read["by_layer"]
    assert (grid["set"], grid["values"], grid["spread"]) == (
        *(ODD, VALUES.tolist()),
        (VALUES / 10).tolist(),
    )
    assert grid["best"] == {"hidden_state": 2, "pooling": "mean"}
    for name in ("a-b", "a-b-2"):
        with (tmp_path / f"report/examples.{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["text"] for row in rows] == ['a "b"', "c,d", "é\nf"]
        assert [float(row[ODD]) for row in rows] == [0.25, 1, 1]
    figures = {path.name for path in (tmp_path / "report/figures").iterdir()}
    assert figures == {f"layers-accuracy.{ending}" for ending in ("png", "svg")}
    layers = (tmp_path / "report/figures/layers-accuracy.svg").read_text()
    assert "cls" in layers
    assert all(f"{100 * value:.1f}" in layers for value in VALUES.ravel())


def test_figures_plot_the_values_and_intervals_of_the_scores():
    pytest.importorskip("matplotlib")
    curves = [made_set(f"one, {size}", curve=("one", size)) for size in (9, 3)]
    grids = (GRID, replace(GRID, encoder="other"))
    drawn = result(*curves, grids=grids).report().figures
    assert list(drawn) == [
        f"{axis}-accuracy{end}" for axis, end in (("sizes", ""), ("layers", "-1"), ("layers", "-2"))
    ]
    values, errors = drawn["sizes-accuracy"]().axes
    line, _, (bars,) = values.containers[1]
    assert np.array(line.get_data()).tolist() == [[3, 9], [75, 75]]
    np.testing.assert_allclose([segment[:, 1] for segment in bars.get_segments()], [(40, 90)] * 2)
    np.testing.assert_allclose(errors.lines[1].get_data(), [(3, 9), (25, 25)])
    (heat, _) = drawn["layers-accuracy-2"]().axes
    np.testing.assert_allclose(heat.images[0].get_array(), VALUES * 100)
    (overview,) = result(*curves).report().sections[0].tables
    assert overview.columns == ("encoder", "one, 9", "one, 3")
