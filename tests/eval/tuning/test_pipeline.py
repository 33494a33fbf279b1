"""Pipelines: every value of a knob survives the file of settings, and files are refused by name."""

from pathlib import Path

import pytest

from eval import Pipeline, read_pipeline
from eval.tuning.knobs import KNOBS, RANKING, turned_knobs
from retriever.errors import ConfigError, SourceError
from retriever.search import FusionSettings, SearchSettings

VALUES = [
    (knob, value)
    for knob in KNOBS
    for value in knob.values
    or {"layers": [("0,6", None)], "reranker": [("cross",)]}.get(knob.name, ())
]


@pytest.mark.parametrize(("knob", "value"), VALUES, ids=lambda one: getattr(one, "name", str(one)))
def test_every_value_of_a_knob_is_read_back(knob, value, tmp_path):
    try:
        pipeline = knob.set_value(Pipeline(), value)
    except ConfigError:
        pytest.skip("it goes with no other default")
    file = tmp_path / "tuned.toml"
    file.write_text(pipeline.toml("a comment\nof two lines"))
    found = read_pipeline(file)
    assert found.to_json() == pipeline.to_json()
    assert found.search.mode == pipeline.search.mode
    if pipeline.search.mode == "hybrid":
        assert found == pipeline
    assert {one.name for one in turned_knobs(pipeline, Pipeline())} <= {knob.name}


def test_setting_a_knob_back_gives_the_defaults():
    pipeline = Pipeline().put(**{"search.bm25.k1": 2.0, "encoder.layers": "0,6"})
    assert [one.name for one in turned_knobs(pipeline, Pipeline())] == ["k1", "layers"]
    for knob in turned_knobs(pipeline, Pipeline()):
        pipeline = knob.set_value(pipeline, knob.value(Pipeline()))
    assert pipeline == Pipeline()


def test_rankings_hold_the_default_and_no_value_twice():
    assert ("hybrid", FusionSettings(alpha=0.6)) in RANKING.values
    assert len(set(RANKING.values)) == len(RANKING.values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("modle = 'x'", "found 'modle'"),
        ("[search]\nalhpa = 0.5", "[search], found 'alhpa'"),
        ("[search]\nalpha = 2.0", "alpha: expected 0 to 1, found 2.0"),
        ("[search]\nfusion = 'rrf'\nalpha = 0.5", "belongs to convex"),
        ("[index]\ncontext = 1", "context"),
        ("[index]\nlanguage = 'klingon'", "unknown language"),
        ("model = 3", "model: expected text"),
        ("index = 3", "found 'index'"),
        ("[search", "expected settings in TOML"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(text, expected, tmp_path):
    file = tmp_path / "tuned.toml"
    file.write_text(text)
    with pytest.raises(SourceError) as refusal:
        read_pipeline(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert expected in str(refusal.value)


def test_what_a_file_leaves_out_has_the_default(tmp_path):
    file = Path(tmp_path, "tuned.toml")
    file.write_text("[search]\nk1 = 0.9\n")
    assert read_pipeline(file) == Pipeline(search=SearchSettings()).put(**{"search.bm25.k1": 0.9})
