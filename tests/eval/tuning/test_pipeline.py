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


@pytest.mark.parametrize(
    ("knob", "value"), VALUES, ids=lambda parameter: getattr(parameter, "name", str(parameter))
)
def test_every_knob_value_survives_writing_and_reading_a_pipeline(knob, value, tmp_path):
    try:
        pipeline = knob.set_value(Pipeline(), value)
    except ConfigError:
        pytest.skip("it goes with no other default")
    file = tmp_path / "tuned.toml"
    file.write_text(pipeline.toml("a comment\nof two lines"))
    pipeline_read = read_pipeline(file)
    assert pipeline_read.to_json() == pipeline.to_json()
    assert pipeline_read.search.mode == pipeline.search.mode
    if pipeline.search.mode == "hybrid":
        assert pipeline_read == pipeline
    assert {turned_knob.name for turned_knob in turned_knobs(pipeline, Pipeline())} <= {knob.name}


def test_resetting_a_knob_restores_the_defaults():
    pipeline = Pipeline().put(**{"search.bm25.k1": 2.0, "encoder.layers": "0,6"})
    assert [turned_knob.name for turned_knob in turned_knobs(pipeline, Pipeline())] == [
        "k1",
        "layers",
    ]
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
def test_invalid_pipeline_file_is_refused_by_name(text, expected, tmp_path):
    file = tmp_path / "tuned.toml"
    file.write_text(text)
    with pytest.raises(SourceError) as refusal:
        read_pipeline(file)
    assert str(refusal.value).startswith(f"{file}: ")
    assert expected in str(refusal.value)


def test_setting_missing_in_a_pipeline_file_has_its_default(tmp_path):
    file = Path(tmp_path, "tuned.toml")
    file.write_text("[search]\nk1 = 0.9\n")
    assert read_pipeline(file) == Pipeline(search=SearchSettings()).put(**{"search.bm25.k1": 0.9})
