"""Tasks by category: normalized values and their means against numbers worked out by hand."""

import json

import numpy as np
import pytest

from eval.papers.categories import gather_categories
from retriever.errors import BadInputError, SourceError


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a report with the parts that the summary reads."""

    def report(name, kind, sets=None, measure="accuracy", **by_layer):
        folder = tmp_path / name
        folder.mkdir()
        scored = [
            {
                "set": task,
                "scores": [
                    {"encoder": encoder, "values": {measure: {"value": value}}}
                    for encoder, value in scores.items()
                ],
            }
            for task, scores in (sets or {}).items()
        ]
        grids = [
            {
                "set": task.replace("_", "-"),
                "encoder": "m",
                "measure": measure_name,
                "values": values,
            }
            | {"poolings": ["mean", "cls"]}
            for task, values in by_layer.items()
            for measure_name in (measure, "other")
        ]
        value = {"kind": kind, "measures": [measure, "other"], "sets": scored, "by_layer": grids}
        (folder / "report.json").write_text(json.dumps(value))
        return folder

    return report


def test_category_score_is_the_mean_of_values_relative_to_the_best_encoder(write):
    transfer = {"sick": {"a": 0.5, "b": 0.6}, "mrpc": {"a": 0.7, "b": 0.7}, "mr": {"a": 1, "b": 0}}
    categories = gather_categories(
        [
            write("probe", "probe", {"wc": {"a": 0.1, "b": 0.2}, "own": {"a": 0.3, "b": 0.3}}),
            write("sts", "sts", {"sick": {"a": 0.8, "b": 0.4}}, measure="spearman"),
            write("transfer", "transfer", transfer),
        ]
    )
    facts = categories.report().sections[0].facts
    assert facts == {
        "semantic similarity": "sick-r, mrpc",
        "text classification": "sick, mr",
        "surface information": "wc",
        "other probing": "own",
    }
    classified = (0.5 / 0.6 + 1) / 2
    expected = dict(zip(facts, (1, classified, 0.5, 1), strict=True))
    assert categories.to_json()["encoders"]["a"] == pytest.approx(
        {**expected, "average": np.mean(list(expected.values()))}
    )
    (table,) = categories.report().sections[0].tables
    assert table.columns == ("", *facts, "average")
    assert table.rows[0][:3] == ("a", "100.00", f"{100 * classified:.2f}")
    task = categories.to_json()["tasks"][2]
    assert task == {
        "task": "sick",
        "category": "text classification",
        "best": 0.6,
        "encoders": {"a": 0.5, "b": 0.6},
        "layers": [],
    }


def test_pooling_score_averages_hidden_states_relative_to_the_best_value(write):
    grids = {"trec": [[0.2, 0.1], [0.4, 0.3]], "sick_e": [[0.5, 0.5], [0.25, 0.0]]}
    categories = gather_categories(
        [write("one", "transfer", {"trec": {"a": 0.8}}), write("two", "transfer", **grids)]
    )
    poolings = categories.to_json()["poolings"]
    assert poolings["m, mean"]["text classification"] == pytest.approx(0.3 / 0.8)
    assert poolings["m, mean"]["entailment"] == pytest.approx(0.75)
    assert poolings["m, cls"]["average"] == pytest.approx((0.2 / 0.8 + 0.5) / 2)
    assert categories.to_json()["tasks"][0]["layers"][1]["values"] == [0.1, 0.3]


def test_encoders_that_lack_a_task_are_named_and_left_out(write):
    first = write("one", "transfer", {"mr": {"a": 0.8, "b": 0.6}})
    second = write("two", "transfer", {"cr": {"a": 0.8}})
    categories = gather_categories([first, second])
    assert list(categories.to_json()["encoders"]) == ["a"]
    assert "not scored on every task: b" in categories.text()


def test_invalid_and_contradicting_reports_are_refused(write, tmp_path):
    scores = [write(str(value), "transfer", {"mr": {"a": value}}) for value in (0.8, 0.7)]
    layers = [write(f"m{value}", "sts", mine=[[0.5, 0.1], [0.2, value]]) for value in (0.3, 0.4)]
    for folders, error, message in (
        ([tmp_path / "absent"], SourceError, "name the folder of a report"),
        ([write("run", "run")], SourceError, "expected a report of eval sts"),
        (scores, BadInputError, r"mr: expected 0\.8 for a as in another report, found 0\.7"),
        (layers, BadInputError, r"mine: expected \[0\.1, 0\.3\] for m, cls as in another"),
    ):
        with pytest.raises(error, match=message):
            gather_categories(folders)
    assert len(gather_categories([layers[0], layers[0]]).tasks) == 1
