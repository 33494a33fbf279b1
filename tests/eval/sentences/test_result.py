"""The report on sentences: the same numbers in every form, and no text that breaks it."""

from __future__ import annotations

import builtins
import csv
import json

import numpy as np
import pytest

from eval.tables import in_latex
from tests.eval.sentences.sentence_samples import ODD, result


@pytest.fixture(scope="module")
def found():
    return result()


def overview(found):
    """The tables that the terminal shows too."""
    return found.report().sections[0].tables


def remarks_on(found):
    return found.report().sections[0].remarks


@pytest.fixture(scope="module")
def report(found, tmp_path_factory):
    """A folder that is only read."""
    folder = tmp_path_factory.mktemp("written") / "report"
    files = found.write(folder)
    assert all(file.stat().st_size for file in files)
    return folder


def test_every_table_is_in_markdown_and_in_latex(found, report):
    latex, markdown = (report / "report.tex").read_text(), (report / "report.md").read_text()
    tables = [table for section in found.report().sections for table in section.tables]
    assert latex.count(r"\begin{longtable}") == len(tables) == latex.count(r"\end{longtable}")
    for one in tables:
        assert in_latex(one.title) in latex
        for row in one.rows:
            assert " & ".join(f"{{{in_latex(cell)}}}" for cell in row) in latex
            assert all(cell in markdown for cell in row[1:] if cell and "*" not in cell)
    # Each line of the command is a comment.
    assert [line[-4:] for line in latex.splitlines() if line.startswith("%")][1:] == ["n--o", "% '"]
    for remark in remarks_on(found):
        assert rf"\item {in_latex(remark)}" in latex


def test_the_overview_shows_means_marks_and_spreads(found):
    table, _ = overview(found)
    for place, row in enumerate(table.rows):
        values = [one.scores[place].values["accuracy"] for one in found.sets]
        for cell, value in zip(row[1:-1], values, strict=True):
            mark = "*" if place else ""
            assert cell == f"{100 * value.value:.2f} ± 1.00{mark}"
        assert row[-1] == f"{100 * np.mean([value.value for value in values]):.2f}"
    (grid,) = found.grids
    _, layers = overview(found)
    cell = f"{100 * grid.values[2, 1]:.2f} ± {100 * grid.spread[2, 1]:.2f}"
    assert (layers.rows[2][0], layers.rows[2][2]) == ("2", cell)
    single, _ = overview(result(sets=("one",)))
    assert single.columns == ("encoder", "one")


def test_a_difference_that_is_not_significant_has_no_mark():
    found = result()
    object.__setattr__(found.sets[0].scores[1].values["accuracy"].difference, "adjusted", 0.05)
    table, _ = overview(found)
    assert not table.rows[1][1].endswith("*")
    assert table.rows[1][2].endswith("*")


def test_json_is_complete_and_finite(found, report):
    read = json.loads((report / "report.json").read_text(), parse_constant=pytest.fail)
    assert read == json.loads(json.dumps(found.to_json()))
    first = read["sets"][0]["scores"][1]
    assert first["values"]["accuracy"]["difference"]["adjusted"] == 0.02
    (grid,) = read["by_layer"]
    assert np.array_equal(grid["values"], found.grids[0].values)
    layer, pooling = grid["best"]["hidden_state"], grid["best"]["pooling"]
    assert found.grids[0].values[layer, grid["poolings"].index(pooling)] == np.max(grid["values"])


def test_examples_are_read_back_with_their_texts(found, report):
    files = sorted(report.glob("examples.*.csv"))
    assert len(files) == len(found.sets)
    with (report / "examples.one.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ['a "b"', "c,d", "é\nf"]
    for score in found.sets[0].scores:
        assert [float(row[score.encoder]) for row in rows] == score.examples.tolist()


def test_sets_whose_names_are_alike_as_files_have_a_file_each(tmp_path):
    found = result(sets=("a/b", "a b", "..."), grid=False)
    found.write(tmp_path / "report")
    assert len(list((tmp_path / "report").glob("examples.*.csv"))) == 3


def test_cut_texts_and_notes_are_said_by_name(found):
    said = found.text()
    assert f"{ODD}: longer than its window, and cut: 1 of 3 texts of one" in said
    assert f"one, {ODD}: a note" in said
    layer, pooling = found.grids[0].best
    assert f"hidden state {layer} with {pooling} pooling" in said
    uncut = result(encoders=("plain",), grid=False)
    assert "no text is longer than an encoder's window" in remarks_on(uncut)


def test_there_is_a_figure_of_scores_and_one_of_layers(report):
    names = {path.name for path in (report / "figures").iterdir()}
    assert names == {
        f"{kind}-accuracy.{ending}" for kind in ("scores", "layers") for ending in ("png", "svg")
    }
    layers = (report / "figures/layers-accuracy.svg").read_text()
    assert "cls" in layers
    for value in result().grids[0].values.ravel():
        assert f"{100 * value:.1f}" in layers


def test_without_matplotlib_the_report_says_so(tmp_path, monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments, **keywords):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", refuse)
    result().write(tmp_path / "report")
    assert "No figures were drawn" in (tmp_path / "report/report.md").read_text()
    assert not (tmp_path / "report/figures").exists()
