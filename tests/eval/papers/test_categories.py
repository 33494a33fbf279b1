"""Tasks by category: normalized values and their means against numbers worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eval.papers.categories import gather_categories, layers_by_task
from retriever.errors import BadInputError, SourceError


@pytest.fixture
def write(tmp_path):
    """Writes a report with what the summary reads."""

    def report(name, kind, sets, by_layer=(), measure="accuracy"):
        folder = tmp_path / name
        folder.mkdir()
        value = {
            "kind": kind,
            "measures": [measure, "other"],
            "sets": [
                {
                    "set": of,
                    "scores": [
                        {"encoder": encoder, "values": {measure: {"value": value}}}
                        for encoder, value in scores.items()
                    ],
                }
                for of, scores in sets.items()
            ],
            "by_layer": [
                {
                    "set": of,
                    "encoder": "m",
                    "measure": one,
                    "poolings": ["mean", "cls"],
                    "values": values,
                }
                for of, values in by_layer
                for one in (measure, "other")
            ],
        }
        (folder / "report.json").write_text(json.dumps(value))
        return folder

    return report


def test_values_are_divided_by_the_best_of_the_task_and_averaged_by_category(write):
    found = gather_categories(
        [
            write("probe", "probe", {"wc": {"a": 0.1, "b": 0.2}, "own": {"a": 0.3, "b": 0.3}}),
            write("sts", "sts", {"sick": {"a": 0.8, "b": 0.4}}, measure="spearman"),
            write(
                "transfer",
                "transfer",
                {
                    "sick": {"a": 0.5, "b": 0.6},
                    "mrpc": {"a": 0.7, "b": 0.7},
                    "mr": {"a": 1, "b": 0},
                },
            ),
        ]
    )
    assert [(one.name, one.category) for one in found.tasks] == [
        ("sick-r", "semantic similarity"),
        ("mrpc", "semantic similarity"),
        ("sick", "text classification"),
        ("mr", "text classification"),
        ("wc", "surface information"),
        ("own", "other probing"),
    ]
    a = found.encoders()["a"]
    assert a["semantic similarity"] == 1
    assert a["text classification"] == pytest.approx((0.5 / 0.6 + 1) / 2)
    assert (a["surface information"], a["other probing"]) == (0.5, 1)
    assert a["average"] == pytest.approx((1 + (0.5 / 0.6 + 1) / 2 + 0.5 + 1) / 4)
    assert "surface information" in found.text()


def test_poolings_are_averaged_over_hidden_states_and_scaled_by_any_encoder(write):
    found = gather_categories(
        [
            write("one", "transfer", {"trec": {"a": 0.8}}),
            write(
                "two",
                "transfer",
                {},
                [("trec", [[0.2, 0.1], [0.4, 0.3]]), ("sick-e", [[0.5, 0.5], [0.25, 0.0]])],
            ),
        ]
    )
    poolings = found.poolings()
    assert poolings["m, mean"]["text classification"] == pytest.approx(0.3 / 0.8)
    assert poolings["m, mean"]["entailment"] == pytest.approx(0.75)
    assert poolings["m, cls"]["average"] == pytest.approx((0.2 / 0.8 + 0.5) / 2)


def test_encoders_that_lack_a_task_are_named_and_left_out(write):
    one = write("one", "transfer", {"mr": {"a": 0.8, "b": 0.6}})
    two = write("two", "transfer", {"cr": {"a": 0.8}})
    found = gather_categories([one, two])
    assert list(found.encoders()) == ["a"]
    assert "not scored on every task: b" in found.text()


def test_the_heat_map_has_the_first_task_on_top(write):
    pytest.importorskip("matplotlib")
    found = gather_categories(
        [
            write(
                "one",
                "transfer",
                {},
                [("mr", [[0.2, 0.1], [0.4, 0.3]]), ("snli", [[1, 1], [0, 0]])],
            )
        ]
    )
    figure = layers_by_task(found.tasks, "m", "cls")
    axes = figure.axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["snli", "mr"]
    np.testing.assert_allclose(axes.images[0].get_array(), [[1, 0], [0.25, 0.75]])
    assert list(found.report().figures) == ["layers-mean", "layers-cls"]


def test_what_is_no_such_report_or_contradicts_another_is_refused(write, tmp_path):
    with pytest.raises(SourceError, match="name the folder of a report"):
        gather_categories([tmp_path / "absent"])
    other = write("run", "run", {})
    with pytest.raises(SourceError, match="expected a report of eval sts"):
        gather_categories([other])
    one = write("one", "transfer", {"mr": {"a": 0.8}})
    two = write("two", "transfer", {"mr": {"a": 0.7}})
    with pytest.raises(BadInputError, match=r"mr: expected 0\.8 for a as in another report"):
        gather_categories([one, two])
    three = write("three", "qa", {}, [("mine", [[0.5, 0.1], [0.2, 0.3]])])
    four = write("four", "qa", {}, [("mine", [[0.5, 0.1], [0.2, 0.4]])])
    with pytest.raises(BadInputError, match="mine: expected the values of m with cls pooling as"):
        gather_categories([three, four])
    assert gather_categories([three, three])
    with pytest.raises(BadInputError, match="a value above 0"):
        gather_categories([write("zero", "transfer", {"mr": {"a": 0.0}})])
